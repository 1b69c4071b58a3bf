package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/agent"
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/config"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
	"github.com/dragoman-chat/dragoman/pkg/store/sqlite"
	"github.com/dragoman-chat/dragoman/pkg/tools"
	"github.com/dragoman-chat/dragoman/pkg/tools/textcall"
	"github.com/spf13/cobra"
)

func (p *program) replayCommand() *cobra.Command {
	var path, fixture string
	cmd := &cobra.Command{
		Use: "replay TURN", Short: "Run a recorded turn again and compare what it would send", Args: cobra.ExactArgs(1),
		Long: `Run a recorded turn again, with this program and this configuration. The model and
the tools are answered from the record: nothing is sent, nothing is changed. Every
request the model would be sent is compared with the one it was sent then; where
they differ the exit code is 1. TURN is the turn_id of the log, or of "why". With
--fixture the record is also written to a file, all that a test needs; it holds
what people have written.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.look(path, func(l ledger) error { return p.replay(cmd.Context(), l, args[0], fixture) })
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&fixture, "fixture", "", "also write the record to this new file")
	return cmd
}

// record is a turn with all that it depends on: a fixture.
type record struct {
	Turn  string    `json:"turn"`
	Time  time.Time `json:"time"` // when it began
	Zone  string    `json:"zone"` // the name of the conversation's time zone
	Shift int       `json:"shift"`

	Model           string                     `json:"model"`
	Options         map[string]any             `json:"options,omitempty"`
	SystemPrompt    string                     `json:"system_prompt"`
	MaxIterations   int                        `json:"max_iterations"`
	TextCalls       bool                       `json:"text_calls,omitempty"` // a model calls tools in its text
	HistoryMessages int                        `json:"history_messages"`
	Governor        agent.Governor             `json:"governor"`
	Tools           []providers.ToolDefinition `json:"tools"`

	Past     []store.Entry        `json:"past"`     // the history before it
	Messages []bus.InboundMessage `json:"messages"` // what it answers
	Steps    []store.Step         `json:"steps"`
	Added    []store.Entry        `json:"added"` // what it added to the history
}

func (p *program) replay(ctx context.Context, l ledger, id, fixture string) error {
	turn, ok, err := l.Turn(id)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("nothing is kept of a turn %q: steps are kept for a time (store.retention.journal); \"dragoman why\" names the turn of a message", id)
	}
	rec, err := p.recordOf(l, turn) //nolint:contextcheck // an app that is only looked at tries no sandbox
	if err != nil {
		return err
	}
	lines, _, err := l.Transcript(turn.Session)
	if err != nil {
		return err
	}
	var best outcome
	for i, past := range pasts(lines, rec) {
		try := rec
		try.Past = past
		if o := try.run(ctx); i == 0 || o.same > best.same {
			best, rec = o, try
		}
		if best.err == nil {
			break
		}
	}
	if fixture != "" {
		if err := writeFixture(fixture, rec); err != nil {
			return err
		}
		fmt.Fprintf(p.out, "%s holds the record\n", fixture)
	}
	err = best.report(p.out, id)
	if best.err != nil && l.cfg.Path() == "" {
		err = fmt.Errorf("%w; no configuration file was read: name the daemon's with --config", err)
	}
	return err
}

// recordOf puts together what a turn depends on, but for the history before it.
func (p *program) recordOf(l ledger, turn sqlite.TurnRecord) (rec record, err error) {
	if len(turn.Steps) == 0 {
		return rec, fmt.Errorf("no step of turn %s is recorded: there is nothing to run again", turn.ID)
	}
	wired := *l.cfg
	claimed, err := l.Fact("gateway/owner")
	if err != nil {
		return rec, err
	}
	if claimed != "" {
		wired.Owners = append(slices.Clone(wired.Owners), claimed)
	}
	// Everything is wired as for the daemon; it is not run.
	a, err := newApp(&wired, slog.New(slog.DiscardHandler), appOptions{Check: true})
	if err != nil {
		return rec, err
	}
	cfg := a.agent.Config()
	rec = record{
		Turn: turn.ID, Time: turn.Started, Model: cfg.Model, Options: cfg.Options, SystemPrompt: cfg.SystemPrompt,
		MaxIterations: cfg.MaxIterations, HistoryMessages: cfg.HistoryMessages,
		Governor: cfg.Governor, Steps: turn.Steps,
	}
	for _, name := range append([]string{cfg.Model}, l.cfg.Models[cfg.Model].Fallback...) {
		rec.TextCalls = rec.TextCalls || l.cfg.Models[name].ToolCalls == config.ToolCallsText
	}
	for _, m := range turn.Messages {
		if !m.Erased { // what was deleted before it was answered is not kept
			rec.Messages = append(rec.Messages, m.Message)
		}
	}
	if len(rec.Messages) == 0 {
		return rec, fmt.Errorf("of the messages of turn %s nothing is kept: it cannot be run again", turn.ID)
	}
	rec.Tools = a.offered(rec.Messages[len(rec.Messages)-1].Principal, rec.Steps[0].Request)
	for _, line := range turn.History {
		rec.Added = append(rec.Added, line.Entry)
	}
	zone := l.zone
	name, err := l.Fact("gateway/zone/" + turn.Address.String())
	if own, unknown := time.LoadLocation(name); err == nil && name != "" && unknown == nil {
		zone = own
	}
	rec.Zone = agent.ZoneName(rec.Time.In(zone))
	_, rec.Shift = rec.Time.In(zone).Zone()
	return rec, err
}

// offered are the tools for a turn of somebody. Whether a wall held then is not
// known: where exec is not among the tools of the first request, it did not.
func (a *app) offered(principal, request string) []providers.ToolDefinition {
	if a.withoutExec != nil {
		if defs := a.withoutExec.ToProviderDefs(); providers.ToolsDigest(defs) == providers.FingerprintTools(request) {
			return defs
		}
	}
	return a.toolsFor(principal).ToProviderDefs()
}

// pasts are what the history before the turn may have been, the likeliest
// first. The ledger does not tell when something was undone, summarised or
// left behind by /new; which one it was shows in the first request.
func pasts(lines []sqlite.Line, rec record) (list [][]store.Entry) {
	if at := slices.IndexFunc(lines, func(l sqlite.Line) bool { return l.Turn == rec.Turn && !l.Summary }); at >= 0 {
		lines = lines[:at]
	}
	choose := func(keep func(sqlite.Line) bool) (chosen []store.Entry) {
		for _, l := range lines {
			if keep(l) {
				chosen = append(chosen, l.Entry)
			}
		}
		return chosen
	}
	shown := choose(func(l sqlite.Line) bool { return l.Hidden == "" })
	first := 0
	if len(shown) > 0 && shown[0].Summary {
		first = 1
	}
	shown = append(shown[:first:first], newest(shown[first:], rec.HistoryMessages)...)
	list = append(list, shown)
	for _, undone := range []bool{false, true} {
		all := choose(func(l sqlite.Line) bool { return !l.Summary && (undone || l.Hidden != sqlite.HiddenUndone) })
		list = append(list, newest(all, rec.HistoryMessages))
		// The request tells how many messages it had: the system's, the past, the
		// question, with the date before it on another day.
		if n, ok := providers.FingerprintLen(rec.Steps[0].Request); ok {
			list = append(list, newest(all, n-2))
			if len(rec.Added) > 1 && rec.Added[1].Message.Role == providers.RoleUser {
				list[len(list)-1] = newest(all, n-3)
			}
		}
	}
	return list
}

func newest(entries []store.Entry, n int) []store.Entry {
	return entries[max(0, len(entries)-max(0, n)):]
}

// outcome is what a replay came to.
type outcome struct {
	same     int // requests that were as recorded
	compared bool
	err      error // the first difference, or why it could not be run to its end
}

func (o outcome) report(w io.Writer, turn string) error {
	switch {
	case o.err != nil:
		return fmt.Errorf("turn %s, request %d: %w", turn, o.same+1, o.err)
	case !o.compared:
		return fmt.Errorf("turn %s runs as recorded, but its record does not tell what was sent: an older version wrote it", turn)
	}
	fmt.Fprintf(w, "turn %s would send the same again: %d of %d requests are alike, byte for byte\n", turn, o.same, o.same)
	return nil
}

// errEnd ends a replay where the record ends.
var errEnd = errors.New("the record ends here")

// run runs the turn again.
func (rec record) run(ctx context.Context) outcome {
	p := &player{rec: rec}
	registry := tools.NewToolRegistry()
	for _, def := range rec.Tools {
		registry.Register(stub{def.Function, p})
	}
	a := agent.New(agent.Config{
		Provider: p, Model: rec.Model, Options: rec.Options, Tools: registry, History: p, Governor: rec.Governor, SystemPrompt: rec.SystemPrompt,
		MaxIterations: rec.MaxIterations, HistoryMessages: rec.HistoryMessages, Log: slog.New(slog.DiscardHandler),
		Zone: func(context.Context, bus.Address) *time.Location { return rec.zone() },
	})
	for i := range rec.Steps {
		if rec.Steps[i].Kind == store.StepReply {
			p.replies = append(p.replies, rec.Steps[i])
		}
	}
	_, err := a.Run(ctx, agent.Turn{
		ID: rec.Turn, Messages: rec.Messages, Started: rec.Time,
		Answered: func() bool { return p.empty == 0 }, // an empty reply that is recorded counted
	})
	switch {
	case p.failed != nil:
		p.out.err = p.failed
	case err != nil && !errors.Is(err, errEnd):
		p.out.err = err
	case len(p.replies) > 0:
		p.out.err = fmt.Errorf("the turn ends before it, the record holds %d more", len(p.replies))
	}
	return p.out
}

// zone is the conversation's time zone; one without a name that is known goes by
// what it was when the turn began.
func (rec record) zone() *time.Location {
	if zone, err := time.LoadLocation(rec.Zone); err == nil {
		return zone
	}
	return time.FixedZone(rec.Zone, rec.Shift)
}

// player answers for the model, the history and, through stub, the tools.
type player struct {
	rec     record
	replies []store.Step // still to come
	empty   int          // replies that have been made up
	out     outcome
	failed  error
}

// mostEmpty is how many replies without text lead to a last request for words.
const mostEmpty = 3

// History implements agent.History.
func (p *player) History(context.Context, string, int) ([]store.Entry, error) { return p.rec.Past, nil }

// Chat implements providers.LLMProvider: it compares the request and gives the
// recorded reply.
func (p *player) Chat(_ context.Context, messages []providers.Message, defs []providers.ToolDefinition, model string, options map[string]interface{}) (*providers.LLMResponse, error) {
	if len(p.replies) == 0 {
		if last := p.rec.Steps[len(p.rec.Steps)-1]; last.Kind == store.StepReply && len(last.Message.ToolCalls) == 0 {
			p.failed = errors.New("one more request than is recorded")
		}
		return nil, errEnd // a turn that failed, or is not over
	}
	step := p.replies[0]
	if step.Request != "" {
		if where := providers.Deviation(step.Request, messages, providers.ToolsDigest(defs), model, options); where != "" {
			if p.failed == nil {
				p.failed = fmt.Errorf("it differs from the one that was sent: %s", where)
			}
			if p.circled(messages, defs) {
				return nil, &providers.Error{Kind: providers.KindInvalidRequest, Err: providers.ErrCircles}
			}
			if len(defs) > 0 && p.empty < mostEmpty {
				// Recorded may be what came of empty replies, which are not.
				p.empty++
				return &providers.LLMResponse{}, nil
			}
			return nil, errEnd
		}
		p.failed, p.out.compared = nil, true
	}
	p.replies = p.replies[1:]
	p.out.same++
	return &providers.LLMResponse{Content: step.Message.Content, ToolCalls: step.Message.ToolCalls, FinishReason: step.Finish, Opaque: step.Message.Opaque}, nil
}

// circled reports whether a reply that repeats the one before would have ended
// the calls. It is not recorded then.
func (p *player) circled(messages []providers.Message, defs []providers.ToolDefinition) bool {
	if !p.rec.TextCalls || len(defs) == 0 {
		return false
	}
	for _, m := range slices.Backward(messages) {
		if m.Role == providers.RoleAssistant {
			return len(m.ToolCalls) > 0 && textcall.Circles(m.ToolCalls, messages, defs)
		}
	}
	return false
}

// result is what a call had as its result.
func (p *player) result(round int, call string) (string, bool) {
	for _, s := range p.rec.Steps {
		if s.Kind == store.StepEnd && s.Round == round && s.CallID == call {
			return s.Message.Content, true
		}
	}
	// It was interrupted: what the model was told is in the history.
	at := 0
	for _, e := range p.rec.Added {
		switch {
		case e.Message.Role == providers.RoleAssistant:
			at++
		case at == round && e.Message.Role == providers.RoleTool && e.Message.ToolCallID == call:
			return e.Message.Content, true
		}
	}
	return "", false
}

// stub stands for a tool: the same definition, the recorded result.
type stub struct {
	def providers.ToolFunctionDefinition
	p   *player
}

func (s stub) Name() string                       { return s.def.Name }
func (s stub) Description() string                { return s.def.Description }
func (s stub) Parameters() map[string]interface{} { return s.def.Parameters }

func (s stub) Execute(ctx context.Context, _ map[string]interface{}) *tools.ToolResult {
	call, _ := tools.CallFrom(ctx)
	text, ok := s.p.result(call.Round, call.ID)
	if !ok {
		// The turn stopped here, so nothing follows that would depend on it.
		text = "no result is recorded"
	}
	return tools.NewToolResult(text)
}

// writeFixture writes a record into a new file for its owner only.
func writeFixture(file string, rec record) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("replay: write the fixture: %w", err)
	}
	enc := json.NewEncoder(f)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)                                        // or what a reply has as its opaque part is another text
	if err := errors.Join(enc.Encode(rec), f.Close()); err != nil { //nolint:musttag // the ledger's types have no tags; this program alone reads it
		return fmt.Errorf("replay: write the fixture: %w", err)
	}
	return nil
}
