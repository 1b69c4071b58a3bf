package main

import (
	"bufio"
	"net/http/httptest"
	"regexp"
	"testing"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/providers/providerstest"
)

// The page of metrics says what has happened, in a form that can be read: each
// family with its help and type, once, before its values.
func TestMetrics(t *testing.T) {
	w := newWorld(t, func(providerstest.Request) providerstest.Response { return providerstest.Text("hello") })
	w.run()
	chat, say := w.browser()
	say("hi")
	w.await(func(seen map[string][]string) bool { return len(seen[chat]) > 0 })

	line := regexp.MustCompile(`^(dragoman_[a-z_]+_total)(?:\{outcome="[a-z_]+"\})? (\d+)$`)
	about := regexp.MustCompile(`^# (HELP|TYPE) (dragoman_[a-z_]+_total) (.+)$`)
	read := func() map[string]string {
		page := httptest.NewRecorder()
		w.app.metrics().ServeHTTP(page, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
		values, told := map[string]string{}, map[string]string{}
		for lines := bufio.NewScanner(page.Body); lines.Scan(); {
			text := lines.Text()
			if m := about.FindStringSubmatch(text); m != nil {
				if told[m[2]+m[1]] != "" || m[1] == "TYPE" && m[3] != "counter" {
					t.Errorf("%q comes twice, or is no counter", text)
				}
				told[m[2]+m[1]] = m[3]
				continue
			}
			m := line.FindStringSubmatch(text)
			if m == nil || told[m[1]+"HELP"] == "" || told[m[1]+"TYPE"] == "" {
				t.Fatalf("cannot read %q", text)
			}
			values[text[:len(text)-len(m[2])-1]] = m[2]
		}
		return values
	}
	got := read()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for got["dragoman_sends_total"] != "1" || got[`dragoman_turns_total{outcome="done"}`] != "1" { // seen comes before counted
		select {
		case <-tick.C:
			got = read()
		case <-deadline:
			t.Fatalf("found %v", got)
		}
	}
	for name, n := range map[string]string{
		"dragoman_messages_admitted_total": "1", "dragoman_messages_duplicate_total": "0",
		`dragoman_turns_total{outcome="failed"}`: "0", "dragoman_sends_given_up_total": "0",
	} {
		if got[name] != n {
			t.Errorf("%s is %q, want %s", name, got[name], n)
		}
	}
}
