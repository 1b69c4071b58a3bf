package toolkit

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// batchParallel is how many requests of a batch run at once.
const batchParallel = 4

// BatchResult is the outcome of a batch. Its keys are the requests' IDs. Of a
// request without one, parameters["id"] is the ID and is not passed on, unless
// the tool's schema has such a parameter. Without either, the key is the tool's
// name, or, if that is not unique in the batch, name and index: "read_file_2".
type BatchResult struct {
	Results   map[string]ToolResult `json:"results"` // of every request
	Errors    map[string]error      `json:"errors"`  // ToolErrors, of those that failed
	StartTime time.Time             `json:"start_time"`
	EndTime   time.Time             `json:"end_time"`
	Duration  time.Duration         `json:"duration"`
}

// ExecuteBatch runs requests, at most 4 at once, and blocks until all have an
// outcome. A request starts when those in its DependsOn have succeeded; if one
// of them fails it is skipped, and its error says because of which.
//
// A request that fails is no error of the batch. The error is that the batch
// makes no sense, because two requests have one ID, or one depends on a request
// that is not there or, by whatever way, on itself: then nothing is run. Or it
// is that ctx ended before everything could be started.
func (r *Registry) ExecuteBatch(ctx context.Context, reqs []ToolRequest) (BatchResult, error) {
	b := &batch{registry: r, jobs: r.jobs(reqs)}
	b.result = BatchResult{
		Results: make(map[string]ToolResult, len(reqs)), Errors: make(map[string]error), StartTime: time.Now(),
	}
	err := b.link()
	if err == nil {
		err = b.run(ctx)
	} else {
		for i := range b.jobs {
			b.jobs[i].then = nil // nothing follows from it
			b.fail(ctx, i, "not run: "+err.Error(), err)
		}
	}
	b.result.EndTime = time.Now()
	b.result.Duration = b.result.EndTime.Sub(b.result.StartTime)
	if err != nil {
		err = fmt.Errorf("toolkit: batch: %w", err)
	}
	return b.result, err
}

// batch is a batch that runs. It belongs to the goroutine of ExecuteBatch.
type batch struct {
	registry *Registry
	jobs     []job
	ready    []int // jobs that may start, in order
	result   BatchResult
}

type job struct {
	req     ToolRequest // its ID is the key
	waits   int         // dependencies without an outcome
	then    []int       // jobs that depend on it
	blocked string      // a dependency that failed
}

// jobs gives every request its key.
func (r *Registry) jobs(reqs []ToolRequest) []job {
	jobs := make([]job, len(reqs))
	taken := make(map[string]int, len(reqs))
	for i, req := range reqs {
		if id, ok := req.Parameters["id"].(string); ok && req.ID == "" && id != "" && r.lacksID(req.Name) {
			req.ID = id
			req.Parameters = maps.Clone(req.Parameters)
			delete(req.Parameters, "id")
		}
		jobs[i].req = req
		taken[req.Name]++
		if req.ID != "" && req.ID != req.Name {
			taken[req.ID]++
		}
	}
	for i := range jobs {
		switch req := &jobs[i].req; {
		case req.ID != "":
		case taken[req.Name] == 1:
			req.ID = req.Name
		default:
			req.ID = fmt.Sprintf("%s_%d", req.Name, i)
		}
	}
	return jobs
}

// lacksID reports whether a tool's schema has no parameter "id".
func (r *Registry) lacksID(name string) bool {
	for _, def := range r.core.ToProviderDefs() {
		if def.Function.Name != name {
			continue
		}
		all := def.Function.Parameters["properties"]
		properties, ok := all.(map[string]interface{})
		_, has := properties["id"]
		return !has && (ok || all == nil)
	}
	return true // there is no such tool
}

// link connects the jobs, and returns why they cannot be run.
func (b *batch) link() error {
	byKey := make(map[string]int, len(b.jobs))
	for i, j := range b.jobs {
		if other, ok := byKey[j.req.ID]; ok {
			return fmt.Errorf("requests %d and %d both have the ID %q: give each its own", other, i, j.req.ID)
		}
		byKey[j.req.ID] = i
	}
	for i := range b.jobs {
		for _, key := range b.jobs[i].req.DependsOn {
			on, ok := byKey[key]
			if !ok {
				return fmt.Errorf("%q depends on %q, which is not in the batch: name a request by its ID", b.jobs[i].req.ID, key)
			}
			b.jobs[i].waits++
			b.jobs[on].then = append(b.jobs[on].then, i)
		}
	}
	return b.acyclic(byKey)
}

// acyclic takes one job after the other away that waits for none of the others.
// What is left waits for itself.
func (b *batch) acyclic(byKey map[string]int) error {
	waits := make([]int, len(b.jobs))
	var free []int
	for i, j := range b.jobs {
		if waits[i] = j.waits; j.waits == 0 {
			free = append(free, i)
		}
	}
	for n := 0; n < len(free); n++ {
		for _, i := range b.jobs[free[n]].then {
			if waits[i]--; waits[i] == 0 {
				free = append(free, i)
			}
		}
	}
	if len(free) == len(b.jobs) {
		return nil
	}
	var way []string
	for i := slices.IndexFunc(waits, func(n int) bool { return n > 0 }); ; {
		key := b.jobs[i].req.ID
		if at := slices.Index(way, key); at >= 0 {
			return fmt.Errorf("requests depend on each other in a circle: %s", strings.Join(append(way[at:], key), " -> "))
		}
		way = append(way, key)
		on := slices.IndexFunc(b.jobs[i].req.DependsOn, func(key string) bool { return waits[byKey[key]] > 0 })
		i = byKey[b.jobs[i].req.DependsOn[on]]
	}
}

// run runs the jobs. It returns why some were not started.
func (b *batch) run(ctx context.Context) error {
	type done struct {
		job    int
		result ToolResult
		err    error
	}
	var cut error
	outcomes := make(chan done, batchParallel)
	for i, j := range b.jobs {
		if j.waits == 0 {
			b.ready = append(b.ready, i)
		}
	}
	for running := 0; running > 0 || len(b.ready) > 0; {
		if len(b.ready) > 0 && running < batchParallel {
			i := b.ready[0]
			b.ready = b.ready[1:]
			if ctx.Err() != nil {
				cut = context.Cause(ctx)
				b.fail(ctx, i, "not run: "+cut.Error(), cut)
				continue
			}
			running++
			b.registry.launch(ctx, b.jobs[i].req, func(result ToolResult, err error) { outcomes <- done{i, result, err} })
			continue
		}
		d := <-outcomes
		running--
		b.settle(ctx, d.job, d.result, d.err)
	}
	return cut
}

// settle notes an outcome and frees who waits for it.
func (b *batch) settle(ctx context.Context, i int, result ToolResult, err error) {
	key := b.jobs[i].req.ID
	b.result.Results[key] = result
	if err != nil {
		b.result.Errors[key] = err
	}
	for _, next := range b.jobs[i].then {
		j := &b.jobs[next]
		if err != nil && j.blocked == "" {
			j.blocked = key
		}
		if j.waits--; j.waits > 0 {
			continue
		}
		if j.blocked == "" {
			b.ready = append(b.ready, next)
			continue
		}
		b.fail(ctx, next, "skipped because "+j.blocked+" failed", b.result.Errors[j.blocked])
	}
}

// fail is the outcome of a job that is not run.
func (b *batch) fail(ctx context.Context, i int, message string, cause error) {
	result, err := failure(b.jobs[i].req, message, cause)
	watchOf(ctx, b.jobs[i].req).end(result)
	b.settle(ctx, i, result, err)
}
