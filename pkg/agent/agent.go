// Package agent runs one turn: it loads the history, builds the prompt, runs
// the tool loop and says what the turn came to. It starts no goroutine and
// sends nothing; the gateway does both.
package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// History is the part of the store a turn reads.
type History interface {
	History(ctx context.Context, session string, limit int) ([]store.Entry, error)
}

// Config is what all turns have in common.
type Config struct {
	Provider providers.LLMProvider
	Model    string
	Options  map[string]any
	Tools    *tools.ToolRegistry
	// ToolsFor narrows Tools to what a principal is offered; nil: Tools is for
	// everybody. What must not be done for others a tool refuses itself as well.
	// It is called from many goroutines and must return the same few views.
	ToolsFor      func(principal string) *tools.ToolRegistry
	History       History
	Governor      Governor   // shapes every request
	Compactor     *Compactor // nil: nothing is summarised
	SystemPrompt  string     // "" means DefaultSystemPrompt
	MaxIterations int
	// HistoryMessages is how many stored messages a turn sees at most.
	HistoryMessages int
	// Zone gives the time zone of a conversation.
	Zone func(ctx context.Context, at bus.Address) *time.Location
	// Around is told of each turn and each sub-agent, for whom it works, on its
	// goroutine. It returns the context it is to run in and what is called with
	// how it ended; of a sub-agent that is all but Answer and History. nil: nobody
	// is told.
	Around func(ctx context.Context, call tools.Call) (context.Context, func(Outcome, error))
	Log    *slog.Logger
}

// Agent runs turns. It is safe for concurrent use.
type Agent struct{ cfg Config }

// New returns an agent.
func New(cfg Config) *Agent {
	if cfg.SystemPrompt == "" {
		cfg.SystemPrompt = DefaultSystemPrompt
	}
	return &Agent{cfg: cfg}
}

// Config returns what the agent was made of, defaults filled in.
func (a *Agent) Config() Config { return a.cfg }

// Journal takes the steps of a turn to the ledger. With wait it returns when
// they are durable. What has been done, a store.StepEnd, it also takes when ctx
// has ended: the turn's history will tell of it.
type Journal func(ctx context.Context, tx store.Tx, wait bool) error

// Turn is one run of the agent.
type Turn struct {
	ID string
	// Messages are what the turn answers, one or more, all of one sender in one
	// conversation. They reach the model as one message.
	Messages []bus.InboundMessage
	// Started is the moment whose date the model is told; zero: now. A turn that
	// is taken up again after midnight so sends what it would have sent.
	Started time.Time
	// Steps is what an interrupted turn had already done.
	Steps []store.Step
	// Journal is told every step. nil means the steps are not recorded.
	Journal Journal
	// Show makes the outbox rows for a tool result the person is to see.
	Show func(call tools.Call, text string) []store.Outbound
	// AsyncCallback and Pending serve asynchronous tools: the way back for a
	// result, and the row that is written before the model hears of the task.
	AsyncCallback func(tools.Call) tools.AsyncCallback
	Pending       func(tools.Call) store.Task
	// OnEvent hears the loop's events; it must not block.
	OnEvent func(tools.Event)
	// OnDelta is told each reply of the model in pieces while it is made, text and
	// thoughts, on the turn's goroutine; it must not block. They are for showing
	// only: an EventModelStart begins another reply, what came before may have been
	// a word before calls, and Outcome.Answer is what counts. nil: nothing streams.
	OnDelta func(providers.Delta)
	// Answered says whether the person has been told something in this turn
	// already; the model may then end it without a word. nil: no.
	Answered func() bool
}

// Outcome is what a turn came to.
type Outcome struct {
	// Answer is the final text, Markdown; "" if the model had nothing to add. With
	// an error it is what was shown of it, if anything was.
	Answer string
	// History is what the turn adds to the conversation, valid also when the
	// turn failed or was cut short.
	History    []store.Entry
	Rounds     int
	StopReason tools.StopReason
	Usage      providers.Usage
	// Summary was made on the way, because the provider found the conversation
	// too long; it goes into the Tx that stores History. nil: none.
	Summary *store.Summary
	// Compact says that the conversation has outgrown its budget.
	Compact bool
}

type turnKey struct{}

// Run runs t and blocks until it is over or ctx ends. A failure comes with an
// Outcome whose History is valid; Apology turns it into words for the person.
func (a *Agent) Run(ctx context.Context, t Turn) (out Outcome, err error) {
	last := t.Messages[len(t.Messages)-1]
	call := callOf(t.ID, last)
	ctx, over := a.around(ctx, call)
	defer func() { over(out, err) }()
	past, err := a.cfg.History.History(ctx, last.SessionKey, a.cfg.HistoryMessages)
	if err != nil {
		return Outcome{}, fmt.Errorf("agent: load history: %w", err)
	}
	now := time.Now()
	started := cmp.Or(t.Started, now)
	day := a.calendar(ctx, last.Address)
	head := func(past []store.Entry) []providers.Message {
		return append([]providers.Message{a.systemMessage(last, day, since(past, started))}, Past(past)...)
	}
	asked := a.asked(t.Messages, head(past), day(since(past, started)), day(started))
	done, rounds, finish := a.replay(t.Steps)

	ctx = context.WithValue(ctx, turnKey{}, &t)
	ctx = tools.WithMetadata(tools.WithCall(ctx, call), last.Metadata)
	res, summary, err := attempt{
		loop: tools.ToolLoopConfig{
			Provider:      a.cfg.Provider,
			Model:         a.cfg.Model,
			Tools:         a.toolsFor(call.Principal),
			MaxIterations: a.cfg.MaxIterations,
			LLMOptions:    a.cfg.Options,
			AsyncCallback: t.AsyncCallback,
			OnEvent:       t.OnEvent,
			Stream:        t.OnDelta,
			FinalAnswer:   true,
			Answered:      t.Answered,
			LoopGuard:     true,
			EstimateUsage: true,
			Checkpoint:    t.checkpoint,
			Rounds:        rounds,
			Finish:        finish,
		}, governor: a.cfg.Governor, compactor: a.cfg.Compactor, past: past, channel: last.Channel, chatID: last.ChatID,
		messages: func(past []store.Entry) []providers.Message { return slices.Concat(head(past), asked, done) },
	}.run(ctx)

	out = Outcome{History: make([]store.Entry, 0, len(done)+4)}
	add := func(m providers.Message) {
		out.History = append(out.History, store.Entry{Session: last.SessionKey, Turn: t.ID, Message: m, Time: now})
	}
	for _, m := range asked {
		add(m)
		out.History[len(out.History)-1].Time = started // by which the next turn knows the day
	}
	for _, m := range done {
		add(m)
	}
	if res != nil {
		out.Answer, out.Rounds, out.StopReason, out.Usage = res.Content, res.Iterations, res.StopReason, res.Usage
		for _, m := range res.Messages {
			add(m)
		}
	}
	if err != nil {
		add(providers.Message{Role: providers.RoleAssistant, Content: strings.TrimSpace(out.Answer + "\n" + noAnswer(ctx, err))})
		err = fmt.Errorf("agent: %w", err)
	}
	if summary != nil {
		summary.Keep += len(out.History)
	}
	out.Summary = summary
	out.Compact = a.cfg.Compactor != nil && a.cfg.Compactor.Due(past)
	return out, err
}

func (a *Agent) around(ctx context.Context, call tools.Call) (context.Context, func(Outcome, error)) {
	ctx = providers.WithTurn(ctx)
	if a.cfg.Around == nil {
		return ctx, func(Outcome, error) {}
	}
	return a.cfg.Around(ctx, call)
}

func (a *Agent) toolsFor(principal string) *tools.ToolRegistry {
	if a.cfg.ToolsFor == nil {
		return a.cfg.Tools
	}
	return a.cfg.ToolsFor(principal)
}

// callOf is what every call of a turn has in common.
func callOf(turn string, m bus.InboundMessage) tools.Call {
	c := tools.Call{
		Channel:    m.Channel,
		ChatID:     m.ChatID,
		ThreadID:   m.Metadata["thread_id"],
		MessageID:  m.MessageID,
		SenderID:   m.Sender.ID,
		Principal:  m.Principal,
		SessionKey: m.SessionKey,
		Turn:       turn,
		Hops:       m.Hops,
	}
	if m.Group {
		c.ReplyTo = m.MessageID
	}
	return c
}

// checkpoint writes one step of the loop. Only the beginning of a call that
// must not be run twice is waited for: what was done before is then on disk
// too, since the ledger keeps the order.
func (t *Turn) checkpoint(ctx context.Context, r tools.Record) error {
	if t.Journal == nil {
		return nil
	}
	step := store.Step{
		Turn: t.ID, Round: r.Round, CallID: r.Call.ID, Tool: r.Call.Tool, Message: r.Message,
		Time: time.Now(), Took: r.Took, Request: r.Request,
	}
	if r.Usage != nil {
		step.Usage = *r.Usage
	}
	tx := store.Tx{}
	switch r.Kind {
	case tools.RecordReply:
		step.Kind, step.Finish = store.StepReply, r.Finish
	case tools.RecordBegin:
		step.Kind = store.StepBegin
	case tools.RecordEnd:
		step.Kind = store.StepEnd
		if r.Result.ForUser != "" && !r.Result.Silent && t.Show != nil {
			tx.Send = t.Show(r.Call, r.Result.ForUser)
		}
		if r.Result.Async && t.Pending != nil {
			tx.Tasks = []store.Task{t.Pending(r.Call)}
		}
	case tools.RecordInject:
		step.Kind = store.StepInject
	}
	tx.Steps = []store.Step{step}
	return t.Journal(ctx, tx, r.Kind == tools.RecordBegin && !r.Idempotent || len(tx.Tasks) > 0)
}

const (
	// interrupted is the result of a call that had begun when its process ended.
	interrupted = "interrupted by a restart, outcome unknown: check before you do it again"
	// skipped is that of one that had not, though the turn went on.
	skipped = "not run"
)

// replay turns the steps of an interrupted turn back into messages, each round's
// results in the order of their calls, so that they are the same however often
// it is interrupted. A call that had begun and has no result may or may not have
// taken effect. If the tool allows it, and the turn has not gone on since, the
// call is left open and so run again; otherwise that could do harm, and the model
// is told just that. Calls that ran side by side may leave such a call behind
// one that is open; it is then marked, so that the loop answers it in its place.
func (a *Agent) replay(steps []store.Step) (messages []providers.Message, rounds int, finish string) {
	var calls []providers.ToolCall
	begun, ended := map[string]bool{}, map[string]providers.Message{}
	settle := func(last bool) {
		open := false
		for i := range calls {
			m, ok := ended[calls[i].ID]
			switch {
			case ok:
			case last && (!begun[calls[i].ID] || a.cfg.Tools.Idempotent(callName(&calls[i]))):
				open = true
				continue
			case open:
				calls[i].Invalid = interrupted
				continue
			case begun[calls[i].ID]:
				m = providers.Message{Role: providers.RoleTool, ToolCallID: calls[i].ID, Content: interrupted}
			default:
				m = providers.Message{Role: providers.RoleTool, ToolCallID: calls[i].ID, Content: skipped}
			}
			messages = append(messages, m)
		}
		calls = nil
		clear(begun)
		clear(ended)
	}
	for _, s := range steps {
		switch s.Kind {
		case store.StepReply:
			settle(false)
			s.Message.ToolCalls = slices.Clone(s.Message.ToolCalls)
			messages = append(messages, s.Message)
			calls, rounds, finish = s.Message.ToolCalls, s.Round, s.Finish
		case store.StepBegin:
			begun[s.CallID] = true
		case store.StepEnd:
			ended[s.CallID] = s.Message
		case store.StepInject:
			settle(false)
			messages = append(messages, s.Message)
		}
	}
	settle(true)
	return messages, rounds, finish
}

// RunTask runs a sub-agent for a task that a turn handed out, with the tools of
// the turn except spawn, and returns its result. It blocks until the task is
// done or ctx ends.
func (a *Agent) RunTask(ctx context.Context, call tools.Call, task string) *tools.ToolResult {
	sub := call
	sub.AgentID = call.Key()
	sub.Turn = call.Turn + "/" + sub.AgentID
	cfg := tools.ToolLoopConfig{
		Provider:      a.cfg.Provider,
		Model:         a.cfg.Model,
		Tools:         a.toolsFor(call.Principal).View(func(name string) bool { return name != "spawn" }),
		MaxIterations: a.cfg.MaxIterations,
		LLMOptions:    a.cfg.Options,
		FinalAnswer:   true,
		LoopGuard:     true,
	}
	if t, ok := ctx.Value(turnKey{}).(*Turn); ok {
		cfg.AsyncCallback = t.AsyncCallback
	}
	ctx, over := a.around(ctx, sub)
	ctx = tools.WithYield(tools.WithCall(ctx, sub), nil) // a task holds no turn slot
	res, _, err := attempt{
		loop: cfg, governor: a.cfg.Governor, channel: call.Channel, chatID: call.ChatID,
		messages: func([]store.Entry) []providers.Message {
			return []providers.Message{
				{Role: providers.RoleSystem, Content: subAgentPrompt},
				{Role: providers.RoleUser, Content: task},
			}
		},
	}.run(ctx)
	over(Outcome{Rounds: res.Iterations, StopReason: res.StopReason, Usage: res.Usage}, err)
	if err != nil {
		why, _ := apology(err) // /retry would ask for something else
		return tools.ErrorResult("The background task failed: " + why).WithError(err)
	}
	if res.Content == "" {
		return tools.ErrorResult("The background task ended without a result.")
	}
	return tools.NewToolResult(res.Content)
}

// ErrStopped is the cause of a turn's context when a person stopped it.
var ErrStopped = errors.New("stopped by the person")

// Apology says to the person, kindly and without internals, why there is no
// answer, and what they can do.
func Apology(err error) string {
	why, advice := apology(err)
	return why + " " + advice
}

func apology(err error) (why, advice string) {
	switch providers.KindOf(err) {
	case providers.KindRateLimit, providers.KindOverloaded:
		return "The language model is too busy to answer at the moment.", "Please ask again in " + patience(err) + ", with /retry."
	case providers.KindAuth, providers.KindBilling:
		return "I cannot use my language model: its account needs the attention of whoever runs me.", "Please ask again later, with /retry."
	case providers.KindContextOverflow:
		return "This conversation has grown too long for the language model.", "/new starts a fresh one."
	case providers.KindInvalidRequest:
		return "The language model did not accept this conversation.", "/new starts a fresh one; whoever runs me finds the reason in the log."
	case providers.KindUnreachable:
		return "I cannot reach my language model at the moment.", "Please ask again in a little while, with /retry."
	case providers.KindTimeout:
		return "The language model took too long to answer.", "Please ask again, with /retry."
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "That took longer than I am allowed to spend on one answer, so I stopped.", "Please ask again, with /retry or for less at once."
	}
	return "Something went wrong on my side and I could not answer.", "Please ask again, with /retry."
}

// patience is how long the model wants to be left alone.
func patience(err error) string {
	e, ok := errors.AsType[*providers.Error](err)
	if !ok || e.RetryAfter <= time.Minute {
		return "a minute"
	}
	if e.RetryAfter < 2*time.Hour {
		return fmt.Sprintf("%d minutes", int(math.Ceil(e.RetryAfter.Minutes())))
	}
	return "a few hours"
}

// CutOff tells the person that an answer is not whole.
const CutOff = "(My answer grew too long and ends here. Ask me to go on, or for a shorter one.)"

// Silence is what the person reads in place of an answer that has no text; "" if
// a tool has said what there is to say.
func Silence(why tools.StopReason) string {
	switch {
	case strings.HasPrefix(string(why), string(tools.StopTool)):
		return ""
	case why == tools.StopRefused:
		return "I cannot answer that. Please ask me something else, or in other words."
	case why == tools.StopLength:
		return "My answer grew too long before it said anything. Please ask for less at once, or in smaller steps."
	case why == tools.StopLoopDetected, why == tools.StopMaxIterations:
		return "I went round in circles with that and stopped. Please ask for less at once, or in other words."
	}
	return "I have no answer to that. Please ask me in other words."
}

func noAnswer(ctx context.Context, err error) string {
	if errors.Is(context.Cause(ctx), ErrStopped) {
		return "(stopped by the person before the answer was finished)"
	}
	return "(no answer was given: " + Apology(err) + ")"
}

// Draft is a summary that has been made of a conversation as it was.
type Draft struct {
	summary store.Summary
	then    []store.Entry
}

// wholeHistory is more than a conversation grows to between two compactions.
const wholeHistory = 10_000

// Compact summarises the older part of a conversation; short leaves no more of
// it than the newest turns. It asks the model and blocks until it has answered.
// ErrNothingToCompact means that it is short already.
func (a *Agent) Compact(ctx context.Context, session string, short bool) (Draft, error) {
	if a.cfg.Compactor == nil {
		return Draft{}, ErrNothingToCompact
	}
	then, err := a.cfg.History.History(ctx, session, wholeHistory)
	if err != nil {
		return Draft{}, fmt.Errorf("agent: compact: %w", err)
	}
	c := *a.cfg.Compactor
	if short {
		c.Target = 0
	}
	s, err := c.Compact(ctx, then)
	return Draft{summary: s, then: then}, err
}

// Settle makes a draft fit the conversation as it is now, in which no turn may
// be running. ok is false if the draft is of no use any more.
func (a *Agent) Settle(ctx context.Context, d Draft) (s store.Summary, ok bool, err error) {
	now, err := a.cfg.History.History(ctx, d.summary.Session, wholeHistory)
	if err != nil {
		return s, false, fmt.Errorf("agent: compact: %w", err)
	}
	s, ok = Rebase(d.summary, d.then, now)
	return s, ok, nil
}

// LastQuestion returns what a person asked last in a conversation, as the model
// read it, and the turn that answered it; "" if nothing.
func (a *Agent) LastQuestion(ctx context.Context, session string) (question, turn string, err error) {
	past, err := a.cfg.History.History(ctx, session, a.cfg.HistoryMessages)
	if err != nil {
		return "", "", fmt.Errorf("agent: %w", err)
	}
	for _, e := range slices.Backward(past) {
		if e.Message.Role == providers.RoleUser && !e.Summary {
			return e.Message.Content, e.Turn, nil
		}
	}
	return "", "", nil
}
