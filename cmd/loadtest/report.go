package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// report is everything that was measured.
type report struct {
	BinaryMB float64      `json:"binary_mb"`
	Loads    []loadResult `json:"loads,omitempty"`
	Ahead    *loadResult  `json:"ahead,omitempty"` // a short look at several messages on the way
	Idle     *idleResult  `json:"idle,omitempty"`
	Burst    *burstResult `json:"burst,omitempty"`
	Many     *manyResult  `json:"many,omitempty"`
	Soaks    []soakResult `json:"soaks,omitempty"`

	Crash  *crashResult  `json:"crash,omitempty"`
	Resume *resumeResult `json:"resume,omitempty"`

	Troubles []troubleResult `json:"troubles,omitempty"`
}

// faulty reports whether the daemon did something it must never do. The bare
// program promises nothing.
func (r *report) faulty() bool {
	for _, l := range r.all() {
		if l.Who == whoDaemon && (l.Faults.any() || l.Refused > 0 || l.Turns == 0) {
			return true
		}
	}
	if r.Crash != nil && r.Crash.bad() || r.Resume != nil && r.Resume.Faults.any() {
		return true
	}
	if slices.ContainsFunc(r.Troubles, func(t troubleResult) bool { return t.Failed != "" }) {
		return true
	}
	if slices.ContainsFunc(r.Soaks, func(s soakResult) bool { return s.bad() }) {
		return true
	}
	return r.Burst != nil && r.Burst.Faults.any() || r.Many != nil && r.Many.Faults.any()
}

func (r *report) all() []loadResult {
	if r.Ahead == nil {
		return r.Loads
	}
	return append(slices.Clip(r.Loads), *r.Ahead)
}

// table writes the figures for people.
func (r *report) table(out io.Writer) {
	if r.BinaryMB > 0 {
		fmt.Fprintf(out, "binary %.1f MB\n", r.BinaryMB)
	}
	if len(r.Loads) > 0 {
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(w, "program\tstore\tchats\tahead\trounds\tturns\tturns/s\tCPU ms/turn\tp50 ms\tp99 ms\tmax ms\trequest B\tRSS start\tRSS load\tto poll ms\tto ready ms\t faults\t")
		for _, l := range r.all() {
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%.0f\t%.3f\t%.1f\t%.1f\t%.1f\t%d\t%.1f\t%.1f\t%.0f\t%.0f\t %s\t\n",
				l.Who, l.Store, l.Chats, l.Ahead, l.Rounds, l.Turns, l.TurnsPerSec, l.CPUPerTurn, l.P50, l.P99, l.Max, l.RequestBytes,
				l.Start.RSS, l.Load.RSS, l.ToPoll, l.ToReady, l.Faults)
		}
		_ = w.Flush() // as little to do about it as about any other print
		r.ratios(out)
	}
	if i := r.Idle; i != nil {
		fmt.Fprintf(out, "idle %.0f s: VmRSS %.1f MB, RssAnon %.1f MB, %d threads, CPU %.0f ms since start; first poll %.0f ms, ready %.0f ms after start\n",
			i.Seconds, i.RSS, i.Anon, i.Threads, i.CPU, i.ToPoll, i.ToReady)
	}
	if b := r.Burst; b != nil {
		fmt.Fprintf(out, "burst of %d chats, model %.0f ms: p50 %.0f ms, p99 %.0f ms, max %.0f ms; %s\n",
			b.Chats, b.Delay, b.P50, b.P99, b.Max, b.Faults)
	}
	r.crashes(out)
	r.troubled(out)
	r.soaked(out)
	if m := r.Many; m != nil {
		fmt.Fprintf(out, "%d chats once each in %.0f s: RssAnon %.1f MB before, %.1f MB at the end, %.1f MB after a rest (%.0f bytes a chat), threads %d to %d; %s\n",
			m.Chats, m.Seconds, m.Before.Anon, m.Peak.Anon, m.After.Anon, m.PerChat, m.Before.Threads, m.After.Threads, m.Faults)
	}
}

// crashes writes what became of everything under kills.
func (r *report) crashes(out io.Writer) {
	if c := r.Crash; c != nil {
		fmt.Fprintf(out, "crash: %d kills at random, %d at fail points, %d messages: %s; doubled with an excuse %d (up to %.0f ms before the kill), logged as possible %d; %d runs of a tool that must not run twice, %d repeated; longest recovery %.0f ms\n",
			c.Kills, c.Points, c.Asked, c.Faults, c.Excused, c.Longest, c.Logged, c.Counted, c.Repeated, c.Recovery)
		for _, note := range c.Notes {
			fmt.Fprintln(out, "  "+note)
		}
	}
	if c := r.Resume; c != nil {
		fmt.Fprintf(out, "resume: %d interrupted chats: ready after %.0f ms, first answer after %.0f ms, all after %.0f ms; %s\n",
			c.Chats, c.ToReady, c.First, c.All, c.Faults)
	}
}

// troubled writes how the troubles of an ordinary year were borne.
func (r *report) troubled(out io.Writer) {
	for _, t := range r.Troubles {
		outcome := "ok"
		if t.Failed != "" {
			outcome = "FAILED: " + t.Failed
		}
		fmt.Fprintf(out, "%s: %s; %d messages, %s; doubled with an excuse %d, logged as possible %d\n",
			t.Name, outcome, t.Asked, t.Faults, t.Excused, t.Logged)
		for _, note := range t.Notes {
			fmt.Fprintln(out, "  "+note)
		}
	}
}

// ratios compares each ledger with the bare program and with the first ledger
// of the list, by the mean of their runs.
func (r *report) ratios(out io.Writer) {
	var rounds []int
	var stores []string
	for _, l := range r.Loads {
		if !slices.Contains(rounds, l.Rounds) {
			rounds = append(rounds, l.Rounds)
		}
		if l.Who == whoDaemon && !slices.Contains(stores, l.Store) {
			stores = append(stores, l.Store)
		}
	}
	for _, n := range rounds {
		for _, store := range stores {
			daemon := r.mean(whoDaemon, store, n)
			r.ratio(out, n, store, daemon, "bare", r.mean(whoBare, "", n))
			if store != stores[0] {
				r.ratio(out, n, store, daemon, stores[0], r.mean(whoDaemon, stores[0], n))
			}
		}
	}
}

func (r *report) ratio(out io.Writer, rounds int, store string, daemon loadResult, name string, other loadResult) {
	if daemon.Turns == 0 || other.Turns == 0 {
		return
	}
	fmt.Fprintf(out, "%d rounds, %s: %.0f %% of %s's turns/s, CPU %+.3f ms a turn, p50 %+.1f ms, p99 %+.1f ms\n",
		rounds, store, 100*daemon.TurnsPerSec/other.TurnsPerSec, name, daemon.CPUPerTurn-other.CPUPerTurn,
		daemon.P50-other.P50, daemon.P99-other.P99)
}

func (r *report) mean(who, store string, rounds int) (m loadResult) {
	n := 0.0
	for _, l := range r.Loads {
		if l.Who != who || l.Store != store || l.Rounds != rounds {
			continue
		}
		n++
		m.Turns += l.Turns
		m.TurnsPerSec += l.TurnsPerSec
		m.CPUPerTurn += l.CPUPerTurn
		m.P50 += l.P50
		m.P99 += l.P99
	}
	if n > 0 {
		m.TurnsPerSec, m.CPUPerTurn, m.P50, m.P99 = m.TurnsPerSec/n, m.CPUPerTurn/n, m.P50/n, m.P99/n
	}
	return m
}
