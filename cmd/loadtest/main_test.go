package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// The test binary is the bare program, too, as the real one is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == bareCommand {
		os.Exit(runBare(context.Background(), os.Args[2:], os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

func TestTokens(t *testing.T) {
	for text, want := range map[string][][2]int{
		"":                                   nil,
		"no token here":                      nil,
		token(3, 17):                         {{3, 17}},
		"a" + token(0, 0) + token(1, 2):      {{0, 0}, {1, 2}},
		"tok tok1 tok1n tok1n2 toktok5n6z":   {{5, 6}},
		"token tok-1n2z tok1nz tokn1z":       nil,
		"tok99999999999999999999n1z tok1n2z": {{1, 2}},
	} {
		if got := tokens(text); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

// Each fault a program can commit is found, and nothing else.
func TestBookFindsFaults(t *testing.T) {
	for name, c := range map[string]struct {
		play func(*book)
		want faults
	}{
		"all well": {func(b *book) {
			for n := range 3 {
				b.heard("a", "x "+token(0, n), time.Now())
				b.heard("b", token(1, n)+"!", time.Now())
			}
		}, faults{}},
		"lost": {func(b *book) {
			b.heard("a", token(0, 0)+token(0, 1)+token(0, 2), time.Now())
			b.heard("b", token(1, 1)+token(1, 2), time.Now())
		}, faults{Lost: 1}},
		"doubled": {func(b *book) {
			b.heard("a", token(0, 0)+token(0, 1)+token(0, 2)+token(0, 1), time.Now())
			b.heard("b", token(1, 0)+token(1, 1)+token(1, 2), time.Now())
		}, faults{Doubled: 1}},
		"misrouted": {func(b *book) {
			b.heard("a", token(0, 0)+token(0, 1)+token(0, 2)+token(1, 0), time.Now())
			b.heard("b", token(1, 1)+token(1, 2), time.Now())
			b.heard("stranger", token(0, 0), time.Now())
		}, faults{Misrouted: 2, Lost: 1}},
		"never asked": {func(b *book) {
			b.heard("a", token(0, 0)+token(0, 1)+token(0, 2)+token(0, 3), time.Now())
			b.heard("b", token(1, 0)+token(1, 1)+token(1, 2), time.Now())
		}, faults{Misrouted: 1}},
		"misordered": {func(b *book) {
			b.heard("a", token(0, 0)+token(0, 2)+token(0, 1), time.Now())
			b.heard("b", token(1, 0)+token(1, 1)+token(1, 2), time.Now())
		}, faults{Misordered: 1}},
		"stray": {func(b *book) {
			b.heard("a", token(0, 0)+token(0, 1)+token(0, 2), time.Now())
			b.heard("b", token(1, 0)+token(1, 1), time.Now())
			b.heard("b", "Something went wrong.", time.Now())
		}, faults{Lost: 1, Stray: 1}},
	} {
		b := newBook([]string{"a", "b"})
		for chat := range 2 {
			for range 3 {
				b.ask(chat)
			}
		}
		c.play(b)
		if got, _ := b.close(); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

func TestBookMeasuresFromServing(t *testing.T) {
	b := newBook([]string{"a"})
	start := time.Now()
	for n := range 100 {
		b.ask(0)
		b.served(`[{"text":"hello `+token(0, n)+`"}]`, start)
	}
	b.count(true)
	for n := range 100 {
		b.heard("a", token(0, n), start.Add(time.Duration(n+1)*time.Millisecond))
	}
	if n := b.count(false); n != 100 {
		t.Errorf("%d answers counted", n)
	}
	if got, want := b.latency(), (latency{P50: 50, P99: 99, Max: 100}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func writeTemplate(t *testing.T, dir string) {
	t.Helper()
	text, err := json.Marshal(template{System: "Be brief.", Tools: []providers.ToolDefinition{{
		Type: "function", Function: providers.ToolFunctionDefinition{
			Name: toolName, Description: "List files.", Parameters: map[string]any{
				"type": "object", "properties": map[string]any{"path": map[string]any{"type": "string"}},
			},
		},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "template-1.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// The rig and the bare program understand each other: what the daemon is
// measured against does real work and commits no fault.
func TestBareRun(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("the rig reads /proc, which this system does not have")
	}
	var notes strings.Builder
	l := &loadtest{chats: 8, ahead: 1, duration: 500 * time.Millisecond, history: 12, dir: t.TempDir(), errOut: &notes}
	writeTemplate(t, l.dir)
	res, err := l.load(t.Context(), whoBare, 1)
	if err != nil {
		t.Fatal(err)
	}
	if res.Faults.any() || res.Refused > 0 || notes.Len() > 0 {
		t.Errorf("faults: %v, %d refused requests, notes: %s", res.Faults, res.Refused, notes.String())
	}
	if res.Turns < 10 || res.P50 <= 0 || res.P99 < res.P50 || res.Load.RSS <= 0 || res.ToPoll <= 0 {
		t.Errorf("figures that cannot be: %+v", res)
	}
	t.Logf("%+v", res)
}

func TestCommandLine(t *testing.T) {
	for args, want := range map[string]string{
		"-rounds x":   "not a number",
		"-rounds -1":  "not a number",
		"-store disk": "no \"disk\"",
		"stray":       "unexpected argument",
		"-unknown":    "not defined",
		"-duration 3": "invalid value",
	} {
		var out, errOut strings.Builder
		if code := run(t.Context(), strings.Fields(args), &out, &errOut); code != exitBroken || !strings.Contains(errOut.String(), want) {
			t.Errorf("%s: exit code %d, %q", args, code, errOut.String())
		}
	}
	l := &loadtest{errOut: &strings.Builder{}}
	if err := l.parse([]string{"-rounds", "0, 1,3", "-store", "memory, fast"}); err != nil || !reflect.DeepEqual(l.stores, []string{storeMemory, storeFast}) || !reflect.DeepEqual(l.rounds, []int{0, 1, 3}) {
		t.Errorf("rounds %v, %v", l.rounds, err)
	}
}

func TestReport(t *testing.T) {
	r := &report{BinaryMB: 17.25, Loads: []loadResult{
		{Who: whoDaemon, Store: storeFull, Rounds: 1, Turns: 70, TurnsPerSec: 70, CPUPerTurn: 0.6},
		{Who: whoBare, Rounds: 1, Turns: 100, TurnsPerSec: 100, CPUPerTurn: 0.4, Faults: faults{Lost: 1}},
	}}
	var out strings.Builder
	r.table(&out)
	for _, want := range []string{"binary 17.2 MB", "1 rounds, full: 70 % of bare's turns/s, CPU +0.200 ms a turn", "1 lost"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
	if r.faulty() {
		t.Error("a fault of the bare program counts")
	}
	r.Loads[0].Faults.Doubled = 1
	if !r.faulty() {
		t.Error("a doubled reply of the daemon does not count")
	}
	file := filepath.Join(t.TempDir(), "figures.json")
	if err := r.write(file, &out); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var back report
	if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(&back, r) {
		t.Errorf("read back %+v, %v", back, err)
	}
}
