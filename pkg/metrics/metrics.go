// Package metrics shows what the daemon does in the form that Prometheus reads.
// docs/metrics.md lists what there is. Labels name models, channels and tools of
// the configuration and outcomes of a short list; never a person, a
// conversation, or a word that somebody has written.
//
// What the gateway and the tools count anyway is read when somebody asks; only
// durations and tokens are taken down as they come.
package metrics

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/dragoman-chat/dragoman/pkg/gateway"
)

// Metrics takes down durations and tokens. Its methods are safe for concurrent
// use and do not block.
type Metrics struct {
	registry *prometheus.Registry

	turns, modelCalls, toolCalls, sends *prometheus.HistogramVec
	tokens                              *prometheus.CounterVec
}

// Where the buckets of the histograms end, in seconds: what people wait for, and
// what only takes a moment.
var (
	slow  = []float64{0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300}
	quick = []float64{0.001, 0.005, 0.025, 0.1, 0.5, 1, 5, 15, 60}
)

// New returns metrics of a program of the given version.
func New(version string) *Metrics {
	m := &Metrics{
		registry:   prometheus.NewRegistry(),
		turns:      histogram("turn_duration_seconds", "How long turns took, the wait for a slot included, by how they ended.", slow, "outcome"),
		modelCalls: histogram("model_call_duration_seconds", "How long models took to reply, with their retries, by what came of it: ok, or the kind of failure.", slow, "model", "outcome"),
		toolCalls:  histogram("tool_call_duration_seconds", "How long calls of tools took, the wait for a busy one included, by what came of them.", quick, "tool", "outcome"),
		sends:      histogram("send_duration_seconds", "How long a platform took over an attempt to send, by what came of it.", quick, "channel", "outcome"),
		tokens: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "model_tokens_total",
			Help: "Tokens that models have told of. cache_read and cache_write are part of prompt, reasoning is part of completion.",
		}, []string{"model", "kind"}),
	}
	build := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "build_info", Help: "1, and which version this is.", ConstLabels: prometheus.Labels{"version": version},
	}, func() float64 { return 1 })
	m.registry.MustRegister(m.turns, m.modelCalls, m.toolCalls, m.sends, m.tokens, build,
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewGoCollector(collectors.WithGoCollectorMemStatsMetricsDisabled()))
	return m
}

const namespace = "dragoman"

func histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
}

// Handler serves everything in the text format, or in the other that a scraper
// asks for.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{DisableCompression: true})
}

// Turn is gateway.Config.OnTurn.
func (m *Metrics) Turn(outcome gateway.TurnOutcome, took time.Duration) {
	m.turns.WithLabelValues(string(outcome)).Observe(took.Seconds())
}

// Send is gateway.Config.OnSend.
func (m *Metrics) Send(channel string, outcome gateway.SendOutcome, took time.Duration) {
	m.sends.WithLabelValues(channel, string(outcome)).Observe(took.Seconds())
}
