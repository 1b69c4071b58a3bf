package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/dragoman-chat/dragoman/channels/telegram/telegramtest"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/providerstest"
)

// While a daemon works its ledger can be read and copied, and what would change
// it is refused.
func TestInspectionBesideADaemon(t *testing.T) {
	w := newWorld(t, func(r providerstest.Request) providerstest.Response {
		if r.Last().Role == providers.RoleTool {
			return providerstest.Text("all listed")
		}
		return providerstest.Calls(providerstest.Call{Name: "list_dir", Arguments: `{"path":"."}`})
	})
	w.run()
	u := w.telegram.AddUser("Ann", "ann")
	at := fmt.Sprint("telegram:", u.ID)
	w.telegram.Post(telegramtest.Message{From: &u, Chat: w.telegram.Private(u), Text: "what is there?"})
	w.await(func(seen map[string][]string) bool { return len(seen[at]) == 1 })

	c := &scene{t: t, dir: w.app.cfg.DataDir, file: w.app.cfg.Path()}
	if code, text := c.run("sessions", "list"); code != 0 || !strings.Contains(text, at+"  4") {
		t.Errorf("%d, %s", code, text)
	}
	if code, text := c.run("sessions", "delete", at); code != exitTaken || !strings.Contains(text, "/forget") {
		t.Errorf("%d, %s", code, text)
	}
	code, text := c.run("why", "all listed")
	if code != exitFailure || !strings.Contains(text, "leaves no trace by design") {
		t.Errorf("%d, %s", code, text)
	}
	message := regexp.MustCompile(`m:\d+:(\d+)`)
	_, text = c.run("sessions", "export", at)
	turn := regexp.MustCompile(`"turn": "([^"]+)"`).FindStringSubmatch(text)
	if turn == nil {
		t.Fatal(text)
	}
	code, text = c.run("why", turn[1])
	for _, want := range []string{"admitted m:", "the turn began", "calls list_dir", "of list_dir ended", `"all listed"`, "to be sent"} {
		if code != 0 || !strings.Contains(text, want) {
			t.Errorf("%d, no %q in\n%s", code, want, text)
		}
	}
	if id := message.FindStringSubmatch(text); id == nil {
		t.Errorf("no message is named in\n%s", text)
	} else if code, again := c.run("why", at+":"+id[1]); code != 0 || !strings.HasPrefix(again, "turn "+turn[1]) {
		t.Errorf("%d, %s", code, again)
	}
	backup := filepath.Join(t.TempDir(), "backup.db")
	if code, text := c.run("backup", backup); code != 0 {
		t.Errorf("%d, %s", code, text)
	}
	if code, text := c.run("restore", backup); code != exitTaken || !strings.Contains(text, "uses the data directory") {
		t.Errorf("%d, %s", code, text)
	}
}
