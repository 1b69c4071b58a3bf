package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/dragoman-chat/dragoman/pkg/gateway"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// Gateway is what is read of a *gateway.Gateway.
type Gateway interface {
	Counts() gateway.Counts
	Load() gateway.Load
}

// Registry is what is read of a *tools.ToolRegistry.
type Registry interface{ Stats() tools.Stats }

// Watch adds what g and r count. It is called once, before the Handler serves.
func (m *Metrics) Watch(g Gateway, r Registry) { m.registry.MustRegister(&reader{g, r}) }

// reader is a prometheus.Collector over counts that are kept elsewhere.
type reader struct {
	gateway Gateway
	tools   Registry
}

// figures are what is known at a moment.
type figures struct {
	gateway.Counts
	gateway.Load
	tools.Stats
}

// read says how one figure is shown. Those of one name stand together.
type read struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	value  func(*figures) float64
	labels []string
}

func counter(name, help string, value func(*figures) int64) read {
	return read{describe(name, help), prometheus.CounterValue, func(f *figures) float64 { return float64(value(f)) }, nil}
}

func gauge(name, help string, value func(*figures) float64) read {
	return read{describe(name, help), prometheus.GaugeValue, value, nil}
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(namespace+"_"+name, help, labels, nil)
}

var turnsTotal = describe("turns_total", "Turns that ended, by how.", "outcome")

func turns(outcome string, value func(*figures) int64) read {
	r := counter("", "", value)
	r.desc, r.labels = turnsTotal, []string{outcome}
	return r
}

var reads = []read{
	counter("messages_admitted_total", "Messages taken in, follow-ups included.", func(f *figures) int64 { return f.Admitted }),
	counter("messages_duplicate_total", "Messages that were known already, and were dropped.", func(f *figures) int64 { return f.Duplicates }),
	counter("messages_dropped_total", "Messages that were not for the bot, or too old.", func(f *figures) int64 { return f.Dropped }),
	counter("messages_refused_total", "Messages of people who may not use the bot.", func(f *figures) int64 { return f.Refused }),
	gauge("messages_waiting", "Messages that wait for their turn.", func(f *figures) float64 { return float64(f.Waiting) }),
	gauge("message_oldest_waiting_seconds", "How long the oldest of the messages that wait for their turn has waited; 0 if there is none.", func(f *figures) float64 { return f.OldestWaiting.Seconds() }),

	turns("done", func(f *figures) int64 { return f.TurnsDone }),
	turns("failed", func(f *figures) int64 { return f.TurnsFailed }),
	turns("stopped", func(f *figures) int64 { return f.TurnsStopped }),
	turns("set_aside", func(f *figures) int64 { return f.TurnsAside }),
	gauge("turns_running", "Turns that run, or wait for their slot.", func(f *figures) float64 { return float64(f.Turns) }),
	counter("model_failures_total", "Turns that failed because of the model.", func(f *figures) int64 { return f.ModelFailures }),
	counter("follow_ups_shown_total", "Background results and reminders shown without a turn.", func(f *figures) int64 { return f.FollowUps }),

	counter("sends_total", "Messages a platform has taken.", func(f *figures) int64 { return f.Sent }),
	counter("send_retries_total", "Attempts to send that failed and were followed by another.", func(f *figures) int64 { return f.SendRetries }),
	counter("sends_maybe_twice_total", "Messages sent again that may have arrived before.", func(f *figures) int64 { return f.MaybeTwice }),
	counter("sends_given_up_total", "Messages that could not be delivered.", func(f *figures) int64 { return f.GivenUp }),
	gauge("sends_waiting", "Messages that wait for their platform, or are being sent.", func(f *figures) float64 { return float64(f.Unsent) }),
	gauge("send_oldest_waiting_seconds", "How long the oldest of the messages that wait for their platform has waited; 0 if there is none.", func(f *figures) float64 { return f.OldestUnsent.Seconds() }),

	counter("ledger_waits_total", "Times something waited for a ledger that could not be written.", func(f *figures) int64 { return f.LedgerWaits }),

	counter("tool_lock_waits_total", "Tool calls that waited because the tool was busy in another conversation.", func(f *figures) int64 { return f.LegacyWaits }),
	{describe("tool_lock_wait_seconds_total", "How long tool calls waited, in all, because the tool was busy in another conversation."), prometheus.CounterValue, func(f *figures) float64 { return f.LegacyWait.Seconds() }, nil},
	counter("tool_lock_refusals_total", "Tool calls refused because the tool stayed busy in another conversation.", func(f *figures) int64 { return f.LegacyBusy }),
	counter("tool_unknown_total", "Calls of tools that do not exist.", func(f *figures) int64 { return f.Unknown }),
	counter("tool_timeouts_total", "Tool calls whose time was up.", func(f *figures) int64 { return f.TimedOut }),
	gauge("tools_abandoned", "Tool calls that were given up and whose tool still works.", func(f *figures) float64 { return float64(f.Abandoned) }),
	gauge("background_tasks", "Background tasks that have not reported back yet.", func(f *figures) float64 { return float64(f.Background) }),
}

// Describe implements prometheus.Collector.
func (*reader) Describe(to chan<- *prometheus.Desc) {
	for _, r := range reads {
		to <- r.desc
	}
}

// Collect implements prometheus.Collector.
func (c *reader) Collect(to chan<- prometheus.Metric) {
	now := &figures{c.gateway.Counts(), c.gateway.Load(), c.tools.Stats()}
	for _, r := range reads {
		to <- prometheus.MustNewConstMetric(r.desc, r.kind, r.value(now), r.labels...)
	}
}
