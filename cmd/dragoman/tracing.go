package main

import (
	"context"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/agent"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// tracer makes spans of what the daemon does: *tracing.Tracer, in programs that
// are built with the tag "otlp". newTracer makes it; nil, if no traces are asked
// for.
type tracer interface {
	Agent(ctx context.Context, call tools.Call) (context.Context, func(agent.Outcome, error))
	Model(provider, address string, p providers.LLMProvider) providers.LLMProvider
	Tool(next tools.Handler) tools.Handler
	Start()
	Stop(ctx context.Context) error
}

// flushAtLeast is how long the last spans get to leave even if the turns have
// used up the grace.
const flushAtLeast = time.Second

// stopTracing sends the last spans. It takes what is left of the grace until
// end.
func (a *app) stopTracing(ctx context.Context, end time.Time) {
	if a.tracer == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, max(time.Until(end), flushAtLeast))
	defer cancel()
	if err := a.tracer.Stop(ctx); err != nil {
		a.log.Warn("the last spans are lost", "err", err)
	}
}
