package console

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
)

// What stands on the terminal's last line.
type lastLine int

const (
	lineEmpty  lastLine = iota
	linePrompt          // the prompt, and behind it perhaps what is being typed
	lineDots            // an answer is on its way
)

const (
	promptText = "> "
	maxDots    = 40 // then the line starts anew
)

// screen writes to the output. Its mutex is there because answers come from
// any goroutine and must not be mixed with the prompt.
type screen struct {
	mu       sync.Mutex
	out      io.Writer
	terminal bool
	reading  bool // Run runs
	last     lastLine
	dots     int
	waiting  bool // a message has no reply yet
	answers  int
}

func newScreen(out io.Writer) *screen { return &screen{out: out} }

func (s *screen) begin(terminal bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.terminal, s.reading = terminal, true
}

func (s *screen) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reading = false
	if s.last != lineEmpty {
		_, _ = io.WriteString(s.out, "\n") // the shell's prompt starts on a line of its own
		s.last = lineEmpty
	}
}

func (s *screen) open() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reading
}

func (s *screen) interactive() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.terminal
}

// prompt shows that a message can be typed, unless an answer is awaited: then
// it comes after the answer.
func (s *screen) prompt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.waiting {
		s.writePrompt()
	}
}

func (s *screen) writePrompt() {
	if !s.terminal || !s.reading || s.last == linePrompt {
		return
	}
	_, _ = io.WriteString(s.out, promptText) // a broken output shows at the next answer
	s.last = linePrompt
}

// entered: a line was typed, and the terminal has moved on to a new one.
func (s *screen) entered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = lineEmpty
}

// continued: the message goes on with the next line.
func (s *screen) continued() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.terminal {
		_, _ = io.WriteString(s.out, strings.Repeat(" ", len(promptText)))
		s.last = linePrompt
	}
}

// asked: a message goes out, whose reply has not come yet.
func (s *screen) asked() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = true
}

// typing shows dots, one more each time, but not where something may be being
// typed.
func (s *screen) typing() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.terminal || !s.reading || s.last == linePrompt {
		return nil
	}
	text := "..."
	switch {
	case s.last == lineDots && s.dots < maxDots:
		text = "."
	case s.last == lineDots:
		text = s.leaveLine() + text
		s.dots = 0
	default:
		s.dots = 0
	}
	if _, err := io.WriteString(s.out, text); err != nil {
		return fmt.Errorf("console: typing: %w", err)
	}
	s.last = lineDots
	s.dots = max(3, s.dots+1)
	return nil
}

// notice writes a sentence of the console itself.
func (s *screen) notice(sentence string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = io.WriteString(s.out, s.leaveLine()+sentence+"\n")
	s.last = lineEmpty
}

// answer writes a message and returns its number.
func (s *screen) answer(text string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	block := strings.TrimRight(text, "\n") + "\n"
	if s.terminal {
		block = s.leaveLine() + block + "\n"
	}
	if _, err := io.WriteString(s.out, block); err != nil {
		return "", err
	}
	s.last, s.waiting = lineEmpty, false
	s.answers++
	s.writePrompt()
	return formatNumber(s.answers), nil
}

// leaveLine makes room for a message, with an empty line before it. Dots go
// away. A prompt goes too, but what may be typed behind it stays readable, and
// is still sent with Enter.
func (s *screen) leaveLine() string {
	switch s.last {
	case lineDots:
		return "\r" + strings.Repeat(" ", s.dots) + "\r\n"
	case linePrompt:
		return "\r" + strings.Repeat(" ", len(promptText)) + "\r\n"
	case lineEmpty:
	}
	if s.waiting {
		return "\n"
	}
	return ""
}

func formatNumber(n int) string { return strconv.Itoa(n) }
