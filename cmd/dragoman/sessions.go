package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/dragoman-chat/dragoman/pkg/config"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
	"github.com/dragoman-chat/dragoman/pkg/store/mem"
	"github.com/dragoman-chat/dragoman/pkg/store/sqlite"
	"github.com/spf13/cobra"
)

// sessionsCommand shows and deletes what conversations hold.
func (p *program) sessionsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "sessions", Short: "Look at the stored conversations", SuggestionsMinimumDistance: 2}
	group(cmd)
	var path, format string
	var all bool
	list := &cobra.Command{
		Use: "list", Short: "List the conversations, the most recent first", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return p.look(path, p.sessionsList) },
	}
	show := &cobra.Command{
		Use: "show SESSION", Short: "Print a conversation as the model sees it", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return p.look(path, func(l ledger) error { return p.sessionsShow(l, args[0], all) })
		},
	}
	show.Flags().BoolVarP(&all, "all", "a", false, "also what /new, /undo and summaries have taken out of its sight")
	export := &cobra.Command{
		Use: "export SESSION", Short: "Print all of a conversation for other programs", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if format != "json" && format != "text" {
				return &usageError{fmt.Errorf("unknown format %q: write json or text", format)}
			}
			return p.look(path, func(l ledger) error { return p.sessionsExport(l, args[0], format) })
		},
	}
	export.Flags().StringVar(&format, "format", "json", "json, or text as show --all prints it")
	remove := &cobra.Command{
		Use: "delete SESSION", Short: "Erase a conversation for good; the daemon must not run",
		Long: `Erase the texts of a conversation for good, as /forget does in the chat itself.
While the daemon runs this is refused: write /forget in that chat instead.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return p.sessionsDelete(cmd, path, args[0]) },
	}
	for _, c := range []*cobra.Command{list, show, export, remove} {
		configFlag(c, &path)
		cmd.AddCommand(c)
	}
	return cmd
}

// ledger is an open ledger and how to show times.
type ledger struct {
	*sqlite.Reader
	cfg  *config.Config
	zone *time.Location
}

// look opens the configured ledger for reading and hands it to f. What f prints
// is what people put into reports, so the configuration's secrets are not in it.
func (p *program) look(path string, f func(ledger) error) error {
	cfg, err := p.loadFile(path)
	if err != nil {
		return err
	}
	a := app{cfg: cfg, log: slog.New(slog.DiscardHandler), store: mem.New()}
	_, _ = a.channels() // for the secrets in their sections; what is wrong with them is no matter here
	plain := p.out
	p.out = hiding{plain, p.redact.Hide}
	defer func() { p.out = plain }()
	r, err := sqlite.OpenReader(cfg.DataDir)
	if errors.Is(err, sqlite.ErrNoLedger) {
		return fmt.Errorf("there is no ledger in %s yet: the daemon makes it when it starts", cfg.DataDir)
	}
	if err != nil {
		return err
	}
	return errors.Join(f(ledger{r, cfg, cfg.Location()}), r.Close())
}

// hiding is a writer that is given whole texts and hides secrets in them.
type hiding struct {
	w    io.Writer
	hide func(string) string
}

func (h hiding) Write(text []byte) (int, error) {
	_, err := io.WriteString(h.w, h.hide(string(text)))
	return len(text), err
}

// loadFile reads the configuration of a daemon that keeps its ledger in a file.
func (p *program) loadFile(path string) (*config.Config, error) {
	cfg, err := p.load(path)
	if err != nil {
		return nil, err
	}
	if cfg.Store.Driver != "sqlite" {
		return nil, cfg.Errorf("store.driver", "the ledger is kept in %s, not in a file: there is nothing to look into", cfg.Store.Driver)
	}
	return cfg, nil
}

func (p *program) sessionsList(l ledger) error {
	list, err := l.Sessions()
	if err != nil {
		return err
	}
	if len(list) == 0 {
		fmt.Fprintln(p.out, "no conversation is stored")
		return nil
	}
	tab := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "SESSION\tMESSAGES\tHIDDEN\tLAST\tSIZE")
	for _, s := range list {
		last := "-"
		if !s.Last.IsZero() {
			last = s.Last.In(l.zone).Format("2006-01-02 15:04:05")
		}
		fmt.Fprintf(tab, "%s\t%d\t%d\t%s\t%s\n", printable(s.Name), s.Shown, s.Hidden, last, size(s.Bytes))
	}
	return tab.Flush()
}

// size is a number of bytes for people.
func size(n int64) string {
	switch {
	case n < 10_000:
		return fmt.Sprintf("%d B", n)
	case n < 10_000_000:
		return fmt.Sprintf("%d kB", n/1000)
	}
	return fmt.Sprintf("%d MB", n/1_000_000)
}

// transcript returns a stored conversation.
func (l ledger) transcript(session string) ([]sqlite.Line, error) {
	lines, ok, err := l.Transcript(session)
	if err == nil && !ok {
		err = fmt.Errorf("no session is called %q: see \"dragoman sessions list\"", session)
	}
	return lines, err
}

func (p *program) sessionsShow(l ledger, session string, all bool) error {
	lines, err := l.transcript(session)
	if err != nil {
		return err
	}
	for _, line := range lines {
		if all || line.Hidden == "" {
			writeLine(p.out, line, l.zone)
		}
	}
	return nil
}

// writeLine prints one message of a conversation.
func writeLine(w io.Writer, line sqlite.Line, zone *time.Location) {
	m := line.Message
	head, who := line.Time.In(zone).Format("2006-01-02 15:04:05"), m.Role
	switch {
	case line.Summary:
		head, who = strings.Repeat(" ", len(head)), "summary"
	case m.Role == providers.RoleTool:
		who += " " + m.ToolCallID
	}
	if line.Hidden != "" {
		who += " (" + line.Hidden + ")"
	}
	fmt.Fprintf(w, "%s  %s:", head, printable(who))
	if m.Content != "" || len(m.ToolCalls) == 0 {
		fmt.Fprintf(w, " %s", indent(m.Content))
	}
	fmt.Fprintln(w)
	for _, c := range m.ToolCalls {
		fmt.Fprintf(w, "    calls %s\n", indent(callText(c)))
	}
}

// callText is a call as one would write it.
func callText(c providers.ToolCall) string {
	name, args := c.Name, ""
	if c.Function != nil {
		if name == "" {
			name = c.Function.Name
		}
		args = c.Function.Arguments
	}
	if args == "" {
		if text, err := json.Marshal(c.Arguments); err == nil && c.Arguments != nil {
			args = string(text)
		}
	}
	return fmt.Sprintf("%s(%s) as %s", name, args, c.ID)
}

// indent is a text that stands behind something, its further lines set in.
func indent(text string) string {
	return strings.ReplaceAll(printable(text), "\n", "\n    ")
}

// printable leaves out what would steer the terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return '\uFFFD'
		}
		return r
	}, text)
}

// exported is a message of a conversation as "sessions export" writes it.
type exported struct {
	Time    time.Time         `json:"time,omitzero"`
	Turn    string            `json:"turn,omitempty"`
	Hidden  string            `json:"hidden,omitempty"`
	Summary bool              `json:"summary,omitempty"`
	Message providers.Message `json:"message"`
}

func (p *program) sessionsExport(l ledger, session, format string) error {
	if format == "text" {
		return p.sessionsShow(l, session, true)
	}
	lines, err := l.transcript(session)
	if err != nil {
		return err
	}
	out := struct {
		Session  string     `json:"session"`
		Messages []exported `json:"messages"`
	}{Session: session, Messages: make([]exported, 0, len(lines))}
	for _, line := range lines {
		e := exported{Turn: line.Turn, Hidden: line.Hidden, Summary: line.Summary, Message: line.Message}
		if !line.Summary {
			e.Time = line.Time.UTC()
		}
		out.Messages = append(out.Messages, e)
	}
	enc := json.NewEncoder(p.out)
	enc.SetIndent("", "  ")
	return enc.Encode(out)
}

func (p *program) sessionsDelete(cmd *cobra.Command, path, session string) error {
	cfg, err := p.loadFile(path)
	if err != nil {
		return err
	}
	if err := p.look(path, func(l ledger) error {
		_, err := l.transcript(session)
		return err
	}); err != nil {
		return err
	}
	s, err := sqlite.Open(cfg.DataDir, sqlite.Options{})
	if errors.Is(err, sqlite.ErrInUse) {
		return fmt.Errorf("the daemon runs: write /forget in that chat, or stop the daemon first: %w", err)
	}
	if err != nil {
		return err
	}
	_, err = s.Apply(cmd.Context(), store.Tx{Forget: []string{session}})
	if err = errors.Join(err, s.Close()); err != nil {
		return err
	}
	fmt.Fprintf(p.out, "%s is erased\n", printable(session))
	return nil
}
