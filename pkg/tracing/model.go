package tracing

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// Model returns p, with a span for each of its calls. provider says whose API it
// speaks, address where that is, "" for the provider's own.
func (t *Tracer) Model(provider, address string, p providers.LLMProvider) providers.LLMProvider {
	w := &model{t: t, next: p, about: []attribute.KeyValue{providerName.String(provider)}}
	if u, err := url.Parse(address); err == nil && u.Hostname() != "" {
		w.about = append(w.about, attribute.String("server.address", u.Hostname()))
		if port, err := strconv.Atoi(u.Port()); err == nil {
			w.about = append(w.about, attribute.Int("server.port", port))
		}
	}
	if c, ok := p.(providers.Checker); ok {
		return struct {
			*model
			providers.Checker
		}{w, c}
	}
	return w
}

type model struct {
	t     *Tracer
	next  providers.LLMProvider
	about []attribute.KeyValue
}

func (w *model) Chat(ctx context.Context, messages []providers.Message, tools []providers.ToolDefinition, model string, options map[string]interface{}) (*providers.LLMResponse, error) {
	return w.ChatStream(ctx, messages, tools, model, options, nil)
}

// ChatStream implements providers.Streamer.
func (w *model) ChatStream(ctx context.Context, messages []providers.Message, tools []providers.ToolDefinition, model string, options map[string]interface{}, onDelta func(providers.Delta)) (*providers.LLMResponse, error) {
	ctx, span := w.t.begin(ctx, opChat, model, trace.SpanKindClient, append(slices.Clip(w.about), requestModel.String(model))...)
	if !span.IsRecording() {
		return providers.Stream(ctx, w.next, messages, tools, model, options, onDelta)
	}
	var (
		resp *providers.LLMResponse
		err  = errPanicked
	)
	defer func() { w.ended(ctx, span, resp, err) }()
	if w.t.content {
		w.t.asked(span, messages)
	}
	resp, err = providers.Stream(ctx, w.next, messages, tools, model, options, timed(span, onDelta))
	return resp, err
}

var errPanicked = errors.New("panic")

// ended ends the span of a request.
func (w *model) ended(ctx context.Context, span trace.Span, resp *providers.LLMResponse, err error) {
	defer span.End()
	switch {
	case err == errPanicked: //nolint:errorlint // identity is meant
		w.t.failed(span, "panic", nil)
	case err != nil:
		w.t.failed(span, kindOf(ctx, err), err)
	case resp != nil:
		spent(span, resp.Usage)
		if resp.FinishReason != "" {
			span.SetAttributes(finishReasons.StringSlice([]string{resp.FinishReason}))
		}
		if w.t.content {
			w.t.answered(span, resp)
		}
	}
}

// timed notes when the first piece of a reply has come.
func timed(span trace.Span, onDelta func(providers.Delta)) func(providers.Delta) {
	if onDelta == nil {
		return nil
	}
	began, first := time.Now(), true
	return func(d providers.Delta) {
		if first {
			first = false
			span.SetAttributes(firstChunk.Float64(time.Since(began).Seconds()))
		}
		onDelta(d)
	}
}
