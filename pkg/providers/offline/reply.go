package offline

import (
	"fmt"
	"strings"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

const helpText = `I am the offline stand-in, not a language model. I understand:
- **help**, **what time is it**, **echo** some text
- **list files**, **read** notes.txt, **write** notes.txt: some text
- **remind me in 5 seconds to** stretch, **remind me at 18:30 to** cook, **list reminders**, **cancel reminder** and its id
- **in the background** followed by any of these
- **tell** telegram:12345 some text, if you are an owner

` + howTo

const howTo = "For a real model, name one under `models` in the configuration, or set OPENAI_API_KEY or ANTHROPIC_API_KEY and start again."

const standIn = "I am the offline stand-in, not a language model, so I did not understand that. Say **help** to see what I can do. " + howTo

// do answers one command, or plans the call that will.
func (p *Provider) do(r *plan, c command, s scene) {
	switch c.verb {
	case help:
		r.say("%s", helpText)
	case clock:
		r.say("It is %s (%s).", p.now().In(s.zone).Format("15:04:05 on Monday, 2 January 2006"), s.zone)
	case echo:
		r.say("%s", c.rest)
	case read:
		r.call("read_file", map[string]any{"path": unquote(c.rest)})
	case list:
		args := map[string]any{}
		if dir := unquote(c.rest); dir != "" {
			args["path"] = dir
		}
		r.call("list_dir", args)
	case write:
		planWrite(r, c.rest)
	case remind:
		planReminder(r, c.rest)
	case reminders:
		r.call("remind", map[string]any{"action": "list"})
	case cancel:
		r.call("remind", map[string]any{"action": "cancel", "id": unquote(strings.TrimRight(c.rest, ".!"))})
	case tell:
		planTell(r, c.rest)
	case background:
		r.call("spawn", map[string]any{"task": c.rest})
	case result:
		r.say("%s", passOn(c.text))
	case unknown:
		if s.task {
			r.say("The background task %q ran to its end. I am the offline stand-in, not a language model, so there is no more to it than this.", brief(c.text))
			return
		}
		r.say("%s", standIn)
	}
}

func planWrite(r *plan, rest string) {
	file, content, ok := strings.Cut(rest, ":")
	if file = unquote(file); !ok || file == "" {
		r.say("Write it like this: write notes.txt: some text")
		return
	}
	r.call("write_file", map[string]any{"path": file, "content": strings.TrimLeft(content, " ")})
}

func planReminder(r *plan, rest string) {
	delay, at, what := when(rest)
	args := map[string]any{"action": "set", "text": what}
	switch {
	case delay != "":
		args["delay"] = delay
	case at != "":
		args["at"] = at
	default:
		r.say("Say when, like this: remind me in 10 minutes to %s", brief(what))
		return
	}
	r.call("remind", args)
}

// planTell sends to another conversation, or with "me" to this one.
func planTell(r *plan, rest string) {
	target, content, _ := strings.Cut(rest, " ")
	content = strings.TrimSpace(content)
	channel, chat, ok := strings.Cut(target, ":")
	switch {
	case content != "" && strings.EqualFold(target, "me"):
		r.call("message", map[string]any{"content": content})
	case content != "" && ok && channel != "" && chat != "":
		r.call("message", map[string]any{"channel": channel, "chat_id": chat, "content": content})
	default:
		r.say("Write it like this: tell telegram:12345 some text")
	}
}

// passOn gives the result of a background task, which the gateway hands over
// under a line in brackets, to the person.
func passOn(text string) string {
	head, body, _ := strings.Cut(text, "\n")
	name := ""
	if _, quoted, ok := strings.Cut(head, `"`); ok {
		if end := strings.LastIndexByte(quoted, '"'); end > 0 {
			name = " \"" + quoted[:end] + "\""
		}
	}
	if strings.Contains(head[min(len(head), len(name)):], " failed.") {
		return "The background task" + name + " failed: " + body
	}
	return "The background task" + name + " is done.\n\n" + body
}

// report answers with the results the tools have just given.
func report(messages []providers.Message) string {
	first := len(messages)
	for first > 0 && messages[first-1].Role == providers.RoleTool {
		first--
	}
	var parts []string
	var calls []providers.ToolCall
	if first > 0 && messages[first-1].Role == providers.RoleAssistant {
		calls = messages[first-1].ToolCalls
		if said := messages[first-1].Content; said != "" {
			parts = append(parts, said)
		}
	}
	for i := first; i < len(messages); i++ {
		parts = append(parts, inWords(callOf(calls, messages[i].ToolCallID), messages[i].Content))
	}
	return strings.Join(parts, "\n\n")
}

func callOf(calls []providers.ToolCall, id string) providers.ToolCall {
	for i := range calls {
		if calls[i].ID == id {
			return calls[i]
		}
	}
	return providers.ToolCall{}
}

// inWords turns a tool's result, which is written for a model, into an answer
// for the person.
func inWords(c providers.ToolCall, content string) string {
	path, _ := c.Arguments["path"].(string)
	about := path != "" && strings.HasPrefix(content, fmt.Sprintf("%q ", path))
	switch {
	case content == "":
		return "Done."
	case c.Name == "read_file" && !about && !strings.HasPrefix(content, "path "):
		return path + ":\n" + fenced(content)
	case c.Name == "message" && strings.HasPrefix(content, "Delivered to "):
		return "I have sent it to " + address(c) + "."
	case c.Name == "message" && strings.HasPrefix(content, "Delivered"):
		return "Sent."
	case c.Name == "message" && strings.HasPrefix(content, "Queued"):
		return "It is on its way and will be delivered as soon as possible."
	case c.Name == "spawn" && strings.HasPrefix(content, "Started in the background"):
		task, _ := c.Arguments["task"].(string)
		return fmt.Sprintf("I have started that in the background: %s. The result will come here by itself.", strings.TrimRight(brief(task), "."))
	}
	return content
}

func address(c providers.ToolCall) string {
	channel, _ := c.Arguments["channel"].(string)
	chat, _ := c.Arguments["chat_id"].(string)
	return channel + ":" + chat
}

// fenced puts text into a code block whose fence does not occur in it.
func fenced(text string) string {
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	return fence + "\n" + strings.TrimSuffix(text, "\n") + "\n" + fence
}

// brief shortens a text to a line.
func brief(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if r := []rune(text); len(r) > 80 {
		return string(r[:79]) + "…"
	}
	return text
}
