package tracing

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

// receiver is a collector that takes spans by OTLP over HTTP.
type receiver struct {
	*httptest.Server
	mu      sync.Mutex
	spans   []string // resource / name
	headers []http.Header
	status  []int // it answers with, one after the other; then 200
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		var export collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &export)
		}
		if err != nil || req.Method != http.MethodPost || req.URL.Path != "/v1/traces" || req.Header.Get("Content-Type") != "application/x-protobuf" {
			t.Errorf("not an export: %s %s, %s, %v", req.Method, req.URL, req.Header.Get("Content-Type"), err)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.headers = append(r.headers, req.Header)
		if len(r.status) > 0 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(r.status[0])
			r.status = r.status[1:]
			return
		}
		for _, rs := range export.GetResourceSpans() {
			var of []string
			for _, a := range rs.GetResource().GetAttributes() {
				if !strings.HasPrefix(a.GetKey(), "telemetry.") {
					of = append(of, a.GetKey()+"="+a.GetValue().GetStringValue())
				}
			}
			for _, ss := range rs.GetScopeSpans() {
				for _, s := range ss.GetSpans() {
					r.spans = append(r.spans, strings.Join(of, " ")+" / "+s.GetName())
				}
			}
		}
		answer, err := proto.Marshal(&collector.ExportTraceServiceResponse{})
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
		_, _ = w.Write(answer)
	}))
	t.Cleanup(r.Close)
	return r
}

func start(t *testing.T, endpoint string, log io.Writer) *Tracer {
	t.Helper()
	tracer, err := New(Options{Endpoint: endpoint, Sample: 1, Version: "v1.2.3", Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	tracer.Start()
	return tracer
}

// What was traced reaches the collector at the end, wherever its address ends.
func TestExport(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=k-123, Authorization=Basic%20abc=")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
	for _, path := range []string{"", "/", "/v1/traces"} {
		r := newReceiver(t)
		var log strings.Builder
		tracer := start(t, r.URL+path, &log)
		_, span := tracer.begin(t.Context(), opChat, "m", trace.SpanKindClient)
		span.End()
		if err := tracer.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		want := "deployment.environment.name=test service.name=dragoman service.version=v1.2.3 / chat m"
		if len(r.spans) != 1 || r.spans[0] != want {
			t.Errorf("%q: the collector has %q, want %q", path, r.spans, want)
		}
		if len(r.headers) != 1 || r.headers[0].Get("X-Key") != "k-123" || r.headers[0].Get("Authorization") != "Basic abc=" || log.Len() != 0 {
			t.Errorf("%q: headers %v, log %s", path, r.headers, &log)
		}
	}
}

// A collector that does not take spans is told of once, until it does again.
func TestExportFails(t *testing.T) {
	r := newReceiver(t)
	r.status = []int{http.StatusForbidden, http.StatusBadRequest}
	var log strings.Builder
	tracer := start(t, r.URL, &log)
	defer func() {
		if err := tracer.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	once := func() {
		_, span := tracer.begin(t.Context(), opChat, "m", trace.SpanKindClient)
		span.End()
		if err := tracer.spans.ForceFlush(t.Context()); err != nil {
			t.Error(err)
		}
	}
	once()
	once()
	once()
	lost, again := strings.Count(log.String(), "they are lost"), strings.Count(log.String(), "can be sent again")
	if lost != 1 || again != 1 || len(r.spans) != 1 {
		t.Errorf("%d spans, the log is\n%s", len(r.spans), &log)
	}
}

// The end of the daemon does not wait for a collector that hangs.
func TestStopDoesNotWaitForever(t *testing.T) {
	asked, release := make(chan struct{}), make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(asked)
		<-release
	}))
	defer hanging.Close()
	defer close(release)
	tracer := start(t, hanging.URL, io.Discard)
	_, span := tracer.begin(t.Context(), opChat, "m", trace.SpanKindClient)
	span.End()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := tracer.Stop(ctx); err == nil {
		t.Error("spans were lost and nobody is told")
	}
	<-asked // so that nothing tries again behind our back
}

// A collector that is busy is asked again.
func TestExportTriesAgain(t *testing.T) {
	r := newReceiver(t)
	r.status = []int{http.StatusTooManyRequests, http.StatusServiceUnavailable}
	var log strings.Builder
	tracer := start(t, r.URL, &log)
	_, span := tracer.begin(t.Context(), opChat, "m", trace.SpanKindClient)
	span.End()
	if err := tracer.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if len(r.spans) != 1 || len(r.headers) != 3 || log.Len() != 0 {
		t.Errorf("%d spans in %d requests, the log is %s", len(r.spans), len(r.headers), &log)
	}
}

// What is logged says why, not only that the time was up.
func TestExportSaysWhy(t *testing.T) {
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	c, err := newClient(closed.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.UploadTraces(ctx, nil); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("the error is %v", err)
	}
}

func TestWrongVariables(t *testing.T) {
	for name, value := range map[string]string{
		"OTEL_RESOURCE_ATTRIBUTES": "nonsense", "OTEL_EXPORTER_OTLP_HEADERS": "sk-secret",
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, value)
			_, err := New(Options{Endpoint: "http://127.0.0.1:4318"})
			if err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "OTEL_EXPORTER_OTLP_HEADERS: expected") && !strings.Contains(err.Error(), "nonsense") {
				t.Errorf("the error is %v", err)
			}
		})
	}
}
