package tracing

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/dragoman-chat/dragoman/pkg/agent"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// The names of the agents: the one that answers, and those it hands tasks to.
const (
	agentName    = "dragoman"
	subAgentName = "dragoman-task"
)

// Agent is agent.Config.Around: it makes the span of a turn, or of a sub-agent
// within the call that asked for it.
func (t *Tracer) Agent(ctx context.Context, call tools.Call) (context.Context, func(agent.Outcome, error)) {
	name := agentName
	if call.AgentID != "" {
		name = subAgentName
	}
	ctx, span := t.begin(ctx, opAgent, name, trace.SpanKindInternal,
		agentNameKey.String(name), conversationID.String(call.SessionKey), turnID.String(call.Turn))
	return ctx, func(out agent.Outcome, err error) {
		defer span.End()
		span.SetAttributes(rounds.Int(out.Rounds), stopReason.String(string(out.StopReason)))
		spent(span, &out.Usage)
		if err != nil {
			t.failed(span, kindOf(ctx, err), err)
		}
	}
}
