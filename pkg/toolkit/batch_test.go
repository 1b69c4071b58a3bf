package toolkit_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/toolkit"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

func with(id string) map[string]interface{} { return map[string]interface{}{"id": id} }

// The key of a request: its ID, its tool's name if that is unique, or name and
// index; parameters["id"] counts unless it means something to the tool.
func TestBatchKeys(t *testing.T) {
	closed := object(nil)
	closed["additionalProperties"] = false
	oddly := map[string]interface{}{"type": "object", "properties": map[string]map[string]string{"id": {"type": "string"}}}
	r := registry(t, &fake{name: "a"}, &fake{name: "b"}, &fake{name: "hasid", schema: object(nil, "id")}, &fake{name: "odd", schema: oddly}, &fake{name: "closed", schema: closed})
	for name, tc := range map[string]struct {
		reqs []toolkit.ToolRequest
		want []string
	}{
		"names":                   {[]toolkit.ToolRequest{{Name: "a"}, {Name: "b"}}, []string{"a", "b"}},
		"the same name":           {[]toolkit.ToolRequest{{Name: "a"}, {Name: "b"}, {Name: "a"}}, []string{"a_0", "a_2", "b"}},
		"IDs":                     {[]toolkit.ToolRequest{{ID: "x", Name: "a"}, {ID: "y", Name: "a"}}, []string{"x", "y"}},
		"one ID":                  {[]toolkit.ToolRequest{{ID: "x", Name: "a"}, {Name: "a"}}, []string{"a_1", "x"}},
		"an ID like a name":       {[]toolkit.ToolRequest{{ID: "a", Name: "b"}, {Name: "a"}}, []string{"a", "a_1"}},
		"an ID like its own name": {[]toolkit.ToolRequest{{ID: "a", Name: "a"}, {Name: "b"}}, []string{"a", "b"}},
		"parameter":               {[]toolkit.ToolRequest{{Name: "a", Parameters: with("x")}, {Name: "closed", Parameters: with("y")}}, []string{"x", "y"}},
		"the tool's own":          {[]toolkit.ToolRequest{{Name: "hasid", Parameters: with("x")}, {Name: "odd", Parameters: with("y")}}, []string{"hasid", "odd"}},
		"ID before parameter":     {[]toolkit.ToolRequest{{ID: "x", Name: "a", Parameters: with("y")}}, []string{"x"}},
		"no such tool":            {[]toolkit.ToolRequest{{Name: "none", Parameters: with("x")}}, []string{"x"}},
		"nothing":                 {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			batch, err := r.ExecuteBatch(t.Context(), tc.reqs)
			if err != nil {
				t.Fatal(err)
			}
			if got := slices.Sorted(maps.Keys(batch.Results)); !slices.Equal(got, tc.want) {
				t.Errorf("the keys are %q, want %q", got, tc.want)
			}
			for key, result := range batch.Results {
				if result.Success == (result.Metadata.ToolName == "none") {
					t.Errorf("%s: %+v", key, result)
				}
				if params := result.Metadata.Parameters; name == "parameter" && len(params) != 0 {
					t.Errorf("%s is called with %v", key, params)
				}
			}
		})
	}
}

// The caller's requests are left as they were.
func TestBatchChangesNoRequest(t *testing.T) {
	r := registry(t, &fake{name: "a"})
	reqs := []toolkit.ToolRequest{{Name: "a", Parameters: with("x")}, {Name: "a"}}
	if _, err := r.ExecuteBatch(t.Context(), reqs); err != nil {
		t.Fatal(err)
	}
	if reqs[0].ID != "" || reqs[0].Parameters["id"] != "x" || reqs[1].ID != "" {
		t.Errorf("the requests are now %+v", reqs)
	}
}

// sleeper is a tool that takes a second and counts how many do so at once.
func sleeper(name string, most *atomic.Int32) *fake {
	var now atomic.Int32
	return &fake{name: name, run: func(context.Context, map[string]interface{}) (toolkit.ToolResult, error) {
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		time.Sleep(time.Second)
		return good("slept"), nil
	}}
}

func TestBatchRunsFourAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var most atomic.Int32
		r := registry(t, sleeper("sleep", &most))
		start := time.Now()
		batch, err := r.ExecuteBatch(t.Context(), slices.Repeat([]toolkit.ToolRequest{{Name: "sleep"}}, 10))
		if err != nil || len(batch.Results) != 10 || most.Load() != 4 {
			t.Errorf("%d results, %d at once, %v", len(batch.Results), most.Load(), err)
		}
		if !batch.StartTime.Equal(start) || batch.Duration != 3*time.Second || !batch.EndTime.Equal(start.Add(batch.Duration)) {
			t.Errorf("took %s, from %s to %s", batch.Duration, batch.StartTime, batch.EndTime)
		}
	})
}

func TestBatchWaitsForDependencies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var most atomic.Int32
		r := registry(t, sleeper("sleep", &most))
		// The diamond a -> b, c -> d in the wrong order, and e alone.
		batch, err := r.ExecuteBatch(t.Context(), []toolkit.ToolRequest{
			{ID: "d", Name: "sleep", DependsOn: []string{"b", "c", "b"}},
			{ID: "b", Name: "sleep", DependsOn: []string{"a"}},
			{ID: "c", Name: "sleep", DependsOn: []string{"a"}},
			{ID: "a", Name: "sleep"},
			{ID: "e", Name: "sleep"},
		})
		if err != nil || len(batch.Errors) != 0 {
			t.Fatal(batch.Errors, err)
		}
		for id, want := range map[string]time.Duration{"a": 0, "e": 0, "b": time.Second, "c": time.Second, "d": 2 * time.Second} {
			if began := batch.Results[id].Metadata.StartTime.Sub(batch.StartTime); began != want {
				t.Errorf("%s began after %s, want %s", id, began, want)
			}
		}
	})
}

// Who depends on a failure is skipped, by whatever way; the rest goes on.
func TestBatchSkipsDependentsOfAFailure(t *testing.T) {
	ran := map[string]bool{}
	r := registry(t, &fake{name: "fail", run: func(context.Context, map[string]interface{}) (toolkit.ToolResult, error) {
		return toolkit.ToolResult{}, errDisk
	}}, &fake{name: "note", schema: object(nil, "who"), run: func(_ context.Context, params map[string]interface{}) (toolkit.ToolResult, error) {
		ran[params["who"].(string)] = true
		return good("x"), nil
	}})
	note := func(id string, on ...string) toolkit.ToolRequest {
		return toolkit.ToolRequest{ID: id, Name: "note", DependsOn: on, Parameters: map[string]interface{}{"who": id}}
	}
	// One after the other, so that the map needs no lock.
	batch, err := r.ExecuteBatch(t.Context(), []toolkit.ToolRequest{
		{ID: "bad", Name: "fail"}, note("ok", "also ok"), note("child", "also ok", "bad"), note("grandchild", "child"), note("also ok"),
	})
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{
		"bad":        "fail: the disk is full",
		"child":      "note: skipped because bad failed (fail: the disk is full)",
		"grandchild": "note: skipped because child failed (note: skipped because bad failed (fail: the disk is full))",
	} {
		got := batch.Errors[id]
		if failed := toolError(t, got); failed.Error() != want || !errors.Is(got, errDisk) {
			t.Errorf("%s: %q, want %q", id, failed, want)
		}
		if result := batch.Results[id]; result.Success || result.Error == "" || result.Metadata.ToolName == "" || result.Metadata.StartTime.IsZero() {
			t.Errorf("%s: %+v", id, result)
		}
	}
	if len(batch.Errors) != 3 || len(batch.Results) != 5 || !maps.Equal(ran, map[string]bool{"ok": true, "also ok": true}) {
		t.Errorf("ran %v, errors %v", ran, batch.Errors)
	}
}

// A batch that makes no sense is not begun, and says why.
func TestBatchRefused(t *testing.T) {
	var runs atomic.Int32
	r := registry(t, &fake{name: "a", run: func(context.Context, map[string]interface{}) (toolkit.ToolResult, error) {
		runs.Add(1)
		return good("x"), nil
	}})
	req := func(id string, on ...string) toolkit.ToolRequest {
		return toolkit.ToolRequest{ID: id, Name: "a", DependsOn: on}
	}
	for want, reqs := range map[string][]toolkit.ToolRequest{
		"in a circle: x -> y -> z -> x":           {req("free"), req("late", "x"), req("x", "free", "y"), req("y", "z"), req("z", "x")},
		"in a circle: self -> self":               {req("self", "self")},
		`"x" depends on "y", which is not in`:     {req("free"), req("x", "y")},
		`requests 1 and 2 both have the ID "x": `: {req("free"), req("x"), req("x")},
		`requests 0 and 2 both have the ID "a_2"`: {req("a_2"), {Name: "a"}, {Name: "a"}},
	} {
		batch, err := r.ExecuteBatch(t.Context(), reqs)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
			continue
		}
		for key, result := range batch.Results {
			if failed := toolError(t, batch.Errors[key]); result.Success || !strings.Contains(result.Error, want) || failed.Message != result.Error {
				t.Errorf("%s: %+v, %v", key, result, failed)
			}
		}
		if len(batch.Results) < len(reqs)-1 || batch.EndTime.IsZero() {
			t.Errorf("got %+v", batch)
		}
	}
	if runs.Load() != 0 {
		t.Errorf("%d requests were run", runs.Load())
	}
}

// When the context ends, what runs ends by it and the rest is not begun.
func TestBatchEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("gone")
		r := registry(t, &fake{name: "wait", run: func(ctx context.Context, _ map[string]interface{}) (toolkit.ToolResult, error) {
			<-ctx.Done()
			return toolkit.ToolResult{}, context.Cause(ctx)
		}})
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(gone) })
		reqs := slices.Repeat([]toolkit.ToolRequest{{Name: "wait"}}, 6)
		reqs = append(reqs, toolkit.ToolRequest{ID: "last", Name: "wait", DependsOn: []string{"wait_5"}})
		batch, err := r.ExecuteBatch(ctx, reqs)
		if !errors.Is(err, gone) || batch.Duration != time.Minute || len(batch.Errors) != 7 {
			t.Errorf("got %v after %s, errors %v", err, batch.Duration, batch.Errors)
		}
		for key, want := range map[string]string{"wait_0": "gone", "wait_5": "not run: gone", "last": "skipped because wait_5 failed"} {
			if got := batch.Results[key].Error; got != want || !errors.Is(batch.Errors[key], gone) {
				t.Errorf("%s: %q, want %q", key, got, want)
			}
		}
	})
}

// Within a tool's call a batch gives the same keys to the same requests, in
// whatever order they run, so that what is stored under them is stored once.
func TestBatchCallKeysAreStable(t *testing.T) {
	var mu sync.Mutex
	var keys []string
	core := tools.NewToolRegistry()
	r := toolkit.Over(core)
	for _, tool := range []toolkit.Tool{
		&fake{name: "leaf", run: func(ctx context.Context, _ map[string]interface{}) (toolkit.ToolResult, error) {
			call, _ := tools.CallFrom(ctx)
			mu.Lock()
			defer mu.Unlock()
			keys = append(keys, call.Key())
			return good(call.ID), nil
		}},
		&fake{name: "fan", run: func(ctx context.Context, _ map[string]interface{}) (toolkit.ToolResult, error) {
			batch, err := r.ExecuteBatch(ctx, slices.Repeat([]toolkit.ToolRequest{{Name: "leaf"}}, 8))
			return good(batch.Results["leaf_3"].Content), err
		}},
	} {
		if err := r.Register(tool); err != nil {
			t.Fatal(err)
		}
	}
	ctx := tools.WithCall(t.Context(), tools.Call{ID: "call_1", Turn: "t"})
	for range 2 {
		if result := core.Execute(ctx, "fan", nil); result.ForLLM != "call_1:leaf_3" {
			t.Errorf("got %+v", result)
		}
	}
	slices.Sort(keys)
	if unique := slices.Compact(slices.Clone(keys)); len(keys) != 16 || len(unique) != 8 {
		t.Errorf("%d calls had %d keys", len(keys), len(unique))
	}
}

// Random graphs: every request has one outcome, and runs if and only if all it
// depends on succeeded.
func TestBatchOfRandomGraphs(t *testing.T) {
	r := registry(t, &fake{name: "good"}, &fake{name: "bad", run: func(context.Context, map[string]interface{}) (toolkit.ToolResult, error) {
		return toolkit.ToolResult{}, errDisk
	}})
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		reqs := make([]toolkit.ToolRequest, rng.IntN(30)+1)
		for i := range reqs {
			reqs[i] = toolkit.ToolRequest{ID: fmt.Sprint(i), Name: "good"}
			if rng.IntN(5) == 0 {
				reqs[i].Name = "bad"
			}
			for n := rng.IntN(4); n > 0 && i > 0; n-- {
				reqs[i].DependsOn = append(reqs[i].DependsOn, fmt.Sprint(rng.IntN(i)))
			}
		}
		rng.Shuffle(len(reqs), func(i, j int) { reqs[i], reqs[j] = reqs[j], reqs[i] })
		batch, err := r.ExecuteBatch(t.Context(), reqs)
		if err != nil || len(batch.Results) != len(reqs) {
			t.Fatalf("seed %d: %d results, %v", seed, len(batch.Results), err)
		}
		for _, req := range reqs {
			failedBefore := slices.ContainsFunc(req.DependsOn, func(id string) bool { return !batch.Results[id].Success })
			result := batch.Results[req.ID]
			if result.Success != (req.Name == "good" && !failedBefore) || strings.HasPrefix(result.Error, "skipped") != failedBefore {
				t.Errorf("seed %d: %+v gives %+v", seed, req, result)
			}
			if (batch.Errors[req.ID] == nil) != result.Success {
				t.Errorf("seed %d: %s has the error %v", seed, req.ID, batch.Errors[req.ID])
			}
		}
	}
}
