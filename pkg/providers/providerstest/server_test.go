package providerstest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/providerstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answer is what came back, decoded far enough for the checks.
type answer struct {
	status int
	header http.Header
	body   string
	Error  struct {
		Message string `json:"message"`
		Type    string `json:"type"`
		Code    string `json:"code"`
	} `json:"error"`
}

func post(t *testing.T, s *providerstest.Server, key, body string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://fake/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := s.Transport().RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := answer{status: resp.StatusCode, header: resp.Header, body: string(raw)}
	if err := json.Unmarshal(raw, &a); err != nil {
		t.Fatalf("the answer is not JSON: %s", raw)
	}
	return a
}

func TestServerRefusesWhatTheAPIRefuses(t *testing.T) {
	const user = `{"role":"user","content":"hi"}`
	call := func(args string) string {
		return `{"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":` + args + `}}]}`
	}
	tool := func(params string) string {
		return `"tools":[{"type":"function","function":{"name":"f","parameters":` + params + `}}]`
	}
	msgs := func(m ...string) string { return `"messages":[` + strings.Join(m, ",") + `]` }
	cases := map[string]struct {
		body string
		want string // in the message; "" means accepted
	}{
		"plain":                   {`"model":"m",` + msgs(user), ""},
		"no model":                {msgs(user), "model parameter"},
		"empty model":             {`"model":"",` + msgs(user), "model parameter"},
		"no messages":             {`"model":"m"`, "'messages'"},
		"empty messages":          {`"model":"m","messages":[]`, "empty array"},
		"unknown role":            {`"model":"m",` + msgs(`{"role":"robot","content":"x"}`), "Invalid value: 'robot'"},
		"no content":              {`"model":"m",` + msgs(`{"role":"user"}`), "got null"},
		"parts":                   {`"model":"m",` + msgs(`{"role":"user","content":[{"type":"text","text":"a"}]}`), ""},
		"unknown field":           {`"model":"m","colour":1,` + msgs(user), "Unrecognized request argument"},
		"call and result":         {`"model":"m",` + msgs(user, call(`"{}"`), `{"role":"tool","tool_call_id":"c1","content":"x"}`), ""},
		"tool without call":       {`"model":"m",` + msgs(user, `{"role":"tool","tool_call_id":"c1","content":"x"}`), "must be a response to"},
		"tool without id":         {`"model":"m",` + msgs(user, `{"role":"tool","content":"x"}`), "tool_call_id"},
		"answered twice":          {`"model":"m",` + msgs(user, call(`"{}"`), `{"role":"tool","tool_call_id":"c1","content":"x"}`, `{"role":"tool","tool_call_id":"c1","content":"x"}`), "must be a response to"},
		"unanswered at the end":   {`"model":"m",` + msgs(user, call(`"{}"`)), "did not have response messages: c1"},
		"unanswered in between":   {`"model":"m",` + msgs(user, call(`"{}"`), user), "did not have response messages: c1"},
		"broken call arguments":   {`"model":"m",` + msgs(user, call(`"{"`), `{"role":"tool","tool_call_id":"c1","content":"x"}`), "not a JSON object"},
		"good tool":               {`"model":"m",` + msgs(user) + `,` + tool(`{"type":"object","properties":{}}`), ""},
		"tool without object":     {`"model":"m",` + msgs(user) + `,` + tool(`{"type":"string"}`), `type: "object"`},
		"tool without type":       {`"model":"m",` + msgs(user) + `,` + tool(`{}`), `type: "object"`},
		"tool without properties": {`"model":"m",` + msgs(user) + `,` + tool(`{"type":"object"}`), "missing properties"},
		"bad tool name":           {`"model":"m",` + msgs(user) + `,"tools":[{"type":"function","function":{"name":"a.b","parameters":{"type":"object","properties":{}}}}]`, "does not match pattern"},
		"empty tools":             {`"model":"m","tools":[],` + msgs(user), "empty array"},
		"choice without tools":    {`"model":"m","tool_choice":"auto",` + msgs(user), "only allowed when 'tools'"},
		"too warm":                {`"model":"m","temperature":3,` + msgs(user), "'temperature'"},
		"gpt-5 max_tokens":        {`"model":"gpt-5-mini","max_tokens":10,` + msgs(user), "max_completion_tokens"},
		"gpt-5 temperature":       {`"model":"gpt-5-mini","temperature":0.5,` + msgs(user), "Only the default (1)"},
		"gpt-5 fine":              {`"model":"gpt-5-mini","temperature":1,"max_completion_tokens":10,` + msgs(user), ""},
		"not JSON":                {`"model":`, "could not parse"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := providerstest.NewServer(providerstest.ServerConfig{})
			a := post(t, s, "", "{"+c.body+"}")
			if c.want == "" {
				if a.status != http.StatusOK {
					t.Fatalf("refused: %s", a.body)
				}
				return
			}
			if a.status != http.StatusBadRequest || !strings.Contains(a.Error.Message, c.want) || a.Error.Type != "invalid_request_error" {
				t.Errorf("got %d %s, want 400 with %q", a.status, a.body, c.want)
			}
			if s.Count() != 0 || len(s.Refusals()) != 1 {
				t.Errorf("counted %d requests and %d refusals, want 0 and 1", s.Count(), len(s.Refusals()))
			}
		})
	}
}

func TestServerAsksForTheKey(t *testing.T) {
	s := providerstest.NewServer(providerstest.ServerConfig{Key: "sk-right", Models: []string{"m"}})
	const body = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`
	if a := post(t, s, "", body); a.status != http.StatusUnauthorized || !strings.Contains(a.Error.Message, "didn't provide an API key") {
		t.Errorf("without a key: %d %s", a.status, a.body)
	}
	if a := post(t, s, "sk-wrong", body); a.status != http.StatusUnauthorized || a.Error.Code != "invalid_api_key" {
		t.Errorf("with a wrong key: %d %s", a.status, a.body)
	}
	if a := post(t, s, "sk-right", body); a.status != http.StatusOK {
		t.Errorf("with the right key: %d %s", a.status, a.body)
	}
	if a := post(t, s, "sk-right", strings.Replace(body, `"m"`, `"other"`, 1)); a.status != http.StatusNotFound || a.Error.Code != "model_not_found" {
		t.Errorf("with an unknown model: %d %s", a.status, a.body)
	}
}

func TestServerRecordsAndScripts(t *testing.T) {
	s := providerstest.NewServer(providerstest.ServerConfig{
		Keep: 2,
		Reply: providerstest.Sequence(
			providerstest.Calls(providerstest.Call{Name: "f", Arguments: `{"a":1}`}),
			providerstest.Response{Failure: providers.KindRateLimit, RetryAfter: 1500 * time.Millisecond},
			providerstest.Text("done"),
		),
	})
	const body = `{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"%s"}]}`
	first := post(t, s, "", fmt.Sprintf(body, "one"))
	if !strings.Contains(first.body, `"finish_reason":"tool_calls"`) || !strings.Contains(first.body, `"content":null`) {
		t.Errorf("a call reads %s", first.body)
	}
	second := post(t, s, "", fmt.Sprintf(body, "two"))
	if second.status != http.StatusTooManyRequests || second.header.Get("Retry-After") != "2" || second.header.Get("Retry-After-Ms") != "1500" {
		t.Errorf("a rate limit reads %d %v", second.status, second.header)
	}
	third := post(t, s, "", fmt.Sprintf(body, "three"))
	if !strings.Contains(third.body, `"content":"done"`) || !strings.Contains(third.body, `"finish_reason":"stop"`) {
		t.Errorf("an answer reads %s", third.body)
	}
	got := s.Requests()
	if len(got) != 2 || got[1].Last().Content != "three" || got[1].N != 3 || got[1].Options["max_tokens"] != float64(5) || s.Count() != 3 {
		t.Errorf("recorded %+v, count %d", got, s.Count())
	}
}

func TestServerHangsCutsAndWaits(t *testing.T) {
	s := providerstest.NewServer(providerstest.ServerConfig{Reply: func(r providerstest.Request) providerstest.Response {
		switch r.Last().Content {
		case "hang":
			return providerstest.Response{Hang: true}
		case "cut":
			return providerstest.Response{Content: "a long enough answer", Cut: true}
		case "gone":
			return providerstest.Fail(providers.KindUnreachable)
		}
		return providerstest.Response{Content: "late", Delay: time.Hour}
	}})
	web := httptest.NewServer(s)
	defer web.Close()
	defer s.Close()
	for _, rt := range []http.RoundTripper{s.Transport(), web.Client().Transport} {
		ask := func(ctx context.Context, text string) error {
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, web.URL+"/v1/chat/completions",
				strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"`+text+`"}]}`))
			if err != nil {
				return err
			}
			r.Header.Set("Content-Type", "application/json")
			resp, err := rt.RoundTrip(r)
			if err != nil {
				return err
			}
			defer func() { _ = resp.Body.Close() }()
			_, err = io.ReadAll(resp.Body)
			return err
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if err := ask(ctx, "hang"); err == nil {
			t.Error("a hanging answer came")
		}
		cancel()
		if err := ask(t.Context(), "cut"); err == nil {
			t.Error("a cut answer came whole")
		}
		if err := ask(t.Context(), "gone"); err == nil {
			t.Error("a cut connection answered")
		}
	}
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		s := providerstest.NewServer(providerstest.ServerConfig{Reply: func(providerstest.Request) providerstest.Response {
			return providerstest.Response{Content: "late", Delay: time.Hour}
		}})
		post(t, s, "", `{"model":"m","messages":[{"role":"user","content":"hi"}]}`)
		if got := time.Since(start); got != time.Hour {
			t.Errorf("answered after %s, want an hour", got)
		}
	})
}
