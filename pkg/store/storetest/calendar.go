package storetest

import (
	"time"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

var calendarRules = []rule{
	{"a schedule comes back as it went in", scheduleKeepsAll},
	{"schedules are listed by due time, of one conversation or all", scheduleLists},
	{"a schedule is replaced by id", scheduleReplaced},
	{"due returns what is due and when the next one is", scheduleDue},
	{"schedules at one instant come by id", scheduleTies},
	{"unschedule removes", scheduleRemoved},
	{"a task comes back as it went in", taskKeepsAll},
	{"a task is open until it is delivered", taskStates},
	{"a task's state never goes back", taskNeverBack},
	{"open tasks come by start, then id", taskOrder},
	{"a result and its inbox row are one change", taskDelivery},
}

func scheduleKeepsAll(s ledger) {
	want := schedule("a", chat(1), day.Add(time.Hour))
	s.apply(store.Tx{Schedules: []store.Schedule{want}})
	s.equal("schedule", s.schedules(chat(1)), []store.Schedule{want})
}

func scheduleLists(s ledger) {
	s.apply(store.Tx{Schedules: []store.Schedule{
		schedule("late", chat(1), day.Add(3*time.Hour)),
		schedule("other", chat(2), day.Add(2*time.Hour)),
		schedule("soon", chat(1), day.Add(time.Hour)),
	}})
	s.equal("of one", scheduleIDs(s.schedules(chat(1))), []string{"soon", "late"})
	s.equal("of all", scheduleIDs(s.schedules(bus.Address{})), []string{"soon", "other", "late"})
	s.equal("of nobody", len(s.schedules(chat(9))), 0)
}

func scheduleReplaced(s ledger) {
	s.apply(store.Tx{Schedules: []store.Schedule{
		schedule("a", chat(1), day.Add(time.Hour)), schedule("b", chat(1), day.Add(2*time.Hour)),
	}})
	moved := schedule("a", chat(2), day.Add(3*time.Hour))
	moved.Text = "walk"
	s.apply(store.Tx{Schedules: []store.Schedule{moved}})
	s.equal("before", scheduleIDs(s.schedules(chat(1))), []string{"b"})
	s.equal("after", s.schedules(chat(2)), []store.Schedule{moved})
	s.equal("of all", scheduleIDs(s.schedules(bus.Address{})), []string{"b", "a"})
}

func scheduleDue(s ledger) {
	none, next := s.due(day, 10)
	s.equal("none", len(none), 0)
	s.equal("none next", next.IsZero(), true)

	for i, id := range []string{"d", "c", "b", "a"} {
		s.apply(store.Tx{Schedules: []store.Schedule{schedule(id, chat(i), day.Add(time.Duration(4-i)*time.Minute))}})
	}
	for _, c := range []struct {
		at    time.Duration
		limit int
		due   []string
		next  time.Duration // 0: none
	}{
		{0, 10, nil, time.Minute},
		{time.Minute - time.Millisecond, 10, nil, time.Minute},
		{time.Minute, 10, []string{"a"}, 2 * time.Minute},
		{3 * time.Minute, 10, []string{"a", "b", "c"}, 4 * time.Minute},
		{time.Hour, 2, []string{"a", "b"}, 3 * time.Minute},
		{time.Hour, 4, []string{"a", "b", "c", "d"}, 0},
		{time.Hour, 0, nil, time.Minute},
	} {
		due, next := s.due(day.Add(c.at), c.limit)
		s.equal("due", scheduleIDs(due), c.due)
		if c.next == 0 {
			s.equal("no next", next.IsZero(), true)
		} else {
			s.equal("next", next, day.Add(c.next))
		}
	}
	s.equal("due ones stay", len(s.schedules(bus.Address{})), 4)
}

func scheduleTies(s ledger) {
	for _, id := range []string{"c", "a", "b"} {
		s.apply(store.Tx{Schedules: []store.Schedule{schedule(id, chat(1), day)}})
	}
	due, next := s.due(day, 2)
	s.equal("due", scheduleIDs(due), []string{"a", "b"})
	s.equal("next", next, day)
	s.equal("list", scheduleIDs(s.schedules(chat(1))), []string{"a", "b", "c"})
}

func scheduleRemoved(s ledger) {
	s.apply(store.Tx{Schedules: []store.Schedule{schedule("a", chat(1), day), schedule("b", chat(1), day)}})
	s.apply(store.Tx{
		Unschedule: []string{"a", "never", ""},
		Admit:      []bus.InboundMessage{message(chat(1), "schedule a")},
	})
	s.equal("left", scheduleIDs(s.schedules(chat(1))), []string{"b"})
	s.equal("waiting", ids(s.waiting(chat(1), 0, 9)), []string{"schedule a"})
	s.apply(store.Tx{Schedules: []store.Schedule{schedule("c", chat(1), day)}, Unschedule: []string{"b", "c"}})
	due, _ := s.due(day, 9)
	s.equal("none", len(due), 0)
}

func taskKeepsAll(s ledger) {
	pending, done := task("p", chat(1), store.TaskPending), task("q", chat(2), store.TaskDone)
	s.apply(store.Tx{Tasks: []store.Task{pending, done}})
	s.equal("tasks", s.openTasks(), []store.Task{pending, done})
}

func taskStates(s ledger) {
	s.apply(store.Tx{Tasks: []store.Task{task("a", chat(1), store.TaskPending), task("b", chat(1), store.TaskPending)}})
	s.apply(store.Tx{Tasks: []store.Task{task("a", chat(1), store.TaskDone)}})
	s.equal("done", s.openTasks(), []store.Task{task("a", chat(1), store.TaskDone), task("b", chat(1), store.TaskPending)})
	s.apply(store.Tx{Tasks: []store.Task{task("a", chat(1), store.TaskDelivered)}})
	s.equal("delivered", taskIDs(s.openTasks()), []string{"b"})
	s.apply(store.Tx{Tasks: []store.Task{task("b", chat(1), store.TaskDelivered), task("c", chat(1), store.TaskDelivered)}})
	s.equal("all", len(s.openTasks()), 0)
}

func taskNeverBack(s ledger) {
	s.apply(store.Tx{Tasks: []store.Task{task("a", chat(1), store.TaskDone)}})
	s.apply(store.Tx{Tasks: []store.Task{task("a", chat(1), store.TaskPending)}})
	s.equal("still done", s.openTasks(), []store.Task{task("a", chat(1), store.TaskDone)})
	s.apply(store.Tx{Tasks: []store.Task{task("a", chat(1), store.TaskDelivered)}})
	s.apply(store.Tx{Tasks: []store.Task{task("a", chat(1), store.TaskDone)}})
	s.apply(store.Tx{Tasks: []store.Task{task("a", chat(1), store.TaskPending)}})
	s.equal("still delivered", len(s.openTasks()), 0)
}

func taskOrder(s ledger) {
	for id, start := range map[string]time.Duration{"d": time.Hour, "a": 2 * time.Hour, "c": 0, "b": 0} {
		tk := task(id, chat(1), store.TaskPending)
		tk.Started = day.Add(start)
		s.apply(store.Tx{Tasks: []store.Task{tk}})
	}
	s.equal("order", taskIDs(s.openTasks()), []string{"b", "c", "d", "a"})
}

func taskDelivery(s ledger) {
	s.apply(store.Tx{Tasks: []store.Task{task("a", chat(1), store.TaskDone)}})
	s.apply(store.Tx{
		Admit: []bus.InboundMessage{message(chat(1), "f:a")},
		Tasks: []store.Task{task("a", chat(1), store.TaskDelivered)},
	})
	s.equal("tasks", len(s.openTasks()), 0)
	s.equal("waiting", ids(s.waiting(chat(1), 0, 9)), []string{"f:a"})
}
