package main

import (
	"bufio"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/providers/providerstest"
)

// The page of metrics says what has happened: everything that is counted
// anywhere in the daemon reaches it.
func TestMetrics(t *testing.T) {
	w := newWorld(t, func(providerstest.Request) providerstest.Response { return providerstest.Text("hello") })
	w.run()
	chat, say := w.browser()
	say("hi")
	w.await(func(seen map[string][]string) bool { return len(seen[chat]) > 0 })

	read := func() map[string]string {
		page := httptest.NewRecorder()
		w.app.metrics.Handler().ServeHTTP(page, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
		values := map[string]string{}
		for lines := bufio.NewScanner(page.Body); lines.Scan(); {
			if i := strings.LastIndexByte(lines.Text(), ' '); lines.Text()[0] != '#' {
				values[lines.Text()[:i]] = lines.Text()[i+1:]
			}
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
		"dragoman_messages_waiting": "0", "dragoman_tool_lock_waits_total": "0",
		`dragoman_turn_duration_seconds_count{outcome="done"}`:                  "1",
		`dragoman_model_call_duration_seconds_count{model="main",outcome="ok"}`: "1",
		`dragoman_send_duration_seconds_count{channel="webchat",outcome="ok"}`:  "1",
	} {
		if got[name] != n {
			t.Errorf("%s is %q, want %s", name, got[name], n)
		}
	}
}
