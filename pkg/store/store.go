// Package store is the ledger: everything that has to outlive a crash, behind
// one interface. Implementations live in sub-packages and pass the kit in
// storetest.
//
// All writing goes through one value, Tx: a list of changes that happen
// together or not at all. A turn's end, for example, is one Tx with the new
// history, one outbox row per platform message and the end of the turn. An
// implementation is free to group many Tx values into one commit.
//
// Values are handed over: the maps, pointers and slices inside a message, a
// step or a task may be shared between the store and whoever reads them, so
// nobody changes them once they are in a Tx. The slices of a Tx and of what a
// method returns are the caller's own. Times keep their instant to the
// millisecond at least; their location may be lost.
package store

import (
	"context"
	"errors"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// Inbound is a row of the inbox: an admitted message that waits for its turn.
type Inbound struct {
	Seq      int64 // order of admission, unique, ascending over all conversations
	Admitted time.Time
	Message  bus.InboundMessage
}

// Turn is one run of the agent: the messages it answers and, while it is open,
// what it has done so far.
type Turn struct {
	ID      string
	Address bus.Address
	Session string
	Inbound []int64 // the rows it answers, in order
	Started time.Time
	Steps   []Step // filled by OpenTurns, in the order they were written
	Mark    Mark   // filled by OpenTurns: what the last start noted about it
}

// Mark is what a start notes about a turn that an earlier process left open, so
// that one that ends the process again and again is found out. A turn has one:
// a later Mark replaces it, the end of the turn drops it.
type Mark struct {
	Turn    string
	Strikes int  // starts in a row that found no new step
	Steps   int  // how many steps the last start found
	Alone   bool // it runs, or ran, with nothing beside it
}

// StepKind says what a step records.
type StepKind string

// The moments of a round that are recorded.
const (
	StepReply  StepKind = "reply"  // the model's reply, with its calls
	StepBegin  StepKind = "begin"  // a call is about to run
	StepEnd    StepKind = "end"    // a call has its result
	StepInject StepKind = "inject" // a message comes in from outside
)

// Step is one entry of a turn's journal. With it a turn resumes where it was:
// recorded replies are not asked for again, finished calls not run again.
type Step struct {
	Turn    string
	Round   int // 1-based iteration of the loop
	Kind    StepKind
	Finish  string            // StepReply: the model's finish reason
	CallID  string            // StepBegin, StepEnd
	Tool    string            // StepBegin, StepEnd
	Message providers.Message // StepReply: the assistant's; StepEnd: the tool's; StepInject: what comes in

	Time    time.Time       // when it was written; zero: not known
	Took    time.Duration   // StepReply, StepEnd: how long the model, the tool took
	Usage   providers.Usage // StepReply: what it cost; zero: not known
	Request string          // StepReply: the providers.Fingerprint of what the model was sent
}

// Entry is one message of a conversation's history.
type Entry struct {
	Session string
	Turn    string // the turn, or the follow-up, that added it; what Undo takes back together
	Message providers.Message
	Time    time.Time
	Summary bool // set by History: Message stands for all that came before
}

// Summary stands for the older part of a conversation from now on, in the place
// of an earlier Summary, whose text it includes. The entries themselves are
// kept, not shown.
//
// Keep counts at the moment of the change: who made the text from what History
// returned a while ago adds what has come since.
type Summary struct {
	Session string
	Text    string // empty: what came before is left out without a word
	Keep    int    // how many of the newest shown entries stay as they are
}

// Amend is a change of a message that has not been answered yet. It reaches the
// open row with that channel and id, whether a turn has taken it or not, and
// also one that the same Tx admits. A message without an id is not reached.
type Amend struct {
	Channel, ID string // of the original message
	Text        string // replaces the message's
	Args        string // replaces the message's
	Deleted     bool   // the row is done and not read again, its turn goes on; Text and Args mean nothing
}

// Outbound is a row of the outbox: one platform message.
type Outbound struct {
	Seq     int64 // order of sending within a conversation, ascending
	Turn    string
	Session string // whose Forget erases it; empty: that of its turn
	Message bus.OutboundMessage
	Created time.Time
}

// Receipt ends an outbox row: delivered, or given up with a reason.
type Receipt struct {
	Key    string // the row's idempotency key
	Result bus.Receipt
	Failed string // why it was given up; empty means delivered
}

// Schedule is something that comes back later, such as a reminder. Its route is
// fixed when it is made.
type Schedule struct {
	ID         string
	Address    bus.Address
	Parent     bus.Address
	SessionKey string
	Principal  string
	Sender     bus.Sender
	Group      bool
	Hops       int
	Due        time.Time
	Text       string
	Created    time.Time
}

// TaskState is how far a background task has come.
type TaskState string

// The states of a task, in order.
const (
	TaskPending   TaskState = "pending"   // it runs
	TaskDone      TaskState = "done"      // its result is stored, not yet taken into the inbox
	TaskDelivered TaskState = "delivered" // its result is in the inbox or in the outbox
)

// Task is an asynchronous tool call. The row is written before the tool's
// AsyncResult reaches the model, the result before it is delivered.
type Task struct {
	ID         string // the turn, the round and the call id
	Tool       string
	Label      string
	Address    bus.Address
	Parent     bus.Address
	SessionKey string
	Principal  string
	Sender     bus.Sender
	Group      bool
	ReplyTo    string
	Metadata   map[string]string
	Hops       int
	State      TaskState
	Result     *bus.FollowUp // from TaskDone on
	Started    time.Time
}

// Fact is a small durable value by key. An empty value removes it.
type Fact struct{ Key, Value string }

// Tx is a set of changes applied together, in the order of the fields. What
// names a row, turn or task the store does not hold (any more) changes nothing,
// so that a change that comes twice or late does no harm; a turn, outbox row,
// schedule or task without its id or key is refused.
//
// Undo takes the newest shown entries that have the same Turn out of a history,
// as far back as they stand in a row. Where Turn is empty it takes one user's
// message and what follows it. What it takes is kept, not shown; what is written
// next follows what is left. It stops at a Summary and at a Reset. A session
// named twice loses two turns.
//
// Forget erases what is over: a session's history with what Undo, Reset and a
// Summary took out of sight, its summary, the done inbox rows with its
// SessionKey, the steps of its ended turns, and its outbox rows that have a
// receipt. What recognises a repetition stays: the ids of messages, the keys and
// receipts of outbox rows, the ids of tasks. So does all that is open, complete:
// rows, turns with their steps, unsent rows, schedules and tasks.
type Tx struct {
	Admit      []bus.InboundMessage // new inbox rows; one whose (Channel, ID) is known is skipped, one without ID never is
	Amend      []Amend              // open rows only
	Facts      []Fact
	Marks      []Mark // of open turns
	Begin      *Turn  // opens a turn and takes its inbox rows; one that is open already takes more rows
	Steps      []Step
	History    []Entry
	Undo       []string // sessions whose newest turn is taken out of the history, see below
	Summaries  []Summary
	Reset      []string   // sessions whose history starts anew, without a summary; what was is kept, not shown
	Forget     []string   // sessions of which no text is kept, see below
	Send       []Outbound // new outbox rows; one whose Key is known is skipped. Seq is set by the store
	Receipts   []Receipt  // the first one for a row counts
	Done       []int64    // inbox rows that need no turn any more
	End        []string   // turns that are over: their inbox rows are done, their steps no longer open
	Schedules  []Schedule // inserted, or replaced by ID
	Unschedule []string
	Tasks      []Task // inserted, or replaced by ID; one that would take its state back changes nothing
}

// Result is what a Tx made.
type Result struct {
	Admitted   []Inbound  // the rows Admit really made, in order, before Amend
	Duplicates int        // how many were known already
	Queued     []Outbound // the rows Send really made, in order
	Amended    []Inbound  // for each Amend that found its row, in order, the row as that Amend left it
}

// ErrClosed is returned by every method after Close.
var ErrClosed = errors.New("store: closed")

// Writer changes the ledger.
type Writer interface {
	// Apply applies tx and returns when it is durable. Safe for concurrent use.
	// On an error nothing of tx was applied: when ctx ends too late to stop it,
	// Apply waits for the outcome.
	Apply(ctx context.Context, tx Tx) (Result, error)
	// Post applies tx after everything the same goroutine applied or posted
	// before, without waiting until it is durable. It may block when too much
	// waits. What was posted can be read when the goroutine's next Apply has
	// returned. A failure shows in Health until a later write succeeds; after
	// Close it does nothing.
	Post(tx Tx)
	// Health returns nil when the ledger can be written, otherwise why not.
	Health() error
	// Close writes what was posted and releases everything. Idempotent.
	Close() error
}

// Queue reads what is still to be done. A limit of 0 or less reads nothing,
// here and below.
type Queue interface {
	// Lanes returns every conversation that has open inbox rows, waiting or
	// taken, in no particular order.
	Lanes(ctx context.Context) ([]bus.Address, error)
	// Waiting returns up to limit open inbox rows of a conversation with
	// Seq > after that no turn has taken, in order.
	Waiting(ctx context.Context, lane bus.Address, after int64, limit int) ([]Inbound, error)
	// OpenTurns returns turns that began and did not end, in that order, with
	// their steps and marks.
	OpenTurns(ctx context.Context) ([]Turn, error)
	// Inbound returns inbox rows by Seq in the order asked for, also done ones
	// while they are kept, and skips those it does not hold and those that were
	// deleted or forgotten. So a turn whose messages were all deleted is open
	// without rows.
	Inbound(ctx context.Context, seqs []int64) ([]Inbound, error)
	// Unsent returns the outbox rows without a receipt, by Seq.
	Unsent(ctx context.Context) ([]Outbound, error)
}

// Memory reads what is known.
type Memory interface {
	// History returns the newest limit entries of a session, oldest first. If
	// there is a Summary, it comes before them and does not count: an entry with
	// Summary set, the role user, the text, and nothing else.
	History(ctx context.Context, session string, limit int) ([]Entry, error)
	// Fact returns the value of key, "" if there is none.
	Fact(ctx context.Context, key string) (string, error)
	// ReceiptFor returns how the row with that key ended; ok is false while it
	// has not, or if the row is unknown.
	ReceiptFor(ctx context.Context, key string) (r Receipt, ok bool, err error)
}

// Calendar reads what comes back later.
type Calendar interface {
	// Schedules returns all schedules of a conversation, or of all of them for
	// the zero Address, by due time, then ID.
	Schedules(ctx context.Context, of bus.Address) ([]Schedule, error)
	// Due returns up to limit schedules due at t or before, by due time, then
	// ID, and when the next one after those is due (zero if none). They stay
	// until Unschedule.
	Due(ctx context.Context, t time.Time, limit int) (due []Schedule, next time.Time, err error)
	// OpenTasks returns tasks that are not delivered, by Started, then ID.
	OpenTasks(ctx context.Context) ([]Task, error)
}

// Store is the whole ledger.
type Store interface {
	Writer
	Queue
	Memory
	Calendar
}
