package toolkit_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/toolkit"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

var errDisk = errors.New("the disk is full")

func TestRegisterRefuses(t *testing.T) {
	r := registry(t, &fake{name: "taken"})
	for name, tool := range map[string]toolkit.Tool{
		"nil":          nil,
		"typed nil":    (*fake)(nil),
		"no name":      &fake{},
		"illegal name": &fake{name: "a b"},
		"taken":        &fake{name: "taken"},
		"no object":    &fake{name: "a", schema: map[string]interface{}{"type": "string"}},
		"no schema":    &fake{name: "a", schema: map[string]interface{}{"type": "object", "required": 7}},
	} {
		if err := r.Register(tool); err == nil {
			t.Errorf("%s is registered", name)
		}
	}
	if got := r.List(); !slices.Equal(got, []string{"taken"}) {
		t.Errorf("there are %q", got)
	}
}

func TestRegistryKeepsTools(t *testing.T) {
	b := &fake{name: "b"}
	r := registry(t, b, &fake{name: "a"})
	if got := r.List(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("there are %q", got)
	}
	if got, ok := r.Get("b"); !ok || got != toolkit.Tool(b) {
		t.Errorf("got %v, %v", got, ok)
	}
	r.Unregister("b")
	r.Unregister("never there")
	if got, ok := r.Get("b"); ok || got != nil {
		t.Errorf("got %v after it was removed", got)
	}
}

// Whatever comes of a run is in the result and in the error, and the metadata
// tells of it.
func TestExecuteTellsWhatHappened(t *testing.T) {
	data := map[string]interface{}{"n": 1}
	for name, tc := range map[string]struct {
		outcome toolkit.ToolResult
		err     error
		want    toolkit.ToolResult
		says    string // the error, "" for none
	}{
		"success":       {outcome: toolkit.ToolResult{Success: true, Content: "x", Data: data}, want: toolkit.ToolResult{Success: true, Content: "x", Data: data}},
		"data only":     {outcome: toolkit.ToolResult{Success: true, Data: data}, want: toolkit.ToolResult{Success: true, Content: `{"n":1}`, Data: data}},
		"nothing":       {outcome: toolkit.ToolResult{Success: true}, want: toolkit.ToolResult{Success: true}},
		"error":         {outcome: good("x"), err: errDisk, want: toolkit.ToolResult{Content: "x", Error: "the disk is full"}, says: "work: the disk is full"},
		"both":          {outcome: toolkit.ToolResult{Error: "not saved"}, err: errDisk, want: toolkit.ToolResult{Error: "not saved"}, says: "work: not saved (the disk is full)"},
		"no success":    {outcome: toolkit.ToolResult{Error: "exit status 1", Content: "output", Data: data}, want: toolkit.ToolResult{Error: "exit status 1", Content: "output", Data: data}, says: "work: exit status 1"},
		"without words": {want: toolkit.ToolResult{Error: "The tool failed and did not say why."}, says: "work: The tool failed and did not say why."},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				params := map[string]interface{}{"p": "v"}
				r := registry(t, &fake{name: "work", run: func(context.Context, map[string]interface{}) (toolkit.ToolResult, error) {
					time.Sleep(time.Second)
					return tc.outcome, tc.err
				}})
				start := time.Now()
				got, err := r.Execute(t.Context(), toolkit.ToolRequest{Name: "work", Parameters: params})
				want := toolkit.ToolMetadata{ExecutionTime: time.Second, StartTime: start, EndTime: start.Add(time.Second), ToolName: "work", Parameters: params}
				if m := got.Metadata; m.ExecutionTime != want.ExecutionTime || !m.StartTime.Equal(want.StartTime) || !m.EndTime.Equal(want.EndTime) || m.ToolName != "work" || m.Parameters["p"] != "v" {
					t.Errorf("the metadata is %+v", m)
				}
				if got.Success != tc.want.Success || got.Content != tc.want.Content || got.Error != tc.want.Error || len(got.Data) != len(tc.want.Data) {
					t.Errorf("got %+v, want %+v", got, tc.want)
				}
				if tc.says == "" {
					if err != nil {
						t.Errorf("got %v", err)
					}
					return
				}
				if failed := toolError(t, err); failed.Error() != tc.says || failed.Cause != tc.err { //nolint:errorlint // the very same
					t.Errorf("the error is %q, cause %v", err, failed.Cause)
				}
			})
		})
	}
}

// Unknown parameters pass, unless the schema says that there are none.
func TestUnknownParameters(t *testing.T) {
	closed := object(nil, "a")
	closed["additionalProperties"] = false
	r := registry(t, &fake{name: "open", schema: object(nil, "a")}, &fake{name: "closed", schema: closed})
	for name, fails := range map[string]bool{"open": false, "closed": true} {
		result, err := r.Execute(t.Context(), toolkit.ToolRequest{Name: name, Parameters: map[string]interface{}{"extra": 1}})
		if result.Success == fails || (err != nil) != fails || fails && !strings.Contains(result.Error, "extra") {
			t.Errorf("%s: got %+v, %v", name, result, err)
		}
	}
}

// The tool learns for whom it works, and the request's ID makes the call's.
func TestExecutePassesTheConversationOn(t *testing.T) {
	var call tools.Call
	r := registry(t, &fake{name: "who", run: func(ctx context.Context, _ map[string]interface{}) (toolkit.ToolResult, error) {
		call, _ = tools.CallFrom(ctx)
		return good("x"), nil
	}})
	base := tools.WithCall(t.Context(), tools.Call{ID: "outer", Turn: "t", Principal: "telegram:1", Channel: "telegram", ChatID: "1"})
	for _, tc := range []struct {
		ctx          context.Context
		req          toolkit.ToolRequest
		id, chat, by string
	}{
		{t.Context(), toolkit.ToolRequest{ID: "a", Channel: "discord", ChatID: "2"}, "a", "discord:2", ""},
		{base, toolkit.ToolRequest{ID: "a"}, "outer:a", "telegram:1", "telegram:1"},
		{base, toolkit.ToolRequest{Channel: "discord", ChatID: "2"}, "outer", "discord:2", "telegram:1"},
		{t.Context(), toolkit.ToolRequest{Context: base}, "outer", "telegram:1", "telegram:1"},
	} {
		tc.req.Name = "who"
		if _, err := r.Execute(tc.ctx, tc.req); err != nil {
			t.Fatal(err)
		}
		if call.ID != tc.id || call.Channel+":"+call.ChatID != tc.chat || call.Principal != tc.by {
			t.Errorf("%+v makes %+v", tc.req, call)
		}
	}
}

type valueKey string

// Both contexts end the run and both give it values; a value of the caller's
// cannot be replaced by the request.
func TestRequestContext(t *testing.T) {
	gone := errors.New("gone")
	for name, end := range map[string]func(cancelOwn, cancelCtx context.CancelCauseFunc){
		"the request's ends": func(own, _ context.CancelCauseFunc) { own(gone) },
		"the caller's ends":  func(_, ctx context.CancelCauseFunc) { ctx(gone) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var seen []any
				r := registry(t, &fake{name: "wait", run: func(ctx context.Context, _ map[string]interface{}) (toolkit.ToolResult, error) {
					inner, cancel := context.WithCancel(ctx)
					defer cancel()
					<-inner.Done()
					seen = append(seen, ctx.Value(valueKey("a")), ctx.Value(valueKey("b")))
					return toolkit.ToolResult{}, context.Cause(inner)
				}})
				own, cancelOwn := context.WithCancelCause(context.WithValue(context.WithValue(context.Background(), valueKey("a"), "request"), valueKey("b"), "request"))
				ctx, cancelCtx := context.WithCancelCause(context.WithValue(t.Context(), valueKey("a"), "caller"))
				defer cancelCtx(nil)
				defer cancelOwn(nil)
				results := r.ExecuteAsync(ctx, toolkit.ToolRequest{Name: "wait", Context: own})
				synctest.Wait()
				end(cancelOwn, cancelCtx)
				if result := <-results; result.Error != "gone" || !slices.Equal(seen, []any{"caller", "request"}) {
					t.Errorf("got %+v, and saw %v", result, seen)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		r := registry(t, &fake{name: "wait", run: func(ctx context.Context, _ map[string]interface{}) (toolkit.ToolResult, error) {
			deadline, _ := ctx.Deadline()
			<-ctx.Done()
			return toolkit.ToolResult{Error: time.Until(deadline).String()}, ctx.Err()
		}})
		own, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if result, _ := r.Execute(t.Context(), toolkit.ToolRequest{Name: "wait", Context: own}); result.Error != "0s" || result.Metadata.ExecutionTime != time.Minute {
			t.Errorf("got %+v", result)
		}
		cancel()
		if result, _ := r.Execute(t.Context(), toolkit.ToolRequest{Name: "wait", Context: own}); result.Metadata.ExecutionTime != 0 {
			t.Errorf("a context that had ended: %+v", result)
		}
	})
}

// panics is an error that cannot even be printed.
type panics struct{}

func (panics) Error() string { panic("in Error") }

// What a tool does cannot end the process or leave anybody waiting.
func TestWildToolsAreContained(t *testing.T) {
	wild := map[string]func(context.Context, map[string]interface{}) (toolkit.ToolResult, error){
		"panics":    func(context.Context, map[string]interface{}) (toolkit.ToolResult, error) { panic("secret") },
		"bad_error": func(context.Context, map[string]interface{}) (toolkit.ToolResult, error) { return good("x"), panics{} },
		"bad_data": func(context.Context, map[string]interface{}) (toolkit.ToolResult, error) {
			return toolkit.ToolResult{Success: true, Data: map[string]interface{}{"c": make(chan int)}}, nil
		},
		"goexit": func(context.Context, map[string]interface{}) (toolkit.ToolResult, error) {
			runtime.Goexit()
			return good("x"), nil
		},
	}
	r := toolkit.NewRegistry()
	var reqs []toolkit.ToolRequest
	for name, run := range wild {
		if err := r.Register(&fake{name: name, run: run}); err != nil {
			t.Fatal(err)
		}
		reqs = append(reqs, toolkit.ToolRequest{Name: name})
	}
	batch, err := r.ExecuteBatch(t.Context(), reqs)
	if err != nil || len(batch.Results) != len(wild) || len(batch.Errors) != len(wild)-1 {
		t.Errorf("got %+v, %v", batch, err)
	}
	for name := range wild {
		results := r.ExecuteAsync(t.Context(), toolkit.ToolRequest{Name: name})
		result := <-results
		if result.Success != (name == "bad_data") || strings.Contains(result.Error, "secret") || result.Metadata.ToolName != name {
			t.Errorf("%s: got %+v", name, result)
		}
		if _, more := <-results; more {
			t.Errorf("%s: the channel gives two results", name)
		}
	}
}

// A logger that panics is caught too, above the registry that calls it.
func TestPanicAboveTheTool(t *testing.T) {
	r := toolkit.Over(tools.NewToolRegistryWith(tools.Options{Logger: badLogger()}))
	if err := r.Register(&fake{name: "work"}); err != nil {
		t.Fatal(err)
	}
	result, err := r.Execute(t.Context(), toolkit.ToolRequest{Name: "work"})
	if failed := toolError(t, err); result.Success || !strings.Contains(failed.Error(), "in the log") {
		t.Errorf("got %+v, %v", result, err)
	}
}

func TestExecuteAsyncNeedsNoReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ran := make(chan struct{})
		r := registry(t, &fake{name: "work", run: func(context.Context, map[string]interface{}) (toolkit.ToolResult, error) {
			time.Sleep(time.Minute)
			close(ran)
			return good("done"), nil
		}})
		began := time.Now()
		unread := r.ExecuteAsync(t.Context(), toolkit.ToolRequest{Name: "work"})
		if time.Since(began) != 0 {
			t.Error("ExecuteAsync waits for the tool")
		}
		<-ran
		synctest.Wait() // the bubble ends only when the goroutine has
		if result, ok := <-unread; !ok || result.Content != "done" {
			t.Errorf("got %+v, %v", result, ok)
		}
		if _, ok := <-unread; ok {
			t.Error("the channel is not closed")
		}
	})
}
