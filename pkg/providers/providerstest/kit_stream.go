package providerstest

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// The rules of providers.Streamer. A provider that is none skips them.

// stream asks for an answer in pieces and returns the texts of them as well.
func (k kit) stream(ctx context.Context, reply func(Request) Response, onText func(string)) (resp *providers.LLMResponse, told string, err error) {
	k.t.Helper()
	s, ok := k.open(k.t, reply).(providers.Streamer)
	if !ok {
		k.t.Skip("the provider tells its replies as a whole")
	}
	resp, err = s.ChatStream(ctx, hello(), definitions(), k.model, nil, func(d providers.Delta) {
		if d == (providers.Delta{}) {
			k.t.Error("there is an empty piece")
		}
		told += d.Text
		if d.Text != "" && onText != nil {
			onText(d.Text)
		}
	})
	return resp, told, err
}

const longText = "Good morning!\n\nöäü 👋, and this is long enough to arrive in more than one piece.  \n"

func piecesAreTheReply(k kit) {
	t := k.t
	pieces := 0
	resp, told, err := k.stream(t.Context(), always(Text(longText)), func(string) { pieces++ })
	if err != nil || resp.Content != longText || told != longText {
		t.Errorf("got %+v, %v, and was told %q, want %q", resp, err, told, longText)
	}
	if pieces < 2 {
		t.Errorf("there were %d pieces, want some", pieces)
	}
	resp, told, err = k.stream(t.Context(), always(Response{Content: "I look.", ToolCalls: []Call{{Name: "now", Arguments: "{}"}}}), nil)
	if err != nil || resp.Content != "I look." || told != "I look." || len(resp.ToolCalls) != 1 {
		t.Errorf("got %+v, %v, and was told %q, want the text beside the call", resp, err, told)
	}
	resp, told, err = k.stream(t.Context(), always(Calls(Call{Name: "now", Arguments: "{}"})), nil)
	if err != nil || told != "" || len(resp.ToolCalls) != 1 {
		t.Errorf("got %+v, %v, and was told %q, want nothing of a call told", resp, err, told)
	}
}

func streamIsChat(k kit) {
	t := k.t
	usage := &providers.Usage{PromptTokens: 70, CompletionTokens: 50, TotalTokens: 120, CacheReadTokens: 40, ReasoningTokens: 20}
	for name, r := range map[string]Response{
		"text":    {Content: longText},
		"length":  {Content: longText, FinishReason: providers.FinishLength},
		"calls":   {Content: "I look.", ToolCalls: []Call{{ID: "a", Name: "read_file", Arguments: `{"path": "a/öäü", "deep": {"n": 1.5, "list": [true, null, "x"]}}`}, {ID: "b", Name: "now", Arguments: `{}`}}},
		"nothing": {},
	} {
		r.Usage = usage
		want := k.chat(always(r), hello(), definitions())
		got, _, err := k.stream(t.Context(), always(r), nil)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: in pieces %+v, %v, as a whole %+v", name, got, err, want)
		}
	}
}

func streamRetries(k kit) {
	t := k.t
	for _, kind := range []providers.ErrorKind{providers.KindRateLimit, providers.KindOverloaded, providers.KindTimeout, providers.KindUnreachable} {
		n := 0
		resp, told, err := k.stream(t.Context(), func(Request) Response {
			if n++; n < 3 {
				return Fail(kind)
			}
			return Text(longText)
		}, nil)
		if err != nil || resp.Content != longText || told != longText || n != 3 {
			t.Errorf("after two failures of kind %s: %+v, %v, told %q in %d attempts", kind, resp, err, told, n)
		}
	}
	for _, kind := range []providers.ErrorKind{providers.KindAuth, providers.KindBilling, providers.KindContextOverflow, providers.KindInvalidRequest} {
		n := 0
		_, told, err := k.stream(t.Context(), func(Request) Response { n++; return Fail(kind) }, nil)
		if providers.KindOf(err) != kind || told != "" || n != 1 {
			t.Errorf("a failure of kind %s became %v, told %q in %d attempts", kind, err, told, n)
		}
		noSecret(t, err)
	}
}

// toldOnce: what was shown cannot be taken back, so a reply that breaks off is
// not begun anew, and is no reply.
func toldOnce(k kit) {
	t := k.t
	n := 0
	whole := strings.Repeat(longText, 4)
	resp, told, err := k.stream(t.Context(), func(Request) Response { n++; return Response{Content: whole, Cut: true} }, nil)
	if _, ok := errors.AsType[*providers.Error](err); !ok || resp != nil {
		t.Errorf("an answer that broke off gave %+v, %v, want a *providers.Error", resp, err)
	}
	if told == "" || told == whole || !strings.HasPrefix(whole, told) {
		t.Errorf("was told %q, want the beginning", told)
	}
	if n != 1 {
		t.Errorf("an answer that broke off after it was shown was asked for %d times", n)
	}
}

func contextEndsStream(k kit) {
	t := k.t
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := 0
	resp, _, err := k.stream(ctx, func(Request) Response { n++; return Response{Content: strings.Repeat(longText, 4), Cut: true} }, func(string) { cancel() })
	if !errors.Is(err, context.Canceled) || resp != nil || n != 1 {
		t.Errorf("cancelled while it was told, ChatStream returned %+v, %v after %d attempts, want context.Canceled", resp, err, n)
	}
}

func silentStream(k kit) {
	t := k.t
	n, start := 0, time.Now()
	resp, told, err := k.stream(t.Context(), func(Request) Response { n++; return Response{Content: strings.Repeat(longText, 4), Park: true} }, nil)
	if providers.KindOf(err) != providers.KindTimeout || resp != nil || told == "" || n != 1 {
		t.Errorf("an answer that fell silent gave %+v, %v, told %q in %d attempts, want a timeout", resp, err, told, n)
	}
	if spent := time.Since(start); spent > 10*time.Minute {
		t.Errorf("an answer that fell silent ended after %s", spent)
	}
}

// impatient: in a chain the next model is asked after seconds, or after one
// silence; the next key at once.
func impatient(k kit) {
	t := k.t
	for name, c := range map[string]struct {
		reply    Response
		most     time.Duration
		attempts int
	}{
		"busy":   {Fail(providers.KindOverloaded), 5 * time.Second, 2},
		"later":  {Response{Failure: providers.KindRateLimit, RetryAfter: 20 * time.Second}, 0, 1},
		"silent": {Response{Hang: true}, 5 * time.Minute, 1},
	} {
		n, start := 0, time.Now()
		chain := providers.Chain(slog.New(slog.DiscardHandler),
			providers.Model{Name: "a", Model: k.model, Provider: k.open(t, func(Request) Response { n++; return c.reply })},
			providers.Model{Name: "b", Model: k.model, Provider: k.open(t, always(Text("ok")))})
		resp, err := chain.Chat(t.Context(), hello(), nil, "", nil)
		if err != nil || resp.Content != "ok" || time.Since(start) > c.most || n != c.attempts {
			t.Errorf("%s: the next model gave %+v, %v after %s and %d attempts, want it within %s after %d", name, resp, err, time.Since(start), n, c.most, c.attempts)
		}
	}
	n, start := 0, time.Now()
	keys := providers.Keys(slog.New(slog.DiscardHandler), "main",
		k.open(t, func(Request) Response { n++; return Fail(providers.KindRateLimit) }), k.open(t, always(Text("ok"))))
	if resp, err := keys.Chat(t.Context(), hello(), nil, k.model, nil); err != nil || resp.Content != "ok" || time.Since(start) > 0 || n != 1 {
		t.Errorf("the next key gave %+v, %v after %s and %d attempts, want it at once", resp, err, time.Since(start), n)
	}
}
