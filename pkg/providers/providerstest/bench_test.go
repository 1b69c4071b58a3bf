package providerstest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dragoman-chat/dragoman/pkg/providers/providerstest"
)

// BenchmarkServer is what the fake costs a load rig for each model call.
func BenchmarkServer(b *testing.B) {
	s := providerstest.NewServer(providerstest.ServerConfig{Keep: -1})
	var tools, messages []string
	for i := range 7 {
		tools = append(tools, fmt.Sprintf(`{"type":"function","function":{"name":"tool_%d","description":"Does what its name says, with a description of the usual length.","parameters":{"type":"object",
			"properties":{"path":{"type":"string","description":"Where the file is."},"start_line":{"type":"integer","minimum":1},"end_line":{"type":"integer","minimum":1}},"required":["path"]}}}`, i))
	}
	for range 5 {
		messages = append(messages, `{"role":"user","content":"What is in the file a, and why is it there at all?"}`, `{"role":"assistant","content":"It holds a greeting."}`)
	}
	body := `{"model":"m","stream":false,"messages":[` + strings.Join(messages, ",") + `],"tools":[` + strings.Join(tools, ",") + `]}`
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/v1/chat/completions", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			b.Fatal(w.Body.String())
		}
	}
}
