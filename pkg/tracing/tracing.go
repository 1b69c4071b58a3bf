// Package tracing makes OpenTelemetry spans of what the daemon does, by the
// conventions for generative AI: invoke_agent for each turn and sub-agent, in it
// chat for each request to a model and execute_tool for each call. It sends them
// to a collector by OTLP over HTTP.
//
// What people, models and tools say stays out of the spans unless Options asks
// for it. Only programs built with the tag "otlp" import this package.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// Options is what a Tracer is made of.
type Options struct {
	Endpoint string  // the collector's address, "http://127.0.0.1:4318"
	Sample   float64 // which part of the turns is traced, 0 to 1
	Content  bool    // spans also hold messages, arguments, results and the words of errors
	Version  string  // of the program
	// Hide blots out secrets in what Content adds. nil: nothing is hidden.
	Hide func(string) string
	Log  *slog.Logger // hears of spans that could not be sent
}

// Tracer makes spans. Its methods are safe for concurrent use.
type Tracer struct {
	spans   *sdk.TracerProvider
	send    sdk.SpanExporter
	tracer  trace.Tracer
	content bool
	hide    func(string) string
}

// New returns a Tracer. It does no I/O; spans are sent after Start. What the
// variables OTEL_EXPORTER_OTLP_HEADERS, OTEL_RESOURCE_ATTRIBUTES, OTEL_BSP_ and
// OTEL_SPAN_ say holds as well. An error is about the address or one of those.
func New(o Options) (*Tracer, error) {
	collector, err := newClient(o.Endpoint, os.Getenv("OTEL_EXPORTER_OTLP_HEADERS"))
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	about, err := resource.New(context.Background(), resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", agentName), attribute.String("service.version", o.Version),
	), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	t := newTracer(o, sdk.WithResource(about), sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(o.Sample))))
	exporter, err := otlptrace.New(context.Background(), collector) // which has nothing to start
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	t.send = &teller{SpanExporter: exporter, log: o.Log}
	return t, nil
}

func newTracer(o Options, options ...sdk.TracerProviderOption) *Tracer {
	t := &Tracer{spans: sdk.NewTracerProvider(options...), content: o.Content, hide: o.Hide}
	if t.hide == nil {
		t.hide = func(s string) string { return s }
	}
	t.tracer = t.spans.Tracer("github.com/dragoman-chat/dragoman/pkg/tracing", trace.WithInstrumentationVersion(o.Version))
	return t
}

// Start begins to send spans, from a goroutine that Stop ends.
// While no collector takes them a bounded number waits, and newer ones are lost.
func (t *Tracer) Start() {
	var bounds []sdk.BatchSpanProcessorOption
	if t.content { // a span may hold a whole conversation
		bounds = append(bounds, sdk.WithMaxQueueSize(256), sdk.WithMaxExportBatchSize(64))
	}
	t.spans.RegisterSpanProcessor(sdk.NewBatchSpanProcessor(t.send, bounds...))
}

// Stop sends what is left and ends the Tracer. It blocks until that is done or
// ctx ends; the rest is lost then, and the error says so.
func (t *Tracer) Stop(ctx context.Context) error {
	if err := t.spans.Shutdown(ctx); err != nil {
		return fmt.Errorf("tracing: send the last spans: %w", err)
	}
	return nil
}

// teller logs that spans could not be sent, once until it works again. The SDK
// would write it to the process's standard error.
type teller struct {
	sdk.SpanExporter
	log    *slog.Logger
	failed atomic.Bool
}

func (s *teller) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := s.SpanExporter.ExportSpans(ctx, spans)
	if failed := err != nil; s.failed.Swap(failed) != failed {
		if failed {
			s.log.Warn("spans cannot be sent to the collector, they are lost", "err", err)
		} else {
			s.log.Info("spans can be sent again")
		}
	}
	return nil
}

// begin starts a span of the given operation.
func (t *Tracer) begin(ctx context.Context, operation, of string, kind trace.SpanKind, attrs ...attribute.KeyValue) (context.Context, trace.Span) {
	name := operation
	if of != "" {
		name += " " + of
	}
	return t.tracer.Start(ctx, name, trace.WithSpanKind(kind), trace.WithAttributes(operationName.String(operation)), trace.WithAttributes(attrs...))
}

// The operations, and the names of attributes.
const (
	opAgent = "invoke_agent"
	opChat  = "chat"
	opTool  = "execute_tool"

	operationName  = attribute.Key("gen_ai.operation.name")
	providerName   = attribute.Key("gen_ai.provider.name")
	requestModel   = attribute.Key("gen_ai.request.model")
	finishReasons  = attribute.Key("gen_ai.response.finish_reasons")
	firstChunk     = attribute.Key("gen_ai.response.time_to_first_chunk")
	inputTokens    = attribute.Key("gen_ai.usage.input_tokens")
	outputTokens   = attribute.Key("gen_ai.usage.output_tokens")
	cacheRead      = attribute.Key("gen_ai.usage.cache_read.input_tokens")
	cacheCreation  = attribute.Key("gen_ai.usage.cache_creation.input_tokens")
	reasoning      = attribute.Key("gen_ai.usage.reasoning.output_tokens")
	agentNameKey   = attribute.Key("gen_ai.agent.name")
	conversationID = attribute.Key("gen_ai.conversation.id")
	toolName       = attribute.Key("gen_ai.tool.name")
	toolType       = attribute.Key("gen_ai.tool.type")
	toolCallID     = attribute.Key("gen_ai.tool.call.id")
	errorType      = attribute.Key("error.type")
	turnID         = attribute.Key("dragoman.turn.id")
	rounds         = attribute.Key("dragoman.turn.rounds")
	stopReason     = attribute.Key("dragoman.turn.stop_reason")
	background     = attribute.Key("dragoman.tool.background")

	// These hold content.
	systemText     = attribute.Key("gen_ai.system_instructions")
	inputMessages  = attribute.Key("gen_ai.input.messages")
	outputMessages = attribute.Key("gen_ai.output.messages")
	toolArguments  = attribute.Key("gen_ai.tool.call.arguments")
	toolResult     = attribute.Key("gen_ai.tool.call.result")
)

// spent notes what was spent on a model; what it did not tell stays away.
func spent(span trace.Span, u *providers.Usage) {
	if u == nil {
		return
	}
	for _, n := range []attribute.KeyValue{
		inputTokens.Int(u.PromptTokens), outputTokens.Int(u.CompletionTokens),
		cacheRead.Int(u.CacheReadTokens), cacheCreation.Int(u.CacheWriteTokens), reasoning.Int(u.ReasoningTokens),
	} {
		if n.Value.AsInt64() > 0 {
			span.SetAttributes(n)
		}
	}
}

// failed notes how what a span stands for went wrong. What an error says may
// repeat a message, so it counts as content.
func (t *Tracer) failed(span trace.Span, kind string, err error) {
	words := ""
	if t.content && err != nil {
		words = t.hide(err.Error())
	}
	span.SetStatus(codes.Error, words)
	span.SetAttributes(errorType.String(kind))
}

// kindOf is the class of an error: a providers.ErrorKind, cancelled, timeout, or
// _OTHER.
func kindOf(ctx context.Context, err error) string {
	kind := providers.KindOf(err)
	switch {
	case errors.Is(ctx.Err(), context.Canceled), errors.Is(err, context.Canceled):
		return "cancelled"
	case kind != "":
		return string(kind)
	case errors.Is(err, context.DeadlineExceeded):
		return string(providers.KindTimeout)
	}
	return "_OTHER"
}
