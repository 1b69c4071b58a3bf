package providers

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Model is one configured model: a provider, the API's name for the model, and
// the options every request to it carries.
type Model struct {
	Name     string // its key in the configuration
	Provider LLMProvider
	Model    string
	Options  map[string]interface{}
}

// Chain returns a provider that asks the models in order until one answers. It
// is a Streamer. The model and the options of each request are the chain's own.
//
// Only a failure that another model may not have leads on to the next one; a
// request that is refused as invalid or too long is not repeated elsewhere, nor
// is one of whose answer a text was told. A model that failed is left alone for
// a while: as long as it asks for, some seconds if it was busy or did not
// answer, more each time, minutes if it refused its key. Then one request finds
// out whether it works. Where no model is ready, the one that will be first is
// asked nevertheless. In a turn (WithTurn) the model that answered last is asked
// first.
//
// When all fail, the error is that of the model that will be ready first, and
// its RetryAfter says when that is. log hears when a model is left alone and when
// it is back; nil discards.
func Chain(log *slog.Logger, models ...Model) LLMProvider {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &chain{models: models, log: log, state: make([]cooldown, len(models))}
}

type chain struct {
	models []Model
	keys   bool // of one model, see Keys
	log    *slog.Logger

	mu    sync.Mutex // many turns ask at once; held for a look only
	state []cooldown // of the models
}

// turn is what a chain remembers of a turn.
type turn struct{ model atomic.Pointer[Model] }

type turnKey struct{}

// WithTurn returns a context for the requests of one turn: a Chain goes on with
// the model that has answered in it, so that what one model has thought and
// called is not put before another without need.
func WithTurn(ctx context.Context) context.Context {
	return context.WithValue(ctx, turnKey{}, &turn{})
}

type (
	spareModel struct{}
	spareKey   struct{}
)

// Where another model waits to take over, a second attempt is for what is gone in
// a moment, and nothing else.
const (
	hastyAttempts = 2
	hastyBudget   = 5 * time.Second
)

// Patience is how often a provider may send a request, and how long after the
// first time it may begin anew, when it would by itself do so attempts times
// within budget: less if another model is ready to take the request over.
func Patience(ctx context.Context, attempts int, budget time.Duration) (int, time.Duration) {
	if ctx.Value(spareModel{}) == nil {
		return attempts, budget
	}
	return min(attempts, hastyAttempts), min(budget, hastyBudget)
}

// HasSpareKey reports whether another key is ready to be used, so that a
// provider need not wait for what this one is refused.
func HasSpareKey(ctx context.Context) bool { return ctx.Value(spareKey{}) != nil }

func (c *chain) Chat(ctx context.Context, messages []Message, tools []ToolDefinition, model string, options map[string]interface{}) (*LLMResponse, error) {
	return c.ChatStream(ctx, messages, tools, model, options, nil)
}

// ChatStream implements Streamer.
func (c *chain) ChatStream(ctx context.Context, messages []Message, tools []ToolDefinition, model string, options map[string]interface{}, onDelta func(Delta)) (*LLMResponse, error) {
	if len(c.models) == 0 {
		return nil, &Error{Kind: KindInvalidRequest, Message: "there is no model to ask"}
	}
	told, watch := false, onDelta
	if onDelta != nil {
		watch = func(d Delta) {
			told = told || d.Text != ""
			onDelta(d)
		}
	}
	inTurn, _ := ctx.Value(turnKey{}).(*turn)
	tried := make([]error, len(c.models))
	for at, spare := c.first(inTurn); at >= 0; at, spare = c.next(tried) {
		if !c.keys {
			model, options = c.models[at].Model, c.models[at].Options
		}
		resp, err := c.ask(c.hint(ctx, spare), at, messages, tools, model, options, watch)
		switch _, leadsOn := c.failure(err); {
		case err == nil:
			if inTurn != nil && !c.keys {
				inTurn.model.Store(&c.models[at])
			}
			return resp, nil
		case told, !leadsOn, ctx.Err() != nil:
			return nil, err
		}
		tried[at] = err
	}
	return nil, c.sum(tried)
}

// hint tells a request whether another model, or key, is ready.
func (c *chain) hint(ctx context.Context, spare bool) context.Context {
	switch {
	case !spare:
		return ctx
	case c.keys:
		return context.WithValue(ctx, spareKey{}, true)
	}
	return context.WithValue(ctx, spareModel{}, true)
}

// failure returns the *Error in err and whether another model, or key, may not
// have it.
func (c *chain) failure(err error) (e *Error, leadsOn bool) {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return nil, false
	}
	if c.keys {
		return e, e.Kind == KindRateLimit || e.Kind == KindAuth || e.Kind == KindBilling
	}
	first, _ := pauses(e.Kind)
	return e, first > 0
}

// ask asks one model and notes what comes of it.
func (c *chain) ask(ctx context.Context, at int, messages []Message, tools []ToolDefinition, model string, options map[string]interface{}, onDelta func(Delta)) (resp *LLMResponse, err error) {
	begun, panicked := time.Now(), true
	defer func() { c.note(ctx, at, begun, err, panicked) }()
	resp, err = Stream(ctx, c.models[at].Provider, messages, tools, model, options, onDelta)
	panicked = false
	if err == nil && resp == nil {
		err = &Error{Kind: KindOverloaded, Message: "the provider returned neither a reply nor an error"}
	}
	return resp, err
}

// first picks the model to begin with, and says whether another is ready too.
func (c *chain) first(t *turn) (at int, spare bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if t != nil {
		if at = c.index(t.model.Load()); at >= 0 && c.state[at].begin(now) {
			return at, c.other(now, nil, at)
		}
	}
	for at = range c.state {
		if c.state[at].begin(now) {
			return at, c.other(now, nil, at)
		}
	}
	return c.soonest(), false
}

// index finds a model of a turn, which may be another chain's.
func (c *chain) index(m *Model) int {
	for i := range c.models {
		if &c.models[i] == m {
			return i
		}
	}
	return -1
}

// next picks the first model that is ready and was not tried; -1 if there is none.
func (c *chain) next(tried []error) (at int, spare bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for at = range c.state {
		if tried[at] == nil && c.state[at].begin(now) {
			return at, c.other(now, tried, at)
		}
	}
	return -1, false
}

// other reports whether a model besides one is ready and was not tried.
func (c *chain) other(now time.Time, tried []error, than int) bool {
	for i := range c.state {
		if i != than && (tried == nil || tried[i] == nil) && c.state[i].ready(now) {
			return true
		}
	}
	return false
}

// soonest is the model whose pause ends first.
func (c *chain) soonest() int {
	at := 0
	for i := range c.state {
		if c.state[i].until.Before(c.state[at].until) {
			at = i
		}
	}
	return at
}

// note notes what came of a request. One that was given up says nothing.
func (c *chain) note(ctx context.Context, at int, begun time.Time, err error, panicked bool) {
	e, leadsOn := c.failure(err)
	c.mu.Lock()
	state, was := &c.state[at], c.state[at].kind()
	switch {
	case panicked || err != nil && (e == nil || ctx.Err() != nil):
		state.probing = false
	case leadsOn:
		state.fail(time.Now(), e)
	default: // it answered; whoever refuses a request works as well
		state.succeed(begun)
	}
	is, pause := state.kind(), time.Until(state.until)
	c.mu.Unlock()
	switch {
	case is == was || len(c.models) == 1:
	case is == "":
		c.log.InfoContext(ctx, "model answers again", "model", c.models[at].Name)
	default:
		c.log.WarnContext(ctx, "model set aside", "model", c.models[at].Name, "duration", pause, "err", err)
	}
}

// sum is the error when every model that was asked has failed.
func (c *chain) sum(tried []error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if first := &c.state[c.soonest()]; len(c.models) > 1 && first.err != nil {
		e := *first.err
		e.RetryAfter = max(time.Until(first.until), 0)
		return &e
	}
	for _, err := range tried {
		if err != nil {
			return err
		}
	}
	return nil
}
