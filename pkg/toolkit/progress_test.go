package toolkit_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/dragoman-chat/dragoman/pkg/toolkit"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

func TestProgressOfOneRequest(t *testing.T) {
	core := tools.NewToolRegistry()
	r := toolkit.Over(core)
	for _, tool := range []toolkit.Tool{
		&fake{name: "inner", run: func(ctx context.Context, _ map[string]interface{}) (toolkit.ToolResult, error) {
			tools.Progress(ctx, 0.9, "inside")
			return good("x"), nil
		}},
		&fake{name: "work", run: func(ctx context.Context, _ map[string]interface{}) (toolkit.ToolResult, error) {
			tools.Progress(ctx, 0.25, "reading")
			core.Execute(ctx, "inner", nil) // whose progress is not that of the request
			return toolkit.ToolResult{}, errDisk
		}},
	} {
		if err := r.Register(tool); err != nil {
			t.Fatal(err)
		}
	}
	updates := make(chan toolkit.ProgressUpdate, 10)
	if _, err := r.Execute(toolkit.WithProgress(t.Context(), updates), toolkit.ToolRequest{ID: "r1", Name: "work"}); err == nil {
		t.Error("no error")
	}
	close(updates)
	got := slices.Collect(func(yield func(toolkit.ProgressUpdate) bool) {
		for u := range updates {
			yield(u)
		}
	})
	want := []toolkit.ProgressUpdate{
		{ToolID: "r1", Status: toolkit.ProgressStarted},
		{ToolID: "r1", Status: toolkit.ProgressRunning, Progress: 0.25, Message: "reading"},
		{ToolID: "r1", Status: toolkit.ProgressFailed, Progress: 1, Message: "the disk is full"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// A full channel holds nobody up, and after the outcome nothing more is sent, so
// that the channel may be closed however long a tool's goroutines live.
func TestProgressNeverWaitsAndEnds(t *testing.T) {
	late := make(chan context.Context, 1)
	r := registry(t, &fake{name: "work", run: func(ctx context.Context, _ map[string]interface{}) (toolkit.ToolResult, error) {
		late <- ctx
		for range 100 {
			tools.Progress(ctx, 0.5, "")
		}
		return good("done"), nil
	}})
	updates := make(chan toolkit.ProgressUpdate) // nobody reads
	if _, err := r.Execute(toolkit.WithProgress(t.Context(), updates), toolkit.ToolRequest{Name: "work"}); err != nil {
		t.Fatal(err)
	}
	close(updates)
	tools.Progress(<-late, 0.7, "too late")
}

// Every request of a batch ends its updates, also one that is not run.
func TestProgressOfABatch(t *testing.T) {
	r := registry(t, &fake{name: "work"}, &fake{name: "fail", run: func(context.Context, map[string]interface{}) (toolkit.ToolResult, error) {
		return toolkit.ToolResult{}, errDisk
	}})
	updates := make(chan toolkit.ProgressUpdate, 10)
	last := map[string]toolkit.ProgressUpdate{}
	var reader sync.WaitGroup
	reader.Go(func() {
		for u := range updates {
			if end, ok := last[u.ToolID]; ok && end.Status != toolkit.ProgressStarted {
				t.Errorf("%+v after %+v", u, end)
			}
			last[u.ToolID] = u
		}
	})
	_, err := r.ExecuteBatch(toolkit.WithProgress(t.Context(), updates), []toolkit.ToolRequest{
		{Name: "work"}, {Name: "fail"}, {ID: "after", Name: "work", DependsOn: []string{"fail"}},
	})
	close(updates)
	reader.Wait()
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]toolkit.ProgressUpdate{
		"work_0": {ToolID: "work_0", Progress: 1, Status: toolkit.ProgressCompleted},
		"fail":   {ToolID: "fail", Progress: 1, Message: "the disk is full", Status: toolkit.ProgressFailed},
		"after":  {ToolID: "after", Progress: 1, Message: "skipped because fail failed", Status: toolkit.ProgressFailed},
	} {
		if last[id] != want {
			t.Errorf("%s ends with %+v, want %+v", id, last[id], want)
		}
	}
}
