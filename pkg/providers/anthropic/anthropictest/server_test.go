package anthropictest_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/dragoman-chat/dragoman/pkg/providers/anthropic/anthropictest"
	"github.com/dragoman-chat/dragoman/pkg/providers/providerstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func post(t *testing.T, s *anthropictest.Server, header http.Header, body string) (status int, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://fake/v1/messages", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header
	resp, err := s.Transport().RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(raw)
}

func header(key string) http.Header {
	return http.Header{"Content-Type": {"application/json"}, "Anthropic-Version": {"2023-06-01"}, "X-Api-Key": {key}}
}

func TestServerRefusesWhatTheAPIRefuses(t *testing.T) {
	const hi = `{"role":"user","content":"hi"}`
	msgs := func(m ...string) string { return `"messages":[` + strings.Join(m, ",") + `]` }
	said := func(blocks string) string { return `{"role":"assistant","content":[` + blocks + `]}` }
	asked := func(blocks string) string { return `{"role":"user","content":[` + blocks + `]}` }
	use := func(id, name string) string {
		return fmt.Sprintf(`{"type":"tool_use","id":%q,"name":%q,"input":{}}`, id, name)
	}
	result := func(id string) string {
		return fmt.Sprintf(`{"type":"tool_result","tool_use_id":%q,"content":"x"}`, id)
	}
	const text, mark = `{"type":"text","text":"x"}`, `{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}`
	const base, tools = `"model":"claude-sonnet-4-5","max_tokens":5000,"stream":true,`, `,"tools":[{"name":"f","input_schema":{"type":"object"}}]`
	thinks := `,"thinking":{"type":"enabled","budget_tokens":1024}`
	cases := map[string]struct{ body, want string }{ // want is in the message; "" means accepted
		"plain":                {base + msgs(hi), ""},
		"no model":             {`"max_tokens":1,"stream":true,` + msgs(hi), "model: Field required"},
		"no max_tokens":        {`"model":"m","stream":true,` + msgs(hi), "max_tokens: Field required"},
		"unknown field":        {base + `"colour":1,` + msgs(hi), "Extra inputs"},
		"unknown in a block":   {base + msgs(asked(`{"type":"text","text":"x","colour":1}`)), "colour"},
		"no messages":          {base + msgs(), "at least one message"},
		"begins with a reply":  {base + msgs(said(text), hi), "first message must use"},
		"two in a row":         {base + msgs(hi, hi), "roles must alternate"},
		"system role":          {base + msgs(`{"role":"system","content":"x"}`), "first message must use"},
		"ends with a reply":    {base + msgs(hi, said(text)), "prefill"},
		"empty content":        {base + msgs(asked(``)), "non-empty content"},
		"empty text":           {base + msgs(`{"role":"user","content":""}`), "must be non-empty"},
		"blank text":           {base + msgs(asked(`{"type":"text","text":" \n"}`)), "non-whitespace"},
		"empty system":         {base + `"system":[{"type":"text","text":""}],` + msgs(hi), "must be non-empty"},
		"pair":                 {base + msgs(hi, said(use("a", "f")), asked(result("a"))) + tools, ""},
		"pair without tools":   {base + msgs(hi, said(use("a", "f")), asked(result("a"))), "must define tools"},
		"call without result":  {base + msgs(hi, said(use("a", "f")), hi) + tools, "without `tool_result` blocks immediately after: a"},
		"one of two results":   {base + msgs(hi, said(use("a", "f")+","+use("b", "f")), asked(result("a"))) + tools, "immediately after: b"},
		"result without call":  {base + msgs(asked(result("a"))) + tools, "unexpected `tool_use_id`"},
		"result twice":         {base + msgs(hi, said(use("a", "f")), asked(result("a")+","+result("a"))) + tools, "unexpected `tool_use_id`"},
		"result too late":      {base + msgs(hi, said(use("a", "f")), asked(text+","+result("a"))) + tools, "must come first"},
		"id used twice":        {base + msgs(hi, said(use("a", "f")), asked(result("a")), said(use("a", "f")), asked(result("a"))) + tools, "ids must be unique"},
		"odd id":               {base + msgs(hi, said(use("a.b", "f")), asked(result("a.b"))) + tools, "should match pattern"},
		"odd name":             {base + msgs(hi, said(use("a", "f.g")), asked(result("a"))) + tools, "should match pattern"},
		"input is no object":   {base + msgs(hi, said(`{"type":"tool_use","id":"a","name":"f","input":[]}`), asked(result("a"))) + tools, "valid dictionary"},
		"call of the user":     {base + msgs(asked(use("a", "f"))) + tools, "Input tag"},
		"result of the model":  {base + msgs(hi, said(result("a")), hi) + tools, "Input tag"},
		"odd tool":             {base + msgs(hi) + `,"tools":[{"name":"a.b","input_schema":{"type":"object"}}]`, "should match pattern"},
		"tool twice":           {base + msgs(hi) + strings.Replace(tools, "[", `[{"name":"f","input_schema":{"type":"object"}},`, 1), "must be unique"},
		"tool without schema":  {base + msgs(hi) + `,"tools":[{"name":"f"}]`, "input_schema: Field required"},
		"schema of no object":  {base + msgs(hi) + `,"tools":[{"name":"f","input_schema":{"type":"string"}}]`, "should be 'object'"},
		"choice without tools": {base + msgs(hi) + `,"tool_choice":{"type":"auto"}`, "while providing tools"},
		"four marks":           {base + msgs(asked(mark+","+mark+","+mark+","+mark)), ""},
		"five marks":           {base + msgs(asked(mark+","+mark+","+mark+","+mark+","+mark)), "A maximum of 4 blocks"},
		"forged thought":       {base + msgs(hi, said(`{"type":"thinking","thinking":"hm","signature":"x"},`+text), hi), "Invalid `signature`"},
		"thought at the end":   {base + msgs(hi, said(text+`,{"type":"redacted_thinking","data":"encrypted"}`), hi), "cannot be `thinking`"},
		"goes on unthought":    {base + msgs(hi, said(use("a", "f")), asked(result("a"))) + tools + thinks, "Expected `thinking`"},
		"goes on":              {base + msgs(hi, said(`{"type":"redacted_thinking","data":"encrypted"},`+use("a", "f")), asked(result("a"))) + tools + thinks, ""},
		"small budget":         {base + msgs(hi) + `,"thinking":{"type":"enabled","budget_tokens":1000}`, "1024"},
		"great budget":         {base + msgs(hi) + `,"thinking":{"type":"enabled","budget_tokens":5000}`, "must be greater"},
		"warm thoughts":        {base + msgs(hi) + thinks + `,"temperature":0.5`, "thinking is enabled"},
		"two ways to sample":   {base + msgs(hi) + `,"temperature":0.5,"top_p":0.5`, "cannot both"},
		"too warm":             {base + msgs(hi) + `,"temperature":1.5`, "range"},
		"blank stop":           {base + msgs(hi) + `,"stop_sequences":[" "]`, "non-whitespace"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := anthropictest.NewServer(providerstest.ServerConfig{})
			status, answer := post(t, s, header("k"), "{"+c.body+"}")
			if c.want == "" {
				if status != http.StatusOK || !strings.Contains(answer, "message_stop") {
					t.Fatalf("refused: %s", answer)
				}
				return
			}
			if refusals := s.Refusals(); status != http.StatusBadRequest || len(refusals) != 1 || !strings.Contains(refusals[0], c.want) || !strings.Contains(answer, `"type":"invalid_request_error"`) {
				t.Errorf("got %d %s, want 400 with %q", status, answer, c.want)
			}
			if n := len(s.Requests()); n != 0 {
				t.Errorf("it counts as %d valid requests", n)
			}
		})
	}
}

func TestServerAsksForItsHeaders(t *testing.T) {
	s := anthropictest.NewServer(providerstest.ServerConfig{Key: "right"})
	without := header("right")
	without.Del("Anthropic-Version")
	for name, c := range map[string]struct {
		header http.Header
		status int
	}{
		"no key": {header(""), http.StatusUnauthorized}, "wrong key": {header("wrong"), http.StatusUnauthorized}, "right key": {header("right"), http.StatusOK},
		"no version": {without, http.StatusBadRequest},
	} {
		status, answer := post(t, s, c.header, `{"model":"m","max_tokens":1,"stream":true,"messages":[{"role":"user","content":"hi"}]}`)
		if status != c.status {
			t.Errorf("%s: %d %s", name, status, answer)
		}
	}
}
