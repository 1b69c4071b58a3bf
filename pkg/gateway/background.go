package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/agent"
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// asyncCallback is the way back for one asynchronous call: its result re-enters
// as a follow-up, in the conversation and with the rights of the turn that
// asked, whatever runs there meanwhile.
func (g *Gateway) asyncCallback(state *turnState, call tools.Call) tools.AsyncCallback {
	return func(ctx context.Context, r *tools.ToolResult) {
		task := taskOf(state, call)
		state.fire(task.ID)

		result := &bus.FollowUp{Task: task.ID, Label: task.Label, ForLLM: r.ForLLM, IsError: r.IsError}
		if result.ForLLM == "" { // it may be shown to the person, so Err is no substitute
			result.ForLLM = "The task ended without saying anything."
		}
		if !r.Silent {
			result.ForUser = r.ForUser
		}
		task.State, task.Result = store.TaskDone, result
		ctx = context.WithoutCancel(ctx) // a result is stored whatever became of its call
		g.insist(task.Address, state.id, func() error { return g.deliverTask(ctx, task) })
	}
}

// fire notes that a call has called back. A journal entry about it that is being
// written now is written first.
func (s *turnState) fire(task string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fired == nil {
		s.fired = make(map[string]struct{})
	}
	s.fired[task] = struct{}{}
}

// deliverTask stores a finished task and its follow-up in one step.
func (g *Gateway) deliverTask(ctx context.Context, task store.Task) error {
	m := followUp(task)
	task.State = store.TaskDelivered
	return g.admit(ctx, store.Tx{Tasks: []store.Task{task}, Admit: []bus.InboundMessage{m}})
}

// How the ids of follow-ups begin, so that they are nobody's message.
const (
	taskMark     = "f:"
	reminderMark = "r:"
)

// SaidByNobody reports whether an entry of a history is in a person's role
// without being their words: it tells the model of what came by itself.
func SaidByNobody(e store.Entry) bool {
	if e.Message.Role != providers.RoleUser {
		return false
	}
	shown := strings.HasPrefix(e.Turn, taskMark) || strings.HasPrefix(e.Turn, reminderMark)
	return shown || e.Summary || agent.Event(e.Message.Content)
}

func followUp(task store.Task) bus.InboundMessage {
	return bus.InboundMessage{
		Address: task.Address, Parent: task.Parent, Group: task.Group,
		ID: taskMark + task.ID, MessageID: task.ReplyTo, Sender: task.Sender, Kind: bus.KindFollowUp, Time: time.Now(),
		Metadata: task.Metadata, Principal: task.Principal, SessionKey: task.SessionKey, Hops: task.Hops, FollowUp: task.Result,
	}
}

// taskOf pins an asynchronous call to the conversation, the sender and the
// message of its turn.
func taskOf(state *turnState, call tools.Call) store.Task {
	m := state.msg
	return store.Task{
		ID: call.Key(), Tool: call.Tool, Label: call.Label, Address: m.Address, Parent: m.Parent, Group: m.Group,
		SessionKey: m.SessionKey, Principal: m.Principal, Sender: m.Sender, ReplyTo: m.MessageID, Metadata: m.Metadata,
		Hops: m.Hops + 1, State: store.TaskPending, Started: time.Now(),
	}
}

// restoreTasks delivers what finished before an earlier run ended, and says of
// what did not that it was interrupted.
func (g *Gateway) restoreTasks(ctx context.Context, open []store.Task) error {
	for _, task := range open {
		if task.Result == nil {
			text := "A background task was interrupted by a restart and did not finish"
			if task.Label != "" {
				text += ": " + task.Label
			}
			task.Result = &bus.FollowUp{Task: task.ID, Label: task.Label, ForLLM: text, ForUser: text, IsError: true}
		}
		if err := g.patiently(ctx, func() error { return g.deliverTask(ctx, task) }); err != nil {
			return err
		}
	}
	return nil
}

// deliver shows a follow-up as it is, without a turn: it carries a text for the
// person, or too many follow-ups have led to it.
func (g *Gateway) deliver(row store.Inbound) {
	m := row.Message
	text := m.FollowUp.ForUser
	if text == "" {
		text = m.FollowUp.ForLLM
	}
	now := time.Now()
	note, shown := agent.FollowUpHistory(m, text)
	tx := store.Tx{Done: []int64{row.Seq}, Send: g.outgoing(m, "result", text), History: []store.Entry{
		{Session: m.SessionKey, Turn: m.ID, Message: note, Time: now},
		{Session: m.SessionKey, Turn: m.ID, Message: shown, Time: now},
	}}
	if !g.finish(m, "", tx) {
		return
	}
	g.counts.followUps.Add(1)
	g.log.Info("follow-up delivered", "channel", m.Channel, "chat_id", m.ChatID, "task", m.FollowUp.Task)
}

// Remind stores a reminder for the conversation and the person of the turn that
// ctx belongs to. s holds id, due time and text; the route is filled in here.
// Storing the same id again changes nothing. It returns when it is durable.
func (g *Gateway) Remind(ctx context.Context, call tools.Call, s store.Schedule) error {
	state := stateFrom(ctx)
	if state == nil {
		return errors.New("gateway: remind: not called from a turn")
	}
	m := state.msg
	s.Address, s.Parent, s.Group, s.SessionKey = m.Address, m.Parent, m.Group, m.SessionKey
	s.Principal, s.Sender, s.Hops, s.Created = call.Principal, m.Sender, m.Hops+1, time.Now()
	if _, err := g.apply(ctx, store.Tx{Schedules: []store.Schedule{s}}); err != nil {
		return fmt.Errorf("gateway: remind: %w", err)
	}
	g.clock.look()
	return nil
}

// Reminders lists the reminders of a conversation by due time.
func (g *Gateway) Reminders(ctx context.Context, of bus.Address) (all []store.Schedule, err error) {
	err = g.patiently(ctx, func() error {
		all, err = g.cfg.Store.Schedules(ctx, of)
		return err
	})
	return all, err
}

// CancelReminder removes a reminder and reports whether there was one.
func (g *Gateway) CancelReminder(ctx context.Context, of bus.Address, id string) (bool, error) {
	all, err := g.Reminders(ctx, of)
	if err != nil {
		return false, err
	}
	for _, s := range all {
		if s.ID == id {
			_, err := g.apply(ctx, store.Tx{Unschedule: []string{id}})
			return err == nil, err
		}
	}
	return false, nil
}

// zoneFact is the key of a conversation's own time zone.
func zoneFact(at bus.Address) string { return "gateway/zone/" + at.String() }

// Zone returns the time zone a conversation has set for itself, otherwise
// fallback.
func (g *Gateway) Zone(ctx context.Context, at bus.Address, fallback *time.Location) *time.Location {
	var name string
	err := g.patiently(ctx, func() (err error) {
		name, err = g.cfg.Store.Fact(ctx, zoneFact(at))
		return err
	})
	if err != nil || name == "" {
		return fallback
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return fallback
	}
	return zone
}

// clock fires what is due. One goroutine owns it.
type clock struct {
	g      *Gateway
	wake   chan struct{} // 1 slot: the schedules have changed
	cancel context.CancelFunc
	done   chan struct{}

	wall  func() time.Time // the system's clock, which may be set meanwhile
	began time.Time
	ahead time.Duration // how far wall has been set forward since began
	doubt time.Duration // until so long after began it is not believed
}

func (c *clock) init() {
	c.wake = make(chan struct{}, 1)
	c.wall = func() time.Time { return time.Now().Round(0) }
	c.began = time.Now()
}

func (c *clock) start() {
	ctx, cancel := context.WithCancel(c.g.work)
	c.cancel, c.done = cancel, make(chan struct{})
	go func() {
		defer close(c.done)
		c.run(ctx)
	}()
}

func (c *clock) stop() {
	if c.cancel == nil {
		return // it never started
	}
	c.cancel()
	<-c.done
}

// look makes the clock read the schedules again.
func (c *clock) look() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

const (
	// longestSleep bounds how late a reminder can be after the system clock has
	// been set forward or the machine has slept.
	longestSleep = 30 * time.Second
	// A clock that leaps ahead by more than leap is believed when it has stood by
	// it for a while: a reminder that has been shown cannot be taken back.
	leap    = time.Hour
	standBy = time.Minute
)

// believes returns 0 if the clock can be trusted that it is now, otherwise how
// long to wait.
func (c *clock) believes(now time.Time) time.Duration {
	run := time.Since(c.began)
	ahead := now.Sub(c.began) - run
	switch set := ahead - c.ahead; {
	case set > leap:
		c.doubt = run + standBy
		c.g.log.Warn("the system clock has leapt ahead, reminders wait a little", "duration", set)
	case set < -leap:
		c.doubt = 0
		c.g.log.Warn("the system clock has been set back", "duration", set)
	}
	c.ahead = ahead
	return max(c.doubt-run, 0)
}

func (c *clock) run(ctx context.Context) {
	for ctx.Err() == nil {
		next := c.fire(ctx)
		sleep := longestSleep
		if !next.IsZero() {
			sleep = min(sleep, max(next.Sub(c.wall()), 0))
		}
		t := time.NewTimer(sleep)
		select {
		case <-t.C:
		case <-c.wake:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// fire turns what is due into follow-ups and returns when the next one is due.
func (c *clock) fire(ctx context.Context) time.Time {
	const atOnce = 64
	now := c.wall()
	if wait := c.believes(now); wait > 0 {
		return now.Add(wait)
	}
	due, next, err := c.g.cfg.Store.Due(ctx, now, atOnce)
	if err != nil {
		if ctx.Err() == nil {
			c.g.log.Error("cannot read the schedules", "err", err)
		}
		return now.Add(time.Second)
	}
	for _, s := range due {
		m := bus.InboundMessage{
			Address: s.Address, Parent: s.Parent, Group: s.Group, ID: reminderMark + s.ID, Sender: s.Sender,
			Kind: bus.KindFollowUp, Time: s.Due, Principal: s.Principal, SessionKey: s.SessionKey, Hops: s.Hops,
			FollowUp: &bus.FollowUp{Task: s.ID, Label: "reminder", ForUser: "⏰ " + s.Text},
		}
		if err := c.g.admit(ctx, store.Tx{Unschedule: []string{s.ID}, Admit: []bus.InboundMessage{m}}); err != nil {
			c.g.log.Error("cannot deliver a reminder", "channel", s.Address.Channel, "chat_id", s.Address.ChatID, "err", err)
			return now.Add(time.Second)
		}
	}
	if len(due) == atOnce {
		return now
	}
	return next
}
