package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/dragoman-chat/dragoman/channels/telegram/telegramtest"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/providerstest"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

var readOnIn = regexp.MustCompile(`call read_result with (\{.*?\})`)

// A result that was cut is read on in a later turn, out of the ledger, and what
// was sent for it is sent again by a replay.
func TestALongResultIsReadOnInTheNextTurn(t *testing.T) {
	var mu sync.Mutex
	var part string
	w := newWorld(t, func(r providerstest.Request) providerstest.Response {
		last := r.Last()
		switch {
		case last.Role == providers.RoleTool && strings.HasPrefix(last.Content, "["):
			return providerstest.Text("so it begins")
		case last.Role == providers.RoleTool:
			mu.Lock()
			defer mu.Unlock()
			part = last.Content
			return providerstest.Text("so it goes on")
		case last.Content == "read it":
			return providerstest.Calls(providerstest.Call{Name: "read_file", Arguments: `{"path":"big.json"}`})
		}
		for _, m := range slices.Backward(r.Messages) {
			if args := readOnIn.FindStringSubmatch(m.Content); args != nil {
				return providerstest.Calls(providerstest.Call{Name: "read_result", Arguments: args[1]})
			}
		}
		return providerstest.Text("no notice is in sight")
	})
	u := w.telegram.AddUser("Ann", "ann")
	at := fmt.Sprint("telegram:", u.ID)
	dir, err := w.app.workspace(tools.Call{Channel: "telegram", ChatID: fmt.Sprint(u.ID)})
	if err != nil {
		t.Fatal(err)
	}
	var line strings.Builder
	line.WriteString("[")
	for i := range 20_000 {
		fmt.Fprintf(&line, `%d,"ü",`, i)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "big.json"), []byte(line.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	w.run()
	for i, text := range []string{"read it", "and then?"} {
		w.telegram.Post(telegramtest.Message{From: &u, Chat: w.telegram.Private(u), Text: text})
		w.await(func(seen map[string][]string) bool { return len(seen[at]) == i+1 })
	}
	w.await(func(seen map[string][]string) bool {
		return slices.Equal(seen[at], []string{"so it begins", "so it goes on"})
	})
	mu.Lock()
	text, note, _ := strings.Cut(part, "\n[These are bytes ")
	mu.Unlock()
	var from, to int
	if _, err := fmt.Sscanf(note, "%d to %d", &from, &to); err != nil || from < 10_000 || to-from < 10_000 || line.String()[from:to] != text {
		t.Errorf("%v: bytes %d to %d, %d bytes: %.200q", err, from, to, len(text), note)
	}

	c := &scene{t: t, dir: w.app.cfg.DataDir, file: w.app.cfg.Path()}
	_, exported := c.run("sessions", "export", at)
	turns := regexp.MustCompile(`"turn": "([^"]+)"`).FindAllStringSubmatch(exported, -1)
	if len(turns) == 0 {
		t.Fatal(exported)
	}
	for _, turn := range [][]string{turns[0], turns[len(turns)-1]} {
		if code, text := c.run("replay", turn[1]); code != 0 || !strings.Contains(text, "2 of 2 requests are alike") {
			t.Errorf("%d, %s", code, text)
		}
	}
}
