package anthropic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/anthropics/anthropic-sdk-go/packages/ssestream"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/httpapi"
)

// The answer's wire form. The SDK has types for it, which cost four times as
// much for each event and do not keep a block as it came.
type event struct {
	Type    string `json:"type"`
	Index   int    `json:"index"`
	Message struct {
		Usage json.RawMessage `json:"usage"`
	} `json:"message"`
	ContentBlock json.RawMessage `json:"content_block"`
	Delta        struct {
		Text        string `json:"text"`
		Thinking    string `json:"thinking"`
		Signature   string `json:"signature"`
		PartialJSON string `json:"partial_json"`
		StopReason  string `json:"stop_reason"`
		StopDetails struct {
			Explanation string `json:"explanation"`
		} `json:"stop_details"`
	} `json:"delta"`
	Usage json.RawMessage `json:"usage"`
}

// block is one of the answer's content blocks: how it began and what came after.
type block struct {
	Type  string          `json:"type"`
	ID    string          `json:"id"`
	Name  string          `json:"name"`
	Text  string          `json:"text"`
	Input json.RawMessage `json:"input"`

	start                            json.RawMessage
	text, thinking, signature, input strings.Builder
}

// usage is how the API counts. InputTokens are those that the cache had nothing
// to do with.
type usage struct {
	InputTokens   int `json:"input_tokens"`
	CacheCreation int `json:"cache_creation_input_tokens"`
	CacheRead     int `json:"cache_read_input_tokens"`
	OutputTokens  int `json:"output_tokens"`
	Details       struct {
		ThinkingTokens int `json:"thinking_tokens"`
	} `json:"output_tokens_details"`
}

// answer is an answer as far as it has come.
type answer struct {
	blocks      []*block
	stop        string
	explanation string // why it is a refusal
	usage       usage
	whole       bool
}

var (
	errSilent    = errors.New("silent")
	errMalformed = errors.New("an event cannot be read")
)

// afterglow is how long the connection is given to end after the answer has,
// so that it can be used again.
const afterglow = 250 * time.Millisecond

// attempt sends the request once.
func (p *Provider) attempt(ctx context.Context, body []byte, out *listener) (*answer, *failure) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := httpapi.NewSilence(p.api.AttemptTimeout, func() { cancel(errSilent) })
	defer silence.Stop()
	var resp *http.Response
	if err := p.client.Post(ctx, "v1/messages", body, &resp); err != nil {
		return nil, p.explain(ctx, resp, err)
	}
	defer resp.Body.Close()
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		return nil, p.strange(ctx, resp)
	}
	a := &answer{}
	events := ssestream.NewDecoder(resp)
	for events.Next() {
		e := events.Event()
		if e.Type == "ping" {
			silence.Sign()
		} else {
			silence.Piece()
		}
		if e.Type == "error" {
			return nil, p.refused(resp, readComplaint(e.Data))
		}
		if err := a.take(e.Data, out); err != nil {
			return nil, p.broken(ctx, resp, err)
		}
		if a.whole {
			silence.Within(afterglow)
			events.Next()
			return a, nil
		}
	}
	return nil, p.broken(ctx, resp, events.Err())
}

// take adds an event.
func (a *answer) take(data []byte, out *listener) error {
	if len(data) == 0 {
		return nil
	}
	var e event
	if err := json.Unmarshal(data, &e); err != nil {
		return fmt.Errorf("%w: %w", errMalformed, err)
	}
	switch e.Type {
	case "message_start":
		a.count(e.Message.Usage)
	case "content_block_start":
		b := &block{start: e.ContentBlock}
		if json.Unmarshal(e.ContentBlock, b) != nil || e.Index != len(a.blocks) {
			return errMalformed
		}
		a.blocks = append(a.blocks, b)
		b.text.WriteString(b.Text)
		out.tell(providers.Delta{Text: b.Text})
	case "content_block_delta":
		if e.Index < 0 || e.Index >= len(a.blocks) {
			return errMalformed
		}
		b, d := a.blocks[e.Index], &e.Delta
		b.text.WriteString(d.Text)
		b.thinking.WriteString(d.Thinking)
		b.signature.WriteString(d.Signature)
		b.input.WriteString(d.PartialJSON)
		out.tell(providers.Delta{Text: d.Text, Reasoning: d.Thinking})
	case "message_delta":
		a.stop, a.explanation = e.Delta.StopReason, e.Delta.StopDetails.Explanation
		a.count(e.Usage)
	case "message_stop":
		a.whole = true
	}
	return nil
}

// count overwrites the counts that raw has; they are totals.
func (a *answer) count(raw json.RawMessage) {
	if len(raw) > 0 {
		_ = json.Unmarshal(raw, &a.usage) // a service that counts otherwise does not count
	}
}
