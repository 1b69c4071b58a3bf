package offline_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the zones do not depend on the machine

	"go.uber.org/goleak"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/offline"
	"github.com/dragoman-chat/dragoman/pkg/providers/providerstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func noon() time.Time { return time.Date(2026, 11, 27, 17, 30, 5, 0, time.UTC) }

func TestKit(t *testing.T) {
	providerstest.RunBasics(t, offline.New(), "")
}

// all are the tools of a conversation of its own.
var all = []string{"list_dir", "message", "read_file", "remind", "spawn", "write_file"}

func definitions(names ...string) []providers.ToolDefinition {
	defs := make([]providers.ToolDefinition, len(names))
	for i, n := range names {
		defs[i] = providers.ToolDefinition{Type: "function", Function: providers.ToolFunctionDefinition{Name: n}}
	}
	return defs
}

const (
	direct = "You are Dragoman.\n\nThis is a direct conversation on webchat. Today is Friday, 27 November 2026 (Europe/Berlin)."
	group  = "You are Dragoman.\n\nThis is a group on telegram. Today is Friday, 27 November 2026 (Europe/Berlin)."
	task   = "You work on one task in the background for an assistant in a chat. Do the task."
)

func chat(t *testing.T, system, text string, tools ...string) *providers.LLMResponse {
	t.Helper()
	messages := []providers.Message{{Role: providers.RoleUser, Content: text}}
	if system != "" {
		messages = append([]providers.Message{{Role: providers.RoleSystem, Content: system}}, messages...)
	}
	resp, err := offline.New(offline.WithClock(noon)).Chat(t.Context(), messages, definitions(tools...), "", nil)
	if err != nil {
		t.Fatalf("Chat: %v", err)
	}
	return resp
}

type args = map[string]any

func TestPhrasesCallTools(t *testing.T) {
	cases := []struct {
		text string
		tool string
		args args
	}{
		{"read notes.txt", "read_file", args{"path": "notes.txt"}},
		{"Read \"my notes.txt\"", "read_file", args{"path": "my notes.txt"}},
		{"please read `a/b.md`", "read_file", args{"path": "a/b.md"}},
		{"list files", "list_dir", args{}},
		{"List files!", "list_dir", args{}},
		{"ls", "list_dir", args{}},
		{"ls sub/dir", "list_dir", args{"path": "sub/dir"}},
		{"list files in sub", "list_dir", args{"path": "sub"}},
		{"write a.txt: hello: world\nsecond line", "write_file", args{"path": "a.txt", "content": "hello: world\nsecond line"}},
		{"remind me in 5 seconds to stretch", "remind", args{"action": "set", "delay": "5 seconds", "text": "stretch"}},
		{"Remind me at 18:30 to go to the shop", "remind", args{"action": "set", "at": "18:30", "text": "go to the shop"}},
		{"remind me to look at the oven in 10 minutes", "remind", args{"action": "set", "delay": "10 minutes", "text": "look at the oven"}},
		{"remind me to call home at 9:00", "remind", args{"action": "set", "at": "9:00", "text": "call home"}},
		{"remind me at 2026-12-01 09:00 that the rent is due", "remind", args{"action": "set", "at": "2026-12-01 09:00", "text": "the rent is due"}},
		{"remind me in 5 seconds", "remind", args{"action": "set", "delay": "5 seconds", "text": "the time you asked for has come"}},
		{"list reminders", "remind", args{"action": "list"}},
		{"cancel reminder ab12cd34", "remind", args{"action": "cancel", "id": "ab12cd34"}},
		{"tell telegram:-100123/42 hello there: you", "message", args{"channel": "telegram", "chat_id": "-100123/42", "content": "hello there: you"}},
		{"tell me something", "message", args{"content": "something"}},
		{"in the background read notes.txt", "spawn", args{"task": "read notes.txt"}},
		{"background count sheep", "spawn", args{"task": "count sheep"}},
		{"In the background: ls", "spawn", args{"task": "ls"}},
		{"@dragoman_bot ls", "list_dir", args{}},
		{"<@123456> ls", "list_dir", args{}},
		{"ls @dragoman_bot", "list_dir", args{}},
		{"[in reply to Ann, who wrote:]\n> read this\n> and that\nls", "list_dir", args{}},
		{"[a photo is attached, which you cannot see]\nls", "list_dir", args{}},
	}
	for _, c := range cases {
		t.Run(c.text, func(t *testing.T) {
			inGroup := "Ann B: " + c.text
			if i := strings.LastIndex(c.text, "]\n"); i >= 0 { // the name stands before the message itself
				at := strings.LastIndex(c.text, "\n") + 1
				inGroup = c.text[:at] + "Ann B: " + c.text[at:]
			}
			for system, text := range map[string]string{direct: c.text, group: inGroup, task: c.text, "": c.text} {
				resp := chat(t, system, text, all...)
				if len(resp.ToolCalls) != 1 || resp.FinishReason != providers.FinishToolCalls {
					t.Fatalf("%q gave %+v, want a call of %s", text, resp, c.tool)
				}
				call := resp.ToolCalls[0]
				if call.Name != c.tool || !reflect.DeepEqual(call.Arguments, c.args) || call.ID == "" || call.Type != "function" {
					t.Errorf("%q gave %+v, want %s with %v", text, call, c.tool, c.args)
				}
				var wire args
				if err := json.Unmarshal([]byte(call.Function.Arguments), &wire); err != nil || !reflect.DeepEqual(wire, c.args) {
					t.Errorf("%q has the wire form %s, %v", text, call.Function.Arguments, err)
				}
				// Without the tool it says so.
				if resp := chat(t, system, text, "now"); len(resp.ToolCalls) != 0 || !strings.Contains(resp.Content, "`"+c.tool+"`") || !strings.Contains(resp.Content, "not available") {
					t.Errorf("without %s, %q gave %+v", c.tool, text, resp)
				}
			}
		})
	}
}

func TestPhrasesAnswer(t *testing.T) {
	const done = "[The background task \"count sheep\" has finished. Give its result to the person who asked for it:]\n"
	cases := []struct {
		system, text string
		want         string
	}{
		{direct, "what time is it?", "It is 18:30:05 on Friday, 27 November 2026 (Europe/Berlin)."},
		{group, "Ann: what time is it", "It is 18:30:05 on Friday, 27 November 2026 (Europe/Berlin)."},
		{"", "time", "It is "},
		{direct, "echo  Hello, World: x", "Hello, World: x"},
		{group, "Ann: @bot echo hi there", "hi there"},
		{direct, "help", "not a language model"},
		{direct, "Help!", "**remind me"},
		{direct, "why is the sky blue?", "not a language model"},
		{direct, "why is the sky blue?", "`models`"},
		{direct, "", "**help**"},
		{direct, "write nothing", "Write it like this"},
		{direct, "tell nobody", "Write it like this"},
		{direct, "tell telegram: hi", "Write it like this"},
		{direct, "remind me to breathe", "Say when"},
		{direct, done + "4711 sheep\nand a wolf", "The background task \"count sheep\" is done.\n\n4711 sheep\nand a wolf"},
		{direct, "[The background task has finished. Give its result to the person who asked for it:]\nx", "The background task is done.\n\nx"},
		{direct, "[The background task \"count sheep\" failed. Tell the person who asked for it what happened:]\nno sheep", "The background task \"count sheep\" failed: no sheep"},
		{task, "count sheep", "The background task \"count sheep\" ran to its end."},
		{task, "echo 1", "1"},
		{direct, "time\necho two", "It is 18:30:05 on Friday, 27 November 2026 (Europe/Berlin).\n\ntwo"},
		{direct, "echo one\ntwo", "one\ntwo"},
	}
	for _, c := range cases {
		resp := chat(t, c.system, c.text, all...)
		if !strings.Contains(resp.Content, c.want) || len(resp.ToolCalls) != 0 || resp.FinishReason != providers.FinishStop {
			t.Errorf("%q gave %+v, want %q", c.text, resp, c.want)
		}
	}
}

func TestSeveralMessagesAreAllAnswered(t *testing.T) {
	resp := chat(t, direct, "time\nls\nread a.txt", all...)
	if len(resp.ToolCalls) != 2 || resp.ToolCalls[0].Name != "list_dir" || resp.ToolCalls[1].Name != "read_file" || !strings.HasPrefix(resp.Content, "It is ") {
		t.Fatalf("got %+v", resp)
	}
	if resp.ToolCalls[0].ID == resp.ToolCalls[1].ID {
		t.Error("two calls have the same id")
	}
}

// ask plays a turn with one tool result.
func ask(t *testing.T, text, result string) string {
	t.Helper()
	p := offline.New(offline.WithClock(noon))
	messages := []providers.Message{{Role: providers.RoleSystem, Content: direct}, {Role: providers.RoleUser, Content: text}}
	resp, err := p.Chat(t.Context(), messages, definitions(all...), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	messages = append(messages, providers.Message{Role: providers.RoleAssistant, Content: resp.Content, ToolCalls: resp.ToolCalls})
	for _, c := range resp.ToolCalls {
		messages = append(messages, providers.Message{Role: providers.RoleTool, Content: result, ToolCallID: c.ID})
	}
	// Also without tools: that is how the last request of a long turn comes.
	last, err := p.Chat(t.Context(), messages, nil, "", nil)
	if err != nil || len(last.ToolCalls) != 0 || last.FinishReason != providers.FinishStop {
		t.Fatalf("after the result: %+v, %v", last, err)
	}
	return last.Content
}

func TestResultsInWords(t *testing.T) {
	cases := []struct{ text, result, want string }{
		{"read a.txt", "hello\n", "a.txt:\n```\nhello\n```"},
		{"read a.md", "```go\nx\n```", "a.md:\n````\n```go\nx\n```\n````"},
		{"read a.txt", `"a.txt" does not exist. List its folder to see what there is.`, `"a.txt" does not exist. List its folder to see what there is.`},
		{"ls", "The workspace is empty.", "The workspace is empty."},
		{"ls", "a.txt (5 bytes)\nsub/", "a.txt (5 bytes)\nsub/"},
		{"write a.txt: x", `"a.txt" is written, 1 bytes.`, `"a.txt" is written, 1 bytes.`},
		{"tell discord:7 hi", "Delivered to discord:7. Whoever reads there has already seen the text.", "I have sent it to discord:7."},
		{"tell discord:7 hi", "Nothing was sent to discord:7: only an owner may.", "Nothing was sent to discord:7: only an owner may."},
		{"tell me hi", "Delivered. The person has already seen this text here: do not repeat it in your answer.", "Sent."},
		{"tell me hi", "Queued for web:1: it is stored.", "It is on its way and will be delivered as soon as possible."},
		{"background count sheep.", "Started in the background: count sheep. The result will come back.", "I have started that in the background: count sheep. The result will come here by itself."},
		{"background x", "Too many tasks are running.", "Too many tasks are running."},
		{"remind me in 5s to stretch", "Reminder x is set for noon: stretch", "Reminder x is set for noon: stretch"},
		{"ls", "", "Done."},
		{"time\nls", "sub/", "It is 18:30:05 on Friday, 27 November 2026 (Europe/Berlin).\n\nsub/"},
	}
	for _, c := range cases {
		if got := ask(t, c.text, c.result); got != c.want {
			t.Errorf("%q with the result %q answers %q, want %q", c.text, c.result, got, c.want)
		}
	}
}

// The same conversation gives the same reply, another one other call ids.
func TestDeterministic(t *testing.T) {
	p := offline.New(offline.WithClock(noon))
	ids := make(map[string]bool)
	var messages []providers.Message
	for i := range 100 {
		messages = append(messages, providers.Message{Role: providers.RoleUser, Content: "ls"})
		var before *providers.LLMResponse
		for range 3 {
			resp, err := p.Chat(t.Context(), messages, definitions(all...), "", nil)
			if err != nil {
				t.Fatal(err)
			}
			if before != nil && !reflect.DeepEqual(before, resp) {
				t.Fatalf("got %+v, then %+v", before, resp)
			}
			before = resp
		}
		ids[before.ToolCalls[0].ID] = true
		if len(ids) != i+1 {
			t.Fatalf("turn %d has the call id of an earlier one", i)
		}
		messages = append(messages,
			providers.Message{Role: providers.RoleAssistant, ToolCalls: before.ToolCalls},
			providers.Message{Role: providers.RoleTool, ToolCallID: before.ToolCalls[0].ID, Content: "x"},
			providers.Message{Role: providers.RoleAssistant, Content: "x"})
		if len(messages) > 40 { // a history is cut at some length
			messages = messages[4:]
		}
	}
}

func FuzzChat(f *testing.F) {
	for _, s := range []string{"remind me in to", "remind me at ", "tell : x", "write :", "[The background task \"", "> \n", "@a @b", "İn the background x", "ls\nls", "[x]\n[y]", "remind me İn 5 to x at 9"} {
		f.Add(s)
	}
	p := offline.New(offline.WithClock(noon))
	f.Fuzz(func(t *testing.T, text string) {
		for _, system := range []string{direct, group, task} {
			resp, err := p.Chat(context.Background(), []providers.Message{{Role: providers.RoleSystem, Content: system}, {Role: providers.RoleUser, Content: text}}, definitions(all...), "", nil)
			if err != nil || resp.Content == "" && len(resp.ToolCalls) == 0 {
				t.Fatalf("%q gave %+v, %v", text, resp, err)
			}
		}
	})
}

func ExampleProvider_Chat() {
	p := offline.New()
	reply, err := p.Chat(context.Background(), []providers.Message{{Role: providers.RoleUser, Content: "echo Hello"}}, nil, "", nil)
	fmt.Println(reply.Content, err)
	// Output: Hello <nil>
}
