// Loadtest measures the daemon: the real program, as a process of its own,
// against strict fake platforms and a fake model that live in this process.
//
// Every chat writes a message with a token of its own, waits until the token
// comes back in that chat, and writes the next. A reply that is lost, doubled,
// in the wrong chat or out of order makes the exit code 1. With -bare the same
// is done to a program that makes the same HTTP calls through the same client
// libraries with nothing between, the physical limit on this machine; the two
// run in turns, A B A B.
//
//	go run ./cmd/loadtest -bare -repeat 2          # the figures of the README
//	go run ./cmd/loadtest -chats 20 -bare          # latency when nothing is full
//	go run ./cmd/loadtest -load=false -idle 60s -burst 20 -many 100000
//	go run ./cmd/loadtest -short                   # half a minute, for CI
//
// With -crash the daemon, built with the tag "failpoint", is killed with SIGKILL
// at every point of pkg/failpoint and at random times under load, and started
// again on the same data. Nothing may be lost, misrouted or out of order, no
// tool that must not run twice may do so, and a reply may come twice only on
// Telegram, where its receipt cannot have been on disk. With -disturb it meets
// the troubles of an ordinary year: stops, a model that is away, a platform that
// throttles, fails and cuts connections, a full disk, a clock that jumps.
//
//	go run ./cmd/loadtest -crash                   # 500 kills
//	go run ./cmd/loadtest -crash -kills 30         # for CI
//	go run ./cmd/loadtest -disturb
//	go run ./cmd/loadtest -store memory,fast,full -bare
//
// With -soak it runs for so many turns while a short retention is at work, and
// fails if memory or disk go on growing in the last half of them.
//
//	go run ./cmd/loadtest -soak 100000
//
// The daemon runs with default settings but without rate limits; its log, at
// the default level, goes to a file. It needs Linux: processor time and memory
// are read from /proc.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// bareCommand is the hidden subcommand that is the bare program.
const bareCommand = "bare"

// The ledgers the daemon can be run with.
const (
	storeMemory = "memory"
	storeFast   = "fast"
	storeFull   = "full"
)

func main() {
	ctx := context.Background()
	if len(os.Args) > 1 && os.Args[1] == bareCommand {
		os.Exit(runBare(ctx, os.Args[2:], os.Stderr))
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// loadtest is one invocation.
type loadtest struct {
	chats, discordChats int
	duration            time.Duration
	rounds              []int
	modelDelay          time.Duration
	ahead, history      int
	pasts               []int // messages a chat has behind it when -load begins
	past                int
	store               string   // memory, fast or full
	stores              []string // those -load runs with
	data                string   // the daemon's data folder, "" for one of its own
	doLoad, bare, short bool
	repeat              int
	idle, rest          time.Duration
	burst, many, soak   int
	retention           string // of the daemon's ledger, "" for the defaults
	daemon, failing     string // binaries; failing is the one with fail points
	json                string
	crash, disturb      bool
	kills               int
	seed                uint64
	keep                bool

	dir    string
	errOut io.Writer
	report report
}

// Exit codes.
const (
	exitOK     = 0
	exitFaults = 1 // a reply was lost, doubled, misrouted or misordered, or there is no plateau
	exitBroken = 2 // nothing could be measured
)

// run parses the command line, measures and reports.
func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	l := &loadtest{errOut: errOut}
	if err := l.parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return exitOK
		}
		fmt.Fprintln(errOut, "loadtest:", err)
		return exitBroken
	}
	err := l.measure(ctx)
	l.report.table(out)
	if err == nil && l.json != "" {
		err = l.report.write(l.json, out)
	}
	switch {
	case err != nil:
		fmt.Fprintln(errOut, "loadtest:", err)
		return exitBroken
	case l.report.faulty():
		fmt.Fprintln(errOut, "loadtest: something was seen that must not be, see above")
		return exitFaults
	}
	return exitOK
}

func (l *loadtest) parse(args []string) error {
	f := flag.NewFlagSet("loadtest", flag.ContinueOnError)
	f.SetOutput(l.errOut)
	f.IntVar(&l.chats, "chats", 200, "Telegram chats")
	f.IntVar(&l.discordChats, "discord-chats", 0, "Discord chats beside them (daemon only)")
	f.DurationVar(&l.duration, "duration", 30*time.Second, "measured time of each run")
	rounds := f.String("rounds", "1", "rounds with a tool in a turn, one run for each of a list such as 0,1,3")
	f.DurationVar(&l.modelDelay, "model-delay", 0, "how long the model thinks")
	f.IntVar(&l.ahead, "ahead", 1, "messages a chat has on the way at once")
	f.IntVar(&l.history, "history", 20, "messages of history in a request to the model")
	f.StringVar(&l.store, "store", storeFull, "how the daemon keeps its ledger: memory, fast or full; in -load and -soak also a list of them")
	past := f.String("past", "0", "messages each chat has behind it at the start of -load, also a list to compare (not with memory)")
	f.BoolVar(&l.doLoad, "load", true, "run the load at all")
	f.BoolVar(&l.bare, "bare", false, "measure the bare program too, in turns with the daemon")
	f.IntVar(&l.repeat, "repeat", 1, "runs of each")
	f.BoolVar(&l.short, "short", false, "a quick look at everything, for CI")
	f.DurationVar(&l.idle, "idle", 0, "measure the daemon's memory after being idle this long (60s)")
	f.IntVar(&l.burst, "burst", 0, "so many chats write together to a model that takes a second (20)")
	f.IntVar(&l.many, "many", 0, "so many chats speak once each (100000)")
	f.DurationVar(&l.rest, "rest", 150*time.Second, "how long the daemon gets after -many; its memory manager cleans up every two minutes")
	f.IntVar(&l.soak, "soak", 0, "run so many turns (100000) and watch memory and disk, instead of -load")
	f.BoolVar(&l.crash, "crash", false, "kill the daemon at every fail point and at random times under load, instead of -load")
	f.BoolVar(&l.disturb, "disturb", false, "meet stops, a model that is away, a troubled platform, a full disk and a clock that jumps, instead of -load")
	f.IntVar(&l.kills, "kills", 500, "how often at random times")
	f.Uint64Var(&l.seed, "seed", uint64(time.Now().UnixNano()), "what the times are drawn from")
	f.StringVar(&l.failing, "failing", "", "the binary with fail points (default: build it)")
	f.StringVar(&l.daemon, "daemon", "", "the daemon's binary (default: build it)")
	f.StringVar(&l.json, "json", "", "also write the figures as JSON to this file, or - for standard output")
	f.BoolVar(&l.keep, "keep", false, "keep the working folder with logs and configuration")
	if err := f.Parse(args); err != nil {
		return err //nolint:wrapcheck // the package says it well
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	for name := range strings.SplitSeq(l.store, ",") {
		switch name = strings.TrimSpace(name); name {
		case storeMemory, storeFast, storeFull:
			l.stores = append(l.stores, name)
		default:
			return fmt.Errorf("-store: there is no %q, only memory, fast and full", name)
		}
	}
	l.store = l.stores[len(l.stores)-1]
	if (l.crash || l.disturb) && l.store == storeMemory {
		l.store = storeFull // what dies with the process has nothing to lose
	}
	var err error
	if l.rounds, err = counts(*rounds); err != nil {
		return fmt.Errorf("-rounds: %w", err)
	}
	if l.pasts, err = counts(*past); err != nil {
		return fmt.Errorf("-past: %w", err)
	}
	if l.short {
		l.chats, l.discordChats, l.duration = 20, 0, 3*time.Second
		l.idle, l.burst, l.modelDelay = time.Second, 20, 0
		l.rounds, l.bare, l.repeat = []int{0, 1, 3}, true, 1
	}
	return nil
}

// counts reads a list of numbers.
func counts(list string) (all []int, err error) {
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < 0 {
			return nil, fmt.Errorf("%q is not a number", text)
		}
		all = append(all, n)
	}
	return all, nil
}

// measure runs everything that was asked for. What was measured before an
// error is in the report.
func (l *loadtest) measure(ctx context.Context) (err error) {
	l.dir, err = os.MkdirTemp("", "loadtest-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer func() {
		if l.keep {
			l.note("the working folder is %s", l.dir)
			return
		}
		err = errors.Join(err, os.RemoveAll(l.dir))
	}()
	if l.daemon == "" {
		l.note("building the daemon")
		if l.daemon, err = build(ctx, l.dir, ""); err != nil {
			return err
		}
	}
	if l.ahead < 1 || l.chats < 1 {
		return errors.New("there has to be at least one chat with one message")
	}
	// The daemon runs in a folder of its own.
	if l.daemon, err = filepath.Abs(l.daemon); err != nil {
		return fmt.Errorf("find the daemon: %w", err)
	}
	info, err := os.Stat(l.daemon)
	if err != nil {
		return fmt.Errorf("find the daemon: %w", err)
	}
	l.report.BinaryMB = float64(info.Size()) / (1 << 20)
	return l.runs(ctx)
}

// runs does what was asked for: trouble, or load and single measurements.
func (l *loadtest) runs(ctx context.Context) error {
	if l.crash {
		if err := l.crashes(ctx); err != nil {
			return err
		}
	}
	if l.disturb {
		return l.disturbances(ctx)
	}
	if l.soak > 0 {
		return l.soaks(ctx)
	}
	if l.crash {
		return nil
	}
	if l.doLoad {
		if err := l.loads(ctx); err != nil {
			return err
		}
	}
	return l.singles(ctx)
}

// findFailing builds the daemon with fail points, unless there is one.
func (l *loadtest) findFailing(ctx context.Context) (err error) {
	if l.failing == "" {
		l.note("building the daemon with fail points")
		if l.failing, err = build(ctx, l.dir, "failpoint"); err != nil {
			return err
		}
	}
	if l.failing, err = filepath.Abs(l.failing); err != nil {
		return fmt.Errorf("find the daemon: %w", err)
	}
	return nil
}

// crashes kills the daemon.
func (l *loadtest) crashes(ctx context.Context) error {
	if err := l.findFailing(ctx); err != nil {
		return err
	}
	l.note("%d kills at random times, seed %d", l.kills, l.seed)
	crash, err := l.runCrash(ctx)
	l.report.Crash = &crash
	if err != nil {
		return fmt.Errorf("crash: %w", err)
	}
	const interrupted = 200
	l.note("%d interrupted chats", interrupted)
	resume, err := l.runResume(ctx, interrupted)
	if err != nil {
		return fmt.Errorf("resume: %w", err)
	}
	l.report.Resume = &resume
	return nil
}

// loads runs daemon and bare in turns.
func (l *loadtest) loads(ctx context.Context) error {
	for _, rounds := range l.rounds {
		for range l.repeat {
			if err := l.eachLedger(ctx, rounds); err != nil {
				return err
			}
			if l.bare {
				if err := l.loadOnce(ctx, whoBare, rounds); err != nil {
					return err
				}
			}
		}
	}
	if !l.short {
		return nil
	}
	l.ahead, l.discordChats = 3, 4
	l.note("%s: Discord too, and %d messages ahead in each chat", whoDaemon, l.ahead)
	res, err := l.load(ctx, whoDaemon, 1)
	if err != nil {
		return fmt.Errorf("%s: %w", whoDaemon, err)
	}
	l.report.Ahead = &res
	return nil
}

// eachLedger loads the daemon with each ledger and each past.
func (l *loadtest) eachLedger(ctx context.Context, rounds int) error {
	for _, store := range l.stores {
		for _, past := range l.pasts {
			l.store, l.past = store, past
			if err := l.loadOnce(ctx, whoDaemon, rounds); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *loadtest) loadOnce(ctx context.Context, who string, rounds int) error {
	l.note("%s: %d chats, %d tool rounds, %s", who, l.chats, rounds, l.duration)
	res, err := l.load(ctx, who, rounds)
	if err != nil {
		return fmt.Errorf("%s: %w", who, err)
	}
	l.report.Loads = append(l.report.Loads, res)
	return nil
}

func (l *loadtest) singles(ctx context.Context) error {
	if l.idle > 0 {
		l.note("idle for %s", l.idle)
		res, err := l.runIdle(ctx)
		if err != nil {
			return fmt.Errorf("idle: %w", err)
		}
		l.report.Idle = &res
	}
	if l.burst > 0 {
		l.note("%d chats together", l.burst)
		res, err := l.runBurst(ctx)
		if err != nil {
			return fmt.Errorf("burst: %w", err)
		}
		l.report.Burst = &res
	}
	if l.many > 0 {
		l.note("%d chats once each", l.many)
		res, err := l.runMany(ctx)
		if err != nil {
			return fmt.Errorf("many: %w", err)
		}
		l.report.Many = &res
	}
	return nil
}

// note tells the person who waits.
func (l *loadtest) note(format string, args ...any) {
	fmt.Fprintf(l.errOut, "loadtest: "+format+"\n", args...)
}

// write saves the report as JSON.
func (r *report) write(file string, out io.Writer) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write the figures: %w", err)
	}
	text = append(text, '\n')
	if file == "-" {
		_, err = out.Write(text)
	} else {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write the figures: %w", err)
	}
	return nil
}
