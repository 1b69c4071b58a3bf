package gateway

import (
	"context"
	"errors"
	"slices"

	"github.com/dragoman-chat/dragoman/pkg/agent"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

// errAmended is the cause of a turn's context when what it answers has changed.
var errAmended = errors.New("the question has changed")

// maxEdits is how often a turn begins again because its question was edited.
// Edits beyond that come too late, as those after the answer do.
const maxEdits = 3

// amend gives a waiting message its new text, or takes it out. The turn that is
// answering it begins again, see again. What waits in the ledger only has
// changed there, but may have been read just before.
func (l *lanes) amend(row store.Inbound, deleted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln, ok := l.m[row.Message.Address]
	if !ok {
		return
	}
	for i := range ln.waiting {
		if ln.waiting[i].Seq != row.Seq {
			continue
		}
		if deleted {
			ln.waiting = append(ln.waiting[:i], ln.waiting[i+1:]...)
		} else {
			ln.waiting[i] = row
		}
		return
	}
	if _, ok := slices.BinarySearch(ln.behind, row.Seq); ok {
		if ln.amended == nil {
			ln.amended = make(map[int64]*store.Inbound)
		}
		ln.amended[row.Seq] = &row
		if deleted {
			ln.amended[row.Seq] = nil
		}
		return
	}
	j := ln.running
	if j == nil || !j.answers(row.Seq) || j.edits >= maxEdits && !deleted {
		return
	}
	j.edits++
	if j.amended == nil {
		j.amended = make(map[int64]*store.Inbound)
	}
	j.amended[row.Seq] = &row
	if deleted {
		j.amended[row.Seq] = nil
	}
	j.cancel(errAmended)
}

func (j *job) answers(seq int64) bool {
	for _, r := range j.rows {
		if r.Seq == seq {
			return true
		}
	}
	return false
}

// again makes a job whose question has changed ready for another run: with the
// new texts and without what was taken back.
func (l *lanes) again(j *job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	rows := make([]store.Inbound, 0, len(j.rows))
	for _, r := range j.rows {
		changed, ok := j.amended[r.Seq]
		switch {
		case !ok:
			rows = append(rows, r)
		case changed != nil:
			rows = append(rows, *changed)
		}
	}
	j.rows, j.amended = rows, nil
	j.cancel(nil)
	j.ctx, j.cancel = context.WithCancelCause(l.g.work)
	if j.stopped {
		j.cancel(agent.ErrStopped)
	}
}
