package storetest

import (
	"fmt"
	"math/rand/v2"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

// modelSession is what is shown of a history.
type modelSession struct {
	summary string
	entries []store.Entry
}

func (m *model) applyHistory(tx store.Tx) {
	of := func(session string) *modelSession {
		if m.sessions[session] == nil {
			m.sessions[session] = &modelSession{}
		}
		return m.sessions[session]
	}
	for _, e := range tx.History {
		of(e.Session).entries = append(of(e.Session).entries, e)
	}
	for _, session := range tx.Undo {
		of(session).undo()
	}
	for _, sum := range tx.Summaries {
		s := of(sum.Session)
		s.summary = sum.Text
		for len(s.entries) > max(0, sum.Keep) {
			s.entries = s.entries[1:]
		}
	}
	for _, session := range tx.Reset {
		delete(m.sessions, session)
	}
	for _, session := range tx.Forget {
		delete(m.sessions, session)
		for i := range m.inbox {
			if r := &m.inbox[i]; r.done && r.Message.SessionKey == session {
				r.erased = true
			}
		}
	}
}

// undo takes entries off the end one by one until it has come to the beginning
// of what belongs together.
func (s *modelSession) undo() {
	var turn string
	for n := 0; len(s.entries) > 0; n++ {
		last := s.entries[len(s.entries)-1]
		if n == 0 {
			turn = last.Turn
		}
		if last.Turn != turn {
			return
		}
		s.entries = s.entries[:len(s.entries)-1]
		if turn == "" && last.Message.Role == providers.RoleUser {
			return
		}
	}
}

// want is what History returns.
func (s *modelSession) want(session string, limit int) (list []store.Entry) {
	if s == nil || limit <= 0 {
		return nil
	}
	if s.summary != "" {
		list = append(list, store.Entry{
			Session: session, Summary: true,
			Message: providers.Message{Role: providers.RoleUser, Content: s.summary},
		})
	}
	return append(list, s.entries[max(0, len(s.entries)-limit):]...)
}

// randomHistory adds changes of a few histories.
func randomHistory(rnd *rand.Rand, n int, tx *store.Tx) {
	session := func() string { return fmt.Sprint("n", rnd.IntN(modelSessions)) }
	for range rnd.IntN(6) {
		e := entry(session(), fmt.Sprint(n, ".", len(tx.History)))
		e.Turn = []string{"", "", "a", "b", fmt.Sprint(n)}[rnd.IntN(5)]
		e.Message.Role = []string{providers.RoleUser, providers.RoleAssistant}[rnd.IntN(2)]
		for range 1 + rnd.IntN(3) {
			tx.History = append(tx.History, e)
		}
	}
	for range max(0, rnd.IntN(5)-2) {
		tx.Undo = append(tx.Undo, session())
	}
	for range max(0, rnd.IntN(7)-4) {
		text := []string{"", fmt.Sprint("until ", n), fmt.Sprint("so far ", n)}[rnd.IntN(3)]
		tx.Summaries = append(tx.Summaries, store.Summary{Session: session(), Text: text, Keep: rnd.IntN(9) - 1})
	}
	if rnd.IntN(12) == 0 {
		tx.Reset = []string{session()}
	}
	if rnd.IntN(12) == 0 {
		tx.Forget = []string{session(), chat(rnd.IntN(modelLanes)).String()}
	}
}
