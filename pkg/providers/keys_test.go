package providers_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// keyed is a service with several keys: b's models are the keys.
type keyed struct {
	*bench
	key string
}

func (k keyed) Chat(ctx context.Context, m []providers.Message, t []providers.ToolDefinition, model string, o map[string]any) (*providers.LLMResponse, error) {
	resp, err := k.ChatStream(ctx, m, t, model, o, func(providers.Delta) {})
	return resp, err
}

func (k keyed) ChatStream(ctx context.Context, m []providers.Message, t []providers.ToolDefinition, model string, o map[string]any, onDelta func(providers.Delta)) (*providers.LLMResponse, error) {
	resp, err := k.bench.ChatStream(ctx, m, t, k.key, o, onDelta)
	if err == nil {
		resp.Content += " " + model
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.spare[len(k.spare)-1] = providers.HasSpareKey(ctx)
	return resp, err
}

func (k keyed) Check(context.Context) error {
	if err := k.fails[k.key]; err != nil {
		return err
	}
	return nil
}

func newKeys(keys ...string) *bench {
	b := &bench{fails: map[string]*providers.Error{}}
	log := slog.New(slog.NewTextHandler(&b.log, nil))
	var list []providers.LLMProvider
	for _, key := range keys {
		list = append(list, keyed{b, key})
	}
	b.chain = providers.Chain(log, providers.Model{Name: "main", Provider: providers.Keys(log, "main", list...), Model: "m"},
		providers.Model{Name: "other", Provider: keyed{b, "x"}, Model: "other"})
	return b
}

// The next key is used before the next model, each key has its own pause, and
// only what has to do with the key counts.
func TestFieldFallbackToTheNextKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, kind := range []providers.ErrorKind{providers.KindRateLimit, providers.KindAuth, providers.KindBilling} {
			b := newKeys("1", "2", "3")
			b.fail("1", kind, 0)
			b.want(t, string(kind), "2 m", "12")
			if !slices.Equal(b.spare, []bool{true, true}) {
				t.Errorf("told that another key is ready: %v", b.spare)
			}
			b.want(t, string(kind)+", again", "2 m", "2")
			b.fail("2", kind, 0)
			b.fail("3", kind, 0)
			b.want(t, string(kind)+", of all", "x other", "23x")
			if b.spare[1] {
				t.Error("the last key was told of another")
			}
			delete(b.fails, "1")
			time.Sleep(10 * time.Minute)
			b.want(t, string(kind)+", over", "1 m", "1")
			if log := b.log.String(); strings.Count(log, `"main (key 1 of 3)"`) != 2 || strings.Count(log, "main (key 2 of 3)") != 1 {
				t.Errorf("logged:\n%s", log)
			}
		}
		for _, kind := range []providers.ErrorKind{providers.KindOverloaded, providers.KindTimeout, providers.KindUnreachable} {
			b := newKeys("1", "2")
			b.fail("1", kind, 0)
			b.want(t, string(kind), "x other", "1x")
		}
		b := newKeys("1", "2")
		b.fail("1", providers.KindRateLimit, 0)
		turn := providers.WithTurn(t.Context())
		for _, want := range []string{"12", "2"} {
			if got, asked, err := b.ask(turn); got != "2 m" || asked != want {
				t.Errorf("in a turn %q answered of %q, %v", got, asked, err)
			}
		}
	})
}

// What is said of the whole is what holds for the key that is ready first.
func TestKeysSumUpHonestly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newKeys("1", "2")
		b.fail("1", providers.KindRateLimit, 30*time.Second)
		b.fail("2", providers.KindAuth, 0)
		b.fail("x", providers.KindBilling, 0)
		_, asked, err := b.ask(t.Context())
		if providers.KindOf(err) != providers.KindRateLimit || asked != "12x" {
			t.Errorf("%q were asked, %v", asked, err)
		}
		time.Sleep(30 * time.Second)
		delete(b.fails, "1")
		b.want(t, "after 30s", "1 m", "1")
	})
}

func TestKeysAreChecked(t *testing.T) {
	b := newKeys("1", "2")
	keys, ok := providers.Keys(slog.New(slog.NewTextHandler(&b.log, nil)), "main", keyed{b, "1"}, keyed{b, "2"}).(providers.Checker)
	if !ok {
		t.Fatal("keys cannot be checked")
	}
	b.fail("1", providers.KindAuth, 0)
	if err := keys.Check(t.Context()); err != nil || !strings.Contains(b.log.String(), "key 1 of 2") {
		t.Errorf("one key of two works: %v, logged %s", err, b.log.String())
	}
	b.fail("2", providers.KindAuth, 0)
	if err := keys.Check(t.Context()); providers.KindOf(err) != providers.KindAuth {
		t.Errorf("no key works: %v", err)
	}
	b.fail("1", providers.KindUnreachable, 0)
	if err := keys.Check(t.Context()); providers.KindOf(err) != providers.KindUnreachable {
		t.Errorf("nobody there: %v", err)
	}
	one := keyed{b, "1"}
	if got := providers.Keys(slog.New(slog.DiscardHandler), "main", one); got != providers.LLMProvider(one) {
		t.Errorf("one key became %T", got)
	}
}
