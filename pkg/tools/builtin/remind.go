package builtin

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/store"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

const (
	maxReminderText = 2000 // characters
	maxReminders    = 100  // in one conversation
	maxYears        = 5    // ahead
	reminderFormat  = "Monday, 2 January 2006 at 15:04:05 MST"
)

// Reminders keeps reminders and brings them back when they are due. Its
// methods are called from any goroutine and may block on the store.
type Reminders interface {
	// Remind stores r, of which ID, Due and Text are set, for the conversation
	// and the person of call. The same ID again changes nothing.
	Remind(ctx context.Context, call tools.Call, r store.Schedule) error
	// Reminders returns those of a conversation, by due time.
	Reminders(ctx context.Context, of bus.Address) ([]store.Schedule, error)
	// CancelReminder removes one; false means the conversation has none with
	// that ID.
	CancelReminder(ctx context.Context, of bus.Address, id string) (bool, error)
}

// RemindTool sets, lists and cancels reminders in the time zone of the
// conversation.
type RemindTool struct {
	book Reminders
	zone func(ctx context.Context, at bus.Address) *time.Location
	now  func() time.Time
}

// NewRemindTool returns the remind tool. zone tells the time zone of a
// conversation; nil, or a nil answer, is the machine's. now is the clock; nil
// is the real one.
func NewRemindTool(book Reminders, zone func(ctx context.Context, at bus.Address) *time.Location, now func() time.Time) *RemindTool {
	if now == nil {
		now = time.Now
	}
	return &RemindTool{book: book, zone: zone, now: now}
}

// Name returns "remind".
func (t *RemindTool) Name() string { return "remind" }

// Idempotent is true: the call names the reminder.
func (t *RemindTool) Idempotent() bool { return true }

// Description tells the model when to use the tool.
func (t *RemindTool) Description() string {
	return "Set a reminder that comes back to this conversation later, list the reminders of this conversation, or cancel one. " +
		"To set one give text and either delay or at."
}

// Parameters returns the schema of the arguments.
func (t *RemindTool) Parameters() map[string]any {
	action := property("string", "What to do; set is the default.")
	action["enum"] = []string{"set", "list", "cancel"}
	action["default"] = "set"
	return schema(map[string]any{
		"action": action,
		"text":   property("string", "For set: what to be reminded of."),
		"delay":  property("string", `For set: how long from now, for example "5s", "10m", "1h30m", "2 days".`),
		"at":     property("string", `For set: when, in the time zone of the conversation: "18:30", "2026-12-01 09:00" or RFC 3339.`),
		"id":     property("string", "For cancel: the reminder's id, as list shows it."),
	})
}

// Execute does what action says.
func (t *RemindTool) Execute(ctx context.Context, args map[string]any) *tools.ToolResult {
	call, _ := tools.CallFrom(ctx)
	at := here(call)
	switch {
	case t.book == nil:
		return tools.ErrorResult("Reminders are not available here.")
	case at.IsZero():
		return tools.ErrorResult("A reminder needs a conversation to come back to, and this call belongs to none.")
	}
	switch action := text(args, "action"); action {
	case "", "set":
		return t.set(ctx, call, args)
	case "list":
		return t.list(ctx, at)
	case "cancel":
		return t.cancel(ctx, at, text(args, "id"))
	default:
		return tools.ErrorResult("action " + action + " is unknown: use set, list or cancel.")
	}
}

func (t *RemindTool) set(ctx context.Context, call tools.Call, args map[string]any) *tools.ToolResult {
	what := text(args, "text")
	switch n := utf8.RuneCountInString(what); {
	case n == 0:
		return tools.ErrorResult("text is required: say what to be reminded of.")
	case n > maxReminderText:
		return tools.ErrorResult(fmt.Sprintf("text is too long: %d characters, the most is %d.", n, maxReminderText))
	}
	loc := t.location(ctx, here(call))
	now := t.now().In(loc)
	due, err := dueTime(text(args, "delay"), text(args, "at"), now)
	if err != nil {
		return tools.ErrorResult(err.Error() + ".")
	}
	id := key(call)[:8]
	if problem := t.room(ctx, here(call), id); problem != nil {
		return problem
	}
	if err := t.book.Remind(ctx, call, store.Schedule{ID: id, Due: due, Text: what}); err != nil {
		return tools.ErrorResult("The reminder could not be stored, so it is not set. Try again later.").WithError(err)
	}
	return tools.SilentResult(fmt.Sprintf("Reminder %s is set for %s%s: %s", id, due.Format(reminderFormat), zoneName(loc), what))
}

// room refuses one reminder too many, but not the same one again.
func (t *RemindTool) room(ctx context.Context, at bus.Address, id string) *tools.ToolResult {
	all, err := t.book.Reminders(ctx, at)
	if err != nil {
		return tools.ErrorResult("The reminders cannot be read at the moment, so nothing was set. Try again later.").WithError(err)
	}
	if len(all) < maxReminders {
		return nil
	}
	for i := range all {
		if all[i].ID == id {
			return nil
		}
	}
	return tools.ErrorResult(fmt.Sprintf("This conversation already has %d reminders, which is the most: cancel one first.", len(all)))
}

func (t *RemindTool) list(ctx context.Context, at bus.Address) *tools.ToolResult {
	all, err := t.book.Reminders(ctx, at)
	if err != nil {
		return tools.ErrorResult("The reminders cannot be read at the moment. Try again later.").WithError(err)
	}
	if len(all) == 0 {
		return tools.SilentResult("There are no reminders in this conversation.")
	}
	loc := t.location(ctx, at)
	var b strings.Builder
	fmt.Fprintf(&b, "Reminders in this conversation%s:", zoneName(loc))
	for i := range all {
		fmt.Fprintf(&b, "\n- %s: %s: %s", all[i].ID, all[i].Due.In(loc).Format(reminderFormat), all[i].Text)
	}
	return tools.SilentResult(b.String())
}

func (t *RemindTool) cancel(ctx context.Context, at bus.Address, id string) *tools.ToolResult {
	if id == "" {
		return tools.ErrorResult("id is required to cancel a reminder: list them to see the ids.")
	}
	found, err := t.book.CancelReminder(ctx, at, id)
	switch {
	case err != nil:
		return tools.ErrorResult("The reminder could not be cancelled at the moment. Try again later.").WithError(err)
	case !found:
		return tools.ErrorResult("There is no reminder " + id + " in this conversation: list them to see the ids.")
	}
	return tools.SilentResult("Reminder " + id + " is cancelled.")
}

// zoneName names a time zone in parentheses, where its name tells more than the
// abbreviation in the time does.
func zoneName(loc *time.Location) string {
	if loc == time.Local || loc == time.UTC {
		return ""
	}
	return " (" + loc.String() + ")"
}

func (t *RemindTool) location(ctx context.Context, at bus.Address) *time.Location {
	if t.zone != nil {
		if loc := t.zone(ctx, at); loc != nil {
			return loc
		}
	}
	return time.Local
}
