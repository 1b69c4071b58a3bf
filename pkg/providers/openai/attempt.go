package openai

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"unicode"

	sdk "github.com/sashabaranov/go-openai"

	"github.com/dragoman-chat/dragoman/pkg/providers/httpapi"
)

// errSilent ends an attempt whose answer does not come.
var errSilent = errors.New("no answer in time")

// attempt sends the request and takes in the answer. It sends it again at once,
// without what the server does not know, if that is all it complains about.
func (p *Provider) attempt(ctx context.Context, req *sdk.ChatCompletionRequest, reply *assembly) *failure {
	for {
		req.Stream = reply.onDelta != nil && !p.noStream.Load()
		req.StreamOptions = nil
		if req.Stream && !p.noUsage.Load() {
			req.StreamOptions = &sdk.StreamOptions{IncludeUsage: true}
		}
		failed := p.send(ctx, req, reply)
		switch {
		case req.StreamOptions != nil && failed.refuses("stream_options", "include_usage"):
			p.noUsage.Store(true)
		case req.Stream && failed.refuses("stream", "streaming"):
			p.noStream.Store(true)
		default:
			return failed
		}
	}
}

// send sends the request once.
func (p *Provider) send(ctx context.Context, req *sdk.ChatCompletionRequest, reply *assembly) *failure {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit := httpapi.NewSilence(p.api.AttemptTimeout, func() { cancel(errSilent) })
	defer limit.Stop()
	seen := &observation{alive: func() {}}
	if req.Stream {
		had := reply.pieces
		seen.alive = func() {
			switch {
			case reply.finish != "":
				limit.Within(min(endTime, p.api.AttemptTimeout))
			case reply.pieces != had:
				had = reply.pieces
				limit.Piece()
			default:
				limit.Sign()
			}
		}
	}
	err := p.post(withObservation(ctx, seen), req)
	if errors.Is(err, sdk.ErrReasoningToolsRequireResponses) && req.ReasoningEffort == "" {
		// These models call tools over this API only without reasoning, and a
		// gateway without tools is no use.
		req.ReasoningEffort = sdk.ReasoningEffortNone
		err = p.post(withObservation(ctx, seen), req)
	}
	if seen.body != nil {
		defer func() {
			seen.body.alive = func() {}
			limit.Within(drainTime)
			_ = seen.body.Close() // nothing more is wanted of it
		}()
	}
	if err == nil {
		err = reply.read(seen)
	}
	if err == nil && gaveUp(reply.finish) {
		err = &midwayError{}
	}
	if err == nil && reply.any {
		return nil
	}
	return p.explain(ctx, err, seen)
}

// post has the SDK send the request. What it makes of an answer is of no use.
func (p *Provider) post(ctx context.Context, req *sdk.ChatCompletionRequest) error {
	if !req.Stream {
		_, err := p.client.CreateChatCompletion(ctx, *req)
		return err
	}
	stream, err := p.client.CreateChatCompletionStream(ctx, *req)
	if err == nil {
		_ = stream.Close() // the observation has the answer
	}
	return err
}

// refuses reports whether the server does not take a field of the request that
// goes by one of these names.
func (f *failure) refuses(names ...string) bool {
	if f == nil {
		return false
	}
	switch f.Status {
	case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusUnprocessableEntity, http.StatusNotImplemented:
	default:
		return false
	}
	words := strings.FieldsFunc(strings.ToLower(f.param+" "+f.Message), func(r rune) bool { return r != '_' && !unicode.IsLetter(r) })
	return slices.ContainsFunc(words, func(w string) bool { return slices.Contains(names, w) })
}
