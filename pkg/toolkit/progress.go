package toolkit

import (
	"cmp"
	"context"
	"sync"

	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// ProgressStatus says where a request is.
type ProgressStatus string

// Where a request is. The last two end its updates.
const (
	ProgressStarted   ProgressStatus = "started"
	ProgressRunning   ProgressStatus = "running" // the tool tells how far it has come
	ProgressCompleted ProgressStatus = "completed"
	ProgressFailed    ProgressStatus = "failed" // also: not run
)

// ProgressUpdate tells how far a request has come.
type ProgressUpdate struct {
	ToolID   string  // the request's ID, or its key in a batch, or else the tool's name
	Progress float64 // 0.0 to 1.0
	Message  string  // for a person, may be empty
	Status   ProgressStatus
}

type updatesKey struct{}

// WithProgress returns a context whose requests send their updates to updates;
// the tools say how far they have come with tools.Progress. A request sends
// nothing after its outcome is there. Nobody waits for the reader: an update
// that finds the channel full is dropped, the last one too, so give it room.
func WithProgress(ctx context.Context, updates chan<- ProgressUpdate) context.Context {
	return context.WithValue(ctx, updatesKey{}, updates)
}

// watch sends one request's updates. nil sends none.
type watch struct {
	id, tool string

	mu      sync.Mutex // a tool may report from goroutines that outlive the request
	updates chan<- ProgressUpdate
	over    bool
}

// watchOf returns the watch of a request, nil if nobody listens.
func watchOf(ctx context.Context, req ToolRequest) *watch {
	updates, _ := ctx.Value(updatesKey{}).(chan<- ProgressUpdate)
	if updates == nil {
		return nil
	}
	return &watch{id: cmp.Or(req.ID, req.Name), tool: req.Name, updates: updates}
}

// follow returns a context in which the tool's reports become updates.
func (w *watch) follow(ctx context.Context) context.Context {
	if w == nil {
		return ctx
	}
	w.send(ProgressStarted, 0, "")
	return tools.WithProgress(ctx, func(call tools.Call, fraction float64, message string) {
		if call.Tool == w.tool { // not a tool that it calls in turn
			w.send(ProgressRunning, fraction, message)
		}
	})
}

// end sends the last update.
func (w *watch) end(result ToolResult) {
	if w == nil {
		return
	}
	if result.Success {
		w.send(ProgressCompleted, 1, "")
	} else {
		w.send(ProgressFailed, 1, result.Error)
	}
}

func (w *watch) send(status ProgressStatus, fraction float64, message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return // the reader may have closed the channel
	}
	w.over = status == ProgressCompleted || status == ProgressFailed
	select {
	case w.updates <- ProgressUpdate{ToolID: w.id, Progress: fraction, Message: message, Status: status}:
	default:
	}
}
