package storetest

import (
	"fmt"
	"strings"
	"sync"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

var concurrentRules = []rule{
	{"each goroutine's changes keep their order", concurrentOrder},
	{"a message offered from many sides is admitted once", concurrentDuplicates},
	{"a row sent from many sides is queued once", concurrentSend},
	{"nobody sees half a change", concurrentAtomic},
	{"whole turns of many chats", concurrentTurns},
	{"edits and turns of the same messages", concurrentEdits},
	{"histories that are taken back and summed up", concurrentRecall},
}

const (
	writers = 8
	rounds  = 40
)

// together runs f in every writer's goroutine and waits for them.
func together(f func(i int)) {
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// try applies tx from a goroutine that must not end the test.
func (l ledger) try(tx store.Tx) store.Result {
	res, err := l.Apply(l.t.Context(), tx)
	if err != nil {
		l.t.Errorf("apply: %v", err)
	}
	return res
}

func concurrentOrder(s ledger) {
	together(func(i int) {
		for n := range rounds {
			tx := store.Tx{
				History: []store.Entry{entry("shared", fmt.Sprint(i, " ", n)), entry(fmt.Sprint(i), fmt.Sprint(n))},
				Send:    []store.Outbound{outbound(chat(i), fmt.Sprint(i, "-", n))},
			}
			if n%3 == 0 {
				s.try(tx)
			} else {
				s.Post(tx)
			}
		}
		s.try(store.Tx{})
	})
	want := make([]string, rounds)
	for n := range want {
		want[n] = fmt.Sprint(n)
	}
	perWriter := make(map[string][]string)
	for _, text := range texts(s.history("shared", writers*rounds+1)) {
		who, n, _ := strings.Cut(text, " ")
		perWriter[who] = append(perWriter[who], n)
	}
	sent := make(map[string][]string)
	for _, key := range keys(s.unsent()) {
		who, n, _ := strings.Cut(key, "-")
		sent[who] = append(sent[who], n)
	}
	for i := range writers {
		who := fmt.Sprint(i)
		s.equal("shared history of "+who, perWriter[who], want)
		s.equal("own history of "+who, texts(s.history(who, rounds+1)), want)
		s.equal("rows of "+who, sent[who], want)
	}
}

func concurrentDuplicates(s ledger) {
	var mu sync.Mutex
	admitted := make(map[string]int)
	seen := make(map[int64]bool)
	together(func(int) {
		for n := range rounds {
			res := s.try(store.Tx{Admit: []bus.InboundMessage{message(chat(n%3), fmt.Sprint(n))}})
			if len(res.Admitted)+res.Duplicates != 1 {
				s.t.Errorf("%d admitted and %d duplicates of one message", len(res.Admitted), res.Duplicates)
			}
			mu.Lock()
			for _, r := range res.Admitted {
				admitted[r.Message.ID]++
				if seen[r.Seq] {
					s.t.Errorf("seq %d twice", r.Seq)
				}
				seen[r.Seq] = true
			}
			mu.Unlock()
		}
	})
	for n := range rounds {
		s.equal(fmt.Sprint("message ", n), admitted[fmt.Sprint(n)], 1)
	}
}

func concurrentSend(s ledger) {
	var mu sync.Mutex
	queued := make(map[string]int)
	together(func(int) {
		for n := range rounds {
			key := fmt.Sprint("k", n)
			res := s.try(store.Tx{Send: []store.Outbound{outbound(chat(1), key)}})
			s.Post(store.Tx{Receipts: []store.Receipt{{Key: key}}})
			mu.Lock()
			queued[key] += len(res.Queued)
			mu.Unlock()
		}
		s.try(store.Tx{})
	})
	for n := range rounds {
		key := fmt.Sprint("k", n)
		s.equal(key, queued[key], 1)
	}
	s.equal("unsent", len(s.unsent()), 0)
}

// concurrentAtomic writes pairs and reads them meanwhile: a reader finds both
// halves or neither.
func concurrentAtomic(s ledger) {
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				entries, err := s.History(s.t.Context(), "pairs", 2)
				if err != nil {
					s.t.Errorf("history: %v", err)
					return
				}
				if len(entries) == 2 && entries[0].Message.Content != entries[1].Message.Content {
					s.t.Errorf("half a change: %v", texts(entries))
					return
				}
			}
		})
	}
	together(func(i int) {
		for n := range rounds {
			text := fmt.Sprint(i, " ", n)
			s.try(store.Tx{History: []store.Entry{entry("pairs", text), entry("pairs", text)}})
		}
	})
	close(done)
	readers.Wait()
	s.equal("entries", len(s.history("pairs", 2*writers*rounds+1)), 2*writers*rounds)
}

func concurrentTurns(s ledger) {
	together(func(i int) {
		lane := chat(i)
		for n := range rounds {
			id := fmt.Sprint(i, "-", n)
			rows := s.try(store.Tx{Admit: []bus.InboundMessage{message(lane, id), message(lane, id+"b")}}).Admitted
			waiting, err := s.Waiting(s.t.Context(), lane, 0, 10)
			if err != nil || len(waiting) != 2 || len(rows) != 2 {
				s.t.Errorf("waiting: %d rows of %d, %v", len(waiting), len(rows), err)
				return
			}
			s.Post(store.Tx{Begin: turn(id, lane, waiting)})
			for _, step := range steps(id) {
				s.Post(store.Tx{Steps: []store.Step{step}})
			}
			s.try(store.Tx{
				End: []string{id}, Send: []store.Outbound{outbound(lane, id)},
				History: []store.Entry{entry(lane.String(), id)},
			})
			s.Post(store.Tx{Receipts: []store.Receipt{{Key: id}}})
		}
		s.try(store.Tx{})
	})
	s.equal("lanes", len(s.lanes()), 0)
	s.equal("turns", len(s.openTurns()), 0)
	s.equal("unsent", len(s.unsent()), 0)
	for i := range writers {
		s.equal("history", len(s.history(chat(i).String(), 1000)), rounds)
	}
}

// concurrentEdits changes messages while they are answered: each of them is
// amended before its end or not at all, and none stays open.
func concurrentEdits(s ledger) {
	together(func(i int) {
		for n := range rounds {
			id, lane := fmt.Sprint("n", n), chat(n%3)
			for _, r := range s.try(store.Tx{Admit: []bus.InboundMessage{message(lane, id)}}).Admitted {
				s.Post(store.Tx{Begin: turn(id, lane, []store.Inbound{r})})
				if n%2 == 0 {
					s.Post(store.Tx{Amend: []store.Amend{deletion(id)}})
				}
				s.Post(store.Tx{End: []string{id}})
			}
			text := fmt.Sprint("by ", i)
			for _, r := range s.try(store.Tx{Amend: []store.Amend{edit(id, text)}}).Amended {
				if r.Message.ID != id || r.Message.Text != text || r.Message.Sender != message(lane, id).Sender {
					s.t.Errorf("amended %s: %+v", id, r.Message)
				}
			}
		}
		s.try(store.Tx{})
	})
	s.equal("lanes", len(s.lanes()), 0)
	s.equal("turns", len(s.openTurns()), 0)
}

// concurrentRecall gives each goroutine a history of its own: what one takes
// back is nobody else's.
func concurrentRecall(s ledger) {
	together(func(i int) {
		session := fmt.Sprint(i)
		for n := range rounds {
			id := fmt.Sprint(n)
			s.Post(store.Tx{History: []store.Entry{
				{Session: session, Turn: id, Message: providers.Message{Role: providers.RoleUser, Content: id}},
				{Session: session, Turn: id, Message: providers.Message{Role: providers.RoleAssistant, Content: id}},
			}})
			tx := store.Tx{}
			if n%2 == 1 {
				tx.Undo = []string{session}
			}
			if n%10 == 9 {
				tx.Summaries = []store.Summary{{Session: session, Text: "until " + id, Keep: 4}}
			}
			s.try(tx)
		}
	})
	for i := range writers {
		s.equal("history", texts(s.history(fmt.Sprint(i), 99)), []string{"until 39", "36", "36", "38", "38"})
	}
}
