package providers_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// bench is a chain of models "a", "b", "c" whose failures a test sets.
type bench struct {
	mu    sync.Mutex
	fails map[string]*providers.Error
	text  string        // told before a failure
	takes time.Duration // each request
	asked []string
	spare []bool // whether the request was told of another model
	log   bytes.Buffer
	chain providers.LLMProvider
}

func newBench(models ...string) *bench {
	b := &bench{fails: map[string]*providers.Error{}}
	var list []providers.Model
	for _, name := range models {
		list = append(list, providers.Model{Name: name, Provider: b, Model: name})
	}
	b.chain = providers.Chain(slog.New(slog.NewTextHandler(&b.log, nil)), list...)
	return b
}

func (b *bench) Chat(ctx context.Context, m []providers.Message, t []providers.ToolDefinition, model string, o map[string]any) (*providers.LLMResponse, error) {
	return b.ChatStream(ctx, m, t, model, o, func(providers.Delta) {})
}

func (b *bench) ChatStream(ctx context.Context, _ []providers.Message, _ []providers.ToolDefinition, model string, _ map[string]any, onDelta func(providers.Delta)) (*providers.LLMResponse, error) {
	b.mu.Lock()
	err, text, takes := b.fails[model], b.text, b.takes
	b.asked = append(b.asked, model)
	attempts, _ := providers.Patience(ctx, 9, time.Hour)
	b.spare = append(b.spare, attempts < 9)
	b.mu.Unlock()
	if takes > 0 {
		time.Sleep(takes)
	}
	if text != "" {
		onDelta(providers.Delta{Reasoning: "hm"})
		onDelta(providers.Delta{Text: text})
	}
	if err != nil {
		return nil, err
	}
	return &providers.LLMResponse{Content: model}, nil
}

func (b *bench) fail(model string, kind providers.ErrorKind, retryAfter time.Duration) {
	b.fails[model] = &providers.Error{Kind: kind, RetryAfter: retryAfter, Message: "no " + model}
}

// ask returns who answered, and the models that were asked.
func (b *bench) ask(ctx context.Context) (answer string, asked string, err error) {
	b.asked, b.spare = nil, nil
	resp, err := b.chain.Chat(ctx, nil, nil, "ignored", nil)
	if err == nil {
		answer = resp.Content
	}
	return answer, strings.Join(b.asked, ""), err
}

// want asks once and compares.
func (b *bench) want(t *testing.T, when, answer, asked string) {
	t.Helper()
	if got, who, err := b.ask(t.Context()); got != answer || who != asked {
		t.Errorf("%s: %q answered (%v), %q were asked; want %q and %q", when, got, err, who, answer, asked)
	}
}

// How long a model is left alone depends on why it failed; each has its own
// pause, and one request finds out whether it is over.
func TestFieldFallback(t *testing.T) {
	for name, c := range map[string]struct {
		kind       providers.ErrorKind
		retryAfter time.Duration
		pauses     []time.Duration // of failures one after another
	}{
		"rate limit":     {providers.KindRateLimit, 0, []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second}},
		"its own word":   {providers.KindRateLimit, 90 * time.Second, []time.Duration{90 * time.Second, 90 * time.Second}},
		"a long word":    {providers.KindRateLimit, 6 * time.Hour, []time.Duration{time.Hour, time.Hour}},
		"overloaded":     {providers.KindOverloaded, 0, []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 2 * time.Minute, 2 * time.Minute}},
		"overloaded, 1s": {providers.KindOverloaded, time.Second, []time.Duration{time.Second}},
		"timeout":        {providers.KindTimeout, 0, []time.Duration{5 * time.Second, 10 * time.Second}},
		"unreachable":    {providers.KindUnreachable, 0, []time.Duration{5 * time.Second, 10 * time.Second}},
		"auth":           {providers.KindAuth, 0, []time.Duration{10 * time.Minute, 20 * time.Minute, 40 * time.Minute, time.Hour, time.Hour}},
		"billing":        {providers.KindBilling, 0, []time.Duration{10 * time.Minute, 20 * time.Minute}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench("a", "b")
				b.fail("a", c.kind, c.retryAfter)
				for _, pause := range c.pauses {
					b.want(t, "failing", "b", "ab")
					time.Sleep(pause - time.Nanosecond)
					b.want(t, "during the pause of "+pause.String(), "b", "b")
					time.Sleep(time.Nanosecond)
				}
				delete(b.fails, "a")
				b.want(t, "when it is over", "a", "a")
				b.fail("a", c.kind, c.retryAfter)
				b.want(t, "the next failure", "b", "ab")
				time.Sleep(c.pauses[0])
				b.want(t, "and its pause, which is a first one", "b", "ab")
				if n := strings.Count(b.log.String(), "model set aside"); n != 2 || strings.Count(b.log.String(), "model answers again") != 1 {
					t.Errorf("each change is logged once, not each request:\n%s", b.log.String())
				}
			})
		})
	}
}

func TestFieldFallbackIsStickyInATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench("a", "b")
		b.fail("a", providers.KindRateLimit, 0)
		turn := providers.WithTurn(t.Context())
		if got, asked, _ := b.ask(turn); got != "b" || asked != "ab" {
			t.Errorf("%q answered of %q", got, asked)
		}
		delete(b.fails, "a")
		time.Sleep(time.Minute)
		for range 3 {
			if got, asked, _ := b.ask(turn); got != "b" || asked != "b" {
				t.Errorf("the turn goes on with %q of %q, want b", got, asked)
			}
		}
		b.want(t, "another turn", "a", "a")
		b.fail("b", providers.KindOverloaded, 0)
		if got, asked, _ := b.ask(turn); got != "a" || asked != "ba" {
			t.Errorf("when its model fails the turn goes on with %q of %q, want a", got, asked)
		}
		if got, asked, _ := b.ask(turn); got != "a" || asked != "a" {
			t.Errorf("and stays there: %q of %q", got, asked)
		}
		if got, _, _ := newBench("a").ask(turn); got != "a" {
			t.Errorf("the turn of one chain keeps %q from answering in another", got)
		}
	})
}

// What another model may not have leads on; what is the request's own fault, or
// nobody's, does not, and leaves the model alone in no way.
func TestFieldFallbackLeadsOnOnlyWhereItHelps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, kind := range []providers.ErrorKind{providers.KindContextOverflow, providers.KindInvalidRequest} {
			b := newBench("a", "b")
			b.fail("a", kind, 0)
			if _, asked, err := b.ask(t.Context()); asked != "a" || providers.KindOf(err) != kind {
				t.Errorf("%s: %q were asked, %v", kind, asked, err)
			}
			delete(b.fails, "a")
			b.want(t, "after "+string(kind), "a", "a")
		}
		ctx, cancel := context.WithCancel(t.Context())
		b := newBench("a", "b")
		b.fail("a", providers.KindTimeout, 0)
		b.takes = time.Second
		time.AfterFunc(time.Millisecond, cancel)
		if _, asked, err := b.ask(ctx); asked != "a" || err == nil {
			t.Errorf("given up, %q were asked, %v", asked, err)
		}
		delete(b.fails, "a")
		b.want(t, "after that", "a", "a")
		stranger := providers.Chain(slog.New(slog.DiscardHandler), providers.Model{Provider: provider(func(context.Context, string) (*providers.LLMResponse, error) {
			return nil, errors.ErrUnsupported
		})}, providers.Model{Provider: b, Model: "b"})
		if _, err := stranger.Chat(t.Context(), nil, nil, "", nil); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("an error of no kind became %v", err)
		}
	})
}

// A text that was shown cannot be taken back: another model must not begin anew.
func TestFieldFallbackNeverAfterText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench("a", "b")
		b.fail("a", providers.KindUnreachable, 0)
		b.text = "Good "
		told := ""
		_, err := b.chain.(providers.Streamer).ChatStream(t.Context(), nil, nil, "", nil, func(d providers.Delta) { told += d.Text })
		if providers.KindOf(err) != providers.KindUnreachable || told != "Good " || !slices.Equal(b.asked, []string{"a"}) {
			t.Errorf("after %q was told, %q were asked, %v", told, b.asked, err)
		}
		b.text = ""
		b.want(t, "the next request", "b", "b")
	})
}

func TestFieldFallbackProbesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench("a", "b")
		b.fail("a", providers.KindOverloaded, 0)
		b.takes = time.Second
		var all sync.WaitGroup
		for range 50 { // they fail together, which is one failure
			all.Go(func() { _, _ = b.chain.Chat(t.Context(), nil, nil, "", nil) })
		}
		all.Wait()
		time.Sleep(5 * time.Second)
		b.asked = nil
		for range 20 {
			all.Go(func() { _, _ = b.chain.Chat(t.Context(), nil, nil, "", nil) })
		}
		all.Wait()
		if n := strings.Count(strings.Join(b.asked, ""), "a"); n != 1 || len(b.asked) != 21 {
			t.Errorf("%d of 20 requests found out whether the model works, want one (%q)", n, b.asked)
		}
		if n := strings.Count(b.log.String(), "model set aside"); n != 1 {
			t.Errorf("logged %d times:\n%s", n, b.log.String())
		}
	})
}

// A panic in the one request that finds out must not lock the model out.
func TestFieldFallbackProbeThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var do func() (*providers.LLMResponse, error)
		ok := provider(func(context.Context, string) (*providers.LLMResponse, error) { return &providers.LLMResponse{}, nil })
		chain := providers.Chain(slog.New(slog.DiscardHandler), providers.Model{Provider: provider(func(context.Context, string) (*providers.LLMResponse, error) { return do() })}, providers.Model{Provider: ok})
		ask := func() {
			defer func() { _ = recover() }()
			_, _ = chain.Chat(t.Context(), nil, nil, "", nil)
		}
		do = func() (*providers.LLMResponse, error) { return nil, &providers.Error{Kind: providers.KindOverloaded} }
		ask()
		time.Sleep(time.Minute)
		do = func() (*providers.LLMResponse, error) { panic("at the disco") }
		ask()
		asked := false
		do = func() (*providers.LLMResponse, error) { asked = true; return &providers.LLMResponse{}, nil }
		ask()
		if !asked {
			t.Error("the model is not asked any more")
		}
	})
}

// When none is ready the one that will be first is asked, and what is said about
// the wait is true.
func TestFieldFallbackWhenNoneIsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench("a", "b", "c")
		b.fail("a", providers.KindAuth, 0)
		b.fail("b", providers.KindRateLimit, 30*time.Second)
		b.fail("c", providers.KindBilling, 0)
		_, asked, err := b.ask(t.Context())
		e, _ := errors.AsType[*providers.Error](err)
		if asked != "abc" || e == nil || e.Kind != providers.KindRateLimit || e.RetryAfter != 30*time.Second {
			t.Errorf("%q were asked, the error is %#v, want the one that is over first, in 30s", asked, err)
		}
		if want := []bool{true, true, false}; !slices.Equal(b.spare, want) {
			t.Errorf("told that another is ready: %v, want %v", b.spare, want)
		}
		time.Sleep(10 * time.Second)
		b.fails["b"].RetryAfter = 20 * time.Second // as a service counts down
		_, asked, err = b.ask(t.Context())
		e, _ = errors.AsType[*providers.Error](err)
		if asked != "b" || e == nil || e.RetryAfter != 20*time.Second || b.spare[0] {
			t.Errorf("%q were asked, the error is %#v, want b's, in 20s", asked, err)
		}
		delete(b.fails, "b")
		b.want(t, "when it recovers early", "b", "b")
		b.want(t, "from then on", "b", "b")

		alone := newBench("a")
		alone.fail("a", providers.KindRateLimit, 0)
		for range 3 {
			if _, asked, err := alone.ask(t.Context()); asked != "a" || !errors.Is(err, alone.fails["a"]) {
				t.Errorf("a model without another: %q were asked, %v", asked, err)
			}
		}
		if alone.log.Len() > 0 {
			t.Errorf("a model without another is never set aside:\n%s", alone.log.String())
		}
	})
}

// A chain bears what a program that embeds it may give it.
func TestChainAtItsEdges(t *testing.T) {
	if _, err := providers.Chain(nil).Chat(t.Context(), nil, nil, "", nil); providers.KindOf(err) != providers.KindInvalidRequest {
		t.Errorf("without a model: %v", err)
	}
	nothing := providers.Model{Name: "nothing", Provider: silentProvider{}}
	if resp, err := providers.Chain(nil, nothing).Chat(t.Context(), nil, nil, "", nil); resp != nil || providers.KindOf(err) != providers.KindOverloaded {
		t.Errorf("of neither a reply nor an error: %+v, %v", resp, err)
	}
	good := providers.Model{Name: "good", Provider: good{}}
	if resp, err := providers.Chain(nil, nothing, good).Chat(t.Context(), nil, nil, "", nil); err != nil || resp.Content != "hello" {
		t.Errorf("behind it: %+v, %v", resp, err)
	}
}

type silentProvider struct{}

func (silentProvider) Chat(context.Context, []providers.Message, []providers.ToolDefinition, string, map[string]interface{}) (*providers.LLMResponse, error) {
	return nil, nil //nolint:nilnil // what is tested
}

type good struct{}

func (good) Chat(context.Context, []providers.Message, []providers.ToolDefinition, string, map[string]interface{}) (*providers.LLMResponse, error) {
	return &providers.LLMResponse{Content: "hello"}, nil
}
