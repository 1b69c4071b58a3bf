//go:build otlp

package main

import (
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/dragoman-chat/dragoman/pkg/config"
	"github.com/dragoman-chat/dragoman/pkg/providers/providerstest"
)

// The daemon sends what it has traced when it is stopped at the latest.
func TestTracesReachTheCollector(t *testing.T) {
	var mu sync.Mutex
	names := map[string]string{} // by span id
	parents := map[string]string{}
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var export collector.ExportTraceServiceRequest
		if body, err := io.ReadAll(r.Body); err != nil || proto.Unmarshal(body, &export) != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s is no export", r.URL)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, rs := range export.GetResourceSpans() {
			for _, ss := range rs.GetScopeSpans() {
				for _, s := range ss.GetSpans() {
					names[hex.EncodeToString(s.GetSpanId())] = s.GetName()
					parents[hex.EncodeToString(s.GetSpanId())] = hex.EncodeToString(s.GetParentSpanId())
					if strings.Contains(s.String(), "parcel") {
						t.Errorf("what was said is in %s", s.GetName())
					}
				}
			}
		}
	}))
	defer receiver.Close()
	t.Run("daemon", func(t *testing.T) {
		w := newWorld(t, func(r providerstest.Request) providerstest.Response {
			if r.Last().Role == "tool" {
				return providerstest.Text("no parcel")
			}
			return providerstest.Calls(providerstest.Call{ID: "c1", Name: "list_dir", Arguments: `{"path": "."}`})
		}, fmt.Sprintf("telemetry: {otlp_endpoint: %q}\n", receiver.URL))
		w.run()
		chat, say := w.browser()
		say("is there a parcel?")
		w.await(func(seen map[string][]string) bool { return len(seen[chat]) > 0 })
	})
	mu.Lock()
	defer mu.Unlock()
	var got []string
	for id, name := range names {
		got = append(got, names[parents[id]]+" > "+name)
	}
	slices.Sort(got)
	want := []string{" > invoke_agent dragoman", "invoke_agent dragoman > chat fake", "invoke_agent dragoman > chat fake", "invoke_agent dragoman > execute_tool list_dir"}
	if !slices.Equal(got, want) {
		t.Errorf("the collector has\n%q, want\n%q", got, want)
	}
}

// A variable of the SDK that is wrong is a mistake in the configuration.
func TestWrongVariableForTraces(t *testing.T) {
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "nonsense")
	s := newShell(t, nil)
	s.newApp = func(cfg *config.Config, log *slog.Logger, opts appOptions) (runner, error) {
		return newApp(cfg, log, opts)
	}
	code := s.run(t.Context(), []string{"config", "check", file(t, "telemetry: {otlp_endpoint: \"http://127.0.0.1:4318\"}\n")})
	if said := s.errOut.String(); code != exitConfig || !strings.Contains(said, "telemetry.otlp_endpoint") || !strings.Contains(said, "nonsense") {
		t.Errorf("exit code %d, and it says %q", code, said)
	}
}
