package offline

import (
	"slices"
	"strings"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// scene is what the provider takes from a conversation, the way a model would
// read it from the prompt.
type scene struct {
	text  string // what the person wrote, without what was put around it
	after string // the same without a leading "Name: "
	group bool
	task  bool // a background task of our own, not a person's message
	zone  *time.Location
}

func readScene(messages []providers.Message) scene {
	s := scene{zone: time.Local}
	for i := range messages {
		if messages[i].Role == providers.RoleSystem {
			s.readSystem(messages[i].Content)
		}
	}
	for _, m := range slices.Backward(messages) {
		if m.Role == providers.RoleUser {
			s.readUser(m.Content)
			break
		}
	}
	return s
}

// readSystem looks for what the gateway writes into the prompt: where the
// conversation is, and its time zone in parentheses after the date.
func (s *scene) readSystem(text string) {
	s.group = s.group || strings.Contains(text, "This is a group")
	s.task = s.task || strings.Contains(text, "one task in the background")
	_, today, ok := strings.Cut(text, "Today is ")
	if !ok {
		return
	}
	_, zone, ok := strings.Cut(today, "(")
	if !ok {
		return
	}
	zone, _, _ = strings.Cut(zone, ")")
	if loc, err := time.LoadLocation(zone); err == nil {
		s.zone = loc
	}
}

// readUser drops the lines put before a message: what it replies to or
// forwards, and notes in brackets about what came with it.
func (s *scene) readUser(text string) {
	lines := strings.Split(text, "\n")
	for len(lines) > 1 && aside(lines[0]) && !finished(lines[0]) {
		lines = lines[1:]
	}
	s.text = withoutMentions(strings.TrimSpace(strings.Join(lines, "\n")))
	s.after = s.text
	first, _, _ := strings.Cut(s.text, "\n")
	if name, _, ok := strings.Cut(first, ": "); ok && len([]rune(name)) <= 65 {
		s.after = withoutMentions(strings.TrimSpace(s.text[len(name)+2:]))
	}
}

func aside(line string) bool {
	return strings.HasPrefix(line, "> ") || line == ">" || strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]")
}

// finished reports whether a line announces the result of a background task.
func finished(line string) bool { return strings.HasPrefix(line, "[The background task ") }

// withoutMentions drops mentions of a bot at the beginning and at the end:
// "@name", or "<@123>".
func withoutMentions(text string) string {
	mention := func(word string) bool {
		return len(word) > 1 && word[0] == '@' || strings.HasPrefix(word, "<@") && strings.HasSuffix(word, ">")
	}
	for {
		word, rest, more := strings.Cut(text, " ")
		if !more || !mention(strings.TrimRight(word, ",:")) {
			break
		}
		text = strings.TrimSpace(rest)
	}
	if at := strings.LastIndexByte(text, ' '); at >= 0 && mention(text[at+1:]) {
		text = strings.TrimSpace(text[:at])
	}
	return text
}

// commands reads what is asked. Several messages that waited together arrive
// as several lines; each is a command of its own if all of them are commands.
func (s *scene) commands() []command {
	text := s.text
	if s.group {
		text = s.after
	}
	if lines := nonEmpty(text); len(lines) > 1 && !finished(lines[0]) {
		list := make([]command, 0, len(lines))
		for _, line := range lines {
			if c := parse(withoutMentions(line)); c.verb != unknown {
				list = append(list, c)
			}
		}
		if len(list) == len(lines) {
			return list
		}
	}
	c := parse(text)
	if c.verb == unknown && s.after != text {
		c = parse(s.after)
	}
	return []command{c}
}

func nonEmpty(text string) []string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}
