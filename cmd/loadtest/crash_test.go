package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// A reply that came twice has an excuse only around a kill, and only on a
// platform that cannot recognise it.
func TestExcuses(t *testing.T) {
	kill := time.Now()
	at := func(ms int) time.Time { return kill.Add(time.Duration(ms) * time.Millisecond) }
	for name, c := range map[string]struct {
		first, again time.Time
		excused      bool
	}{
		"just before a kill":              {at(-5), at(100), true},
		"on its way when it was killed":   {at(20), at(100), true},
		"long before":                     {at(-2000), at(100), false},
		"twice before":                    {at(-50), at(-5), false},
		"twice after":                     {at(300), at(400), false},
		"at its beginning, soon repeated": {at(0), at(60), true},
	} {
		c1 := crasher{kills: []span{{kill, at(3)}}}
		if _, ok := c1.excused(c.first, c.again); ok != c.excused {
			t.Errorf("%s: excused %t", name, ok)
		}
	}

	names := make([]string, crashTelegram+1)
	for i := range names {
		names[i] = token(i, 0)
	}
	b := newBook(names)
	for _, chat := range []int{0, crashTelegram} {
		b.ask(chat)
		b.heard(names[chat], token(chat, 0), at(-5))
		b.heard(names[chat], token(chat, 0), at(100))
	}
	c := crasher{r: &rig{book: b}, kills: []span{{kill, kill}}}
	c.res.Faults, _ = b.close()
	c.excuses()
	if c.res.Excused != 1 || c.res.Faults.Doubled != 1 || c.res.Longest != 5 || len(c.res.Notes) != 1 {
		t.Errorf("%+v", c.res)
	}
	if !c.res.bad() {
		t.Error("a doubled reply on Discord is no fault")
	}
}

func TestOpenBefore(t *testing.T) {
	b := newBook([]string{"a", "b"})
	b.ask(0)
	b.ask(1)
	mark := b.mark()
	b.ask(1)
	b.heard("a", token(0, 0), time.Now())
	if n, some := b.openBefore(mark); n != 1 || !reflect.DeepEqual(some, []string{token(1, 0)}) {
		t.Errorf("%d open: %v", n, some)
	}
}

// A tool that ran twice is found by its call, and by what it was run for.
func TestCounts(t *testing.T) {
	for text, want := range map[string]int{
		"k1 7 tok0n0z\nk2 7 tok0n1ztok0n2z\nk3 8 tok1n0z\n": 0,
		"k1 7 tok0n0z\nk1 8 tok0n0z\n":                      1,
		"k1 7 tok0n0z\nk2 8 tok0n0z\n":                      1,
		"k1 7 tok0n0ztok0n1z\nk2 8 tok0n1z\n":               1,
	} {
		c := crasher{counts: filepath.Join(t.TempDir(), "counts")}
		if err := os.WriteFile(c.counts, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := c.readCounts(); err != nil || c.res.Repeated != want || c.res.Counted != strings.Count(text, "\n") {
			t.Errorf("%q: %d repeated of %d, %v", text, c.res.Repeated, c.res.Counted, err)
		}
	}
}
