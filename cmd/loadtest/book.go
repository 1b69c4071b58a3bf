package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// token marks the n-th message of a chat. Letters and digits only, so that no
// platform's formatting touches it.
func token(chat, n int) string { return "tok" + strconv.Itoa(chat) + "n" + strconv.Itoa(n) + "z" }

// tokens finds every token in a text.
func tokens(text string) (found [][2]int) {
	for {
		_, rest, ok := strings.Cut(text, "tok")
		if !ok {
			return found
		}
		text = rest
		chat, rest, ok := number(rest, 'n')
		if !ok {
			continue
		}
		n, rest, ok := number(rest, 'z')
		if !ok {
			continue
		}
		found = append(found, [2]int{chat, n})
		text = rest
	}
}

// number reads digits up to end.
func number(s string, end byte) (n int, rest string, ok bool) {
	i := 0
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	if i == 0 || i == len(s) || s[i] != end {
		return 0, s, false
	}
	n, err := strconv.Atoi(s[:i])
	return n, s[i+1:], err == nil
}

// faults counts what must not happen.
type faults struct {
	Lost       int `json:"lost"`
	Doubled    int `json:"doubled"`
	Misrouted  int `json:"misrouted"`
	Misordered int `json:"misordered"`
	// Stray counts replies without a token, such as an apology. Each leaves a
	// lost message behind, too.
	Stray int `json:"stray"`
}

func (f faults) any() bool { return f != faults{} }

func (f faults) String() string {
	s := fmt.Sprintf("%d lost, %d doubled, %d misrouted, %d misordered", f.Lost, f.Doubled, f.Misrouted, f.Misordered)
	if f.Stray > 0 {
		s += fmt.Sprintf(", %d without a token", f.Stray)
	}
	return s
}

// asked is one message of a chat and what became of it.
type asked struct {
	served   time.Time // handed to the bot
	answered bool
	first    time.Time   // when the answer came
	again    []time.Time // when it came once more
}

// chatBook is the account of one chat.
type chatBook struct {
	writing sync.Mutex // held while a message is entered and handed over, so that both happen in one order
	asked   []asked
	newest  int           // highest n that was answered, -1 for none
	heard   chan struct{} // something is put in for each answer
}

// book keeps account of every message: asked, served, answered in its chat and
// in order. It is written from the fakes' goroutines, hence the mutex.
type book struct {
	mu       sync.Mutex
	chats    []chatBook
	index    map[string]int // a chat by the name the platform uses
	counting bool
	answers  int // while counting
	delays   []time.Duration
	found    faults
	strays   []string // the first few, for the person who reads the report
}

// newBook opens an account for each chat, named as replies will name it.
func newBook(names []string) *book {
	b := &book{chats: make([]chatBook, len(names)), index: make(map[string]int, len(names))}
	for i, name := range names {
		b.index[name] = i
		b.chats[i] = chatBook{newest: -1, heard: make(chan struct{}, 1024)}
	}
	return b
}

// ask enters the next message of a chat and returns its number.
func (b *book) ask(chat int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := &b.chats[chat]
	// Until the fake tells when it was served, it counts from now.
	c.asked = append(c.asked, asked{served: time.Now()})
	return len(c.asked) - 1
}

// served notes that messages were handed to the bot.
func (b *book) served(text string, at time.Time) {
	found := tokens(text)
	if len(found) == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range found {
		if t[0] < len(b.chats) && t[1] < len(b.chats[t[0]].asked) {
			b.chats[t[0]].asked[t[1]].served = at
		}
	}
}

// heard enters a reply of the bot.
func (b *book) heard(name, text string, at time.Time) {
	found := tokens(text)
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(found) == 0 {
		b.found.Stray++
		if len(b.strays) < 5 {
			b.strays = append(b.strays, name+": "+text)
		}
		if i, known := b.index[name]; known {
			b.chats[i].hear()
		}
		return
	}
	here, known := b.index[name]
	for _, t := range found {
		if !known || t[0] != here || t[1] >= len(b.chats[here].asked) {
			b.found.Misrouted++
			continue
		}
		b.answer(&b.chats[here], t[1], at)
	}
}

func (b *book) answer(c *chatBook, n int, at time.Time) {
	a := &c.asked[n]
	if a.answered {
		b.found.Doubled++
		a.again = append(a.again, at)
		return
	}
	a.answered, a.first = true, at
	if n < c.newest {
		b.found.Misordered++
	}
	c.newest = max(c.newest, n)
	if b.counting {
		b.answers++
		b.delays = append(b.delays, at.Sub(a.served))
	}
	c.hear()
}

// hear lets whoever waits for an answer go on.
func (c *chatBook) hear() {
	select {
	case c.heard <- struct{}{}:
	default:
	}
}

// count starts or stops the measured window and returns the number of answers
// in it.
func (b *book) count(on bool) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.counting = on
	return b.answers
}

// open returns how many messages have no answer yet.
func (b *book) open() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.chats {
		for _, a := range b.chats[i].asked {
			if !a.answered {
				n++
			}
		}
	}
	return n
}

// mark returns how many messages each chat has written so far.
func (b *book) mark() []int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := make([]int, len(b.chats))
	for i := range b.chats {
		n[i] = len(b.chats[i].asked)
	}
	return n
}

// openBefore returns how many of the messages up to mark have no answer yet,
// with the names of a few.
func (b *book) openBefore(mark []int) (n int, some []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.chats {
		for j, a := range b.chats[i].asked[:mark[i]] {
			if a.answered {
				continue
			}
			if n++; n <= 5 {
				some = append(some, token(i, j))
			}
		}
	}
	return n, some
}

// told returns how many replies were no answers. Whoever got one waits for
// nothing any more.
func (b *book) told() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.found.Stray
}

// close returns the faults, with every unanswered message as lost.
func (b *book) close() (faults, []string) {
	lost := b.open()
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.found
	f.Lost = lost
	return f, b.strays
}

// latency describes how long answers took.
type latency struct {
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
	Max float64 `json:"max_ms"`
}

func (b *book) latency() latency {
	b.mu.Lock()
	defer b.mu.Unlock()
	return latencyOf(b.delays)
}

func latencyOf(delays []time.Duration) latency {
	if len(delays) == 0 {
		return latency{}
	}
	d := slices.Sorted(slices.Values(delays))
	at := func(q float64) float64 { return ms(d[int(q*float64(len(d)-1))]) }
	return latency{P50: at(0.5), P99: at(0.99), Max: at(1)}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
