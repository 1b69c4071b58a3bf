package openai_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/openai"
	"github.com/dragoman-chat/dragoman/pkg/providers/providerstest"
)

// events is an answer of the given data.
func events(data ...string) providerstest.Response {
	return stream("data: " + strings.Join(data, "\n\ndata: ") + "\n\n")
}

func stream(body string) providerstest.Response {
	return providerstest.Response{Status: http.StatusOK, Body: body, Header: http.Header{"Content-Type": {"text/event-stream"}}}
}

const (
	done  = "[DONE]"
	stop  = `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	calls = `{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`
)

func delta(fields string) string { return `{"choices":[{"index":0,"delta":{` + fields + `}}]}` }

func callDelta(fields string) string { return delta(`"tool_calls":[{` + fields + `}]`) }

// told is what a stream says while it runs.
type told struct{ text, thoughts string }

func ask(t *testing.T, p providers.LLMProvider) (*providers.LLMResponse, told, error) {
	t.Helper()
	var said told
	resp, err := p.(providers.Streamer).ChatStream(t.Context(), hello(), nil, "m", nil, func(d providers.Delta) {
		said.text += d.Text
		said.thoughts += d.Reasoning
	})
	return resp, said, err
}

// How servers write streams of text, and what is read.
func TestStreamsOfText(t *testing.T) {
	a, b := delta(`"role":"assistant","content":"Good "`), delta(`"content":"day"`)
	cases := map[string]struct {
		body           string
		text, thoughts string
		finish         string
	}{
		"as OpenAI":            {"data: " + a + "\n\ndata: " + b + "\n\ndata: " + stop + "\n\ndata: [DONE]\n\n", "Good day", "", "stop"},
		"CRLF":                 {"data: " + a + "\r\n\r\ndata: " + b + "\r\n\r\ndata: " + stop + "\r\n\r\ndata: [DONE]\r\n\r\n", "Good day", "", "stop"},
		"no space, no gaps":    {"data:" + a + "\ndata:" + b + "\ndata:" + stop + "\ndata:[DONE]\n", "Good day", "", "stop"},
		"no mark at the end":   {"data: " + a + "\n\ndata: " + b + "\n\ndata: " + stop + "\n\n", "Good day", "", "stop"},
		"no newline either":    {"data: " + a + "\n\ndata: " + b + "\n\ndata: " + stop, "Good day", "", "stop"},
		"no reason at the end": {"data: " + a + "\n\ndata: " + b + "\n\ndata: [DONE]\n\n", "Good day", "", "stop"},
		"comments":             {": keep-alive\n\n" + strings.Repeat(": OPENROUTER PROCESSING\n\n", 1000) + "data: " + a + "\n\n: x\n\nevent: m\nid: 7\nretry: 5\ndata: " + b + "\n\ndata: " + stop + "\n\ndata: [DONE]\n\n", "Good day", "", "stop"},
		"space first":          {"\n\n  \r\ndata: " + a + "\n\ndata: " + b + "\n\ndata: " + stop + "\n\n", "Good day", "", "stop"},
		"empty data":           {"data:\n\ndata: " + a + "\n\ndata: \n\ndata: " + b + "\n\ndata: " + stop + "\n\n", "Good day", "", "stop"},
		"usage in each":        {"data: " + strings.Replace(a, `]}`, `],"usage":{"prompt_tokens":3}}`, 1) + "\n\ndata: " + b + "\n\ndata: " + stop + "\n\ndata: [DONE]\n\n", "Good day", "", "stop"},
		"null everywhere":      {"data: " + delta(`"role":null,"content":null,"refusal":null,"tool_calls":null,"reasoning_content":null`) + "\n\ndata: " + a + "\n\ndata: " + b + "\n\ndata: " + stop + "\n\n", "Good day", "", "stop"},
		"odd types":            {`data: {"choices":[{"index":"0","delta":{"content":"Good day"},"logprobs":7}],"created":"now"}` + "\n\ndata: " + stop + "\n\n", "Good day", "", "stop"},
		"whole though asked":   {`{"choices":[{"message":{"content":"Good day"},"finish_reason":"stop"}]}`, "Good day", "", "stop"},
		"whole, after space":   {"\n \n" + `{"choices":[{"message":{"content":"Good day"},"finish_reason":"stop"}]}`, "Good day", "", "stop"},
		"message for delta":    {`data: {"choices":[{"message":{"content":"Good day"},"finish_reason":"stop"}]}` + "\n\n", "Good day", "", "stop"},
		"reasoning":            {events(delta(`"reasoning":"hm"`), delta(`"reasoning_content":", well","reasoning":", well"`), a, b, stop, done).Body, "Good day", "hm, well", "stop"},
		"refusal":              {events(delta(`"refusal":"I must "`), delta(`"refusal":"not."`), stop, done).Body, "I must not.", "", providers.FinishRefusal},
		"Gemini's reason":      {events(a, b, `{"choices":[{"delta":{},"finish_reason":"MAX_TOKENS"}]}`).Body, "Good day", "", "length"},
		"own reason":           {events(a, b, `{"choices":[{"delta":{},"finish_reason":"bored"}]}`).Body, "Good day", "", "bored"},
		"escapes":              {events(delta(`"content":"a\n\"\u00e4\ud83d\ude00"`), stop, done).Body, "a\n\"ä😀", "", "stop"},
		"long piece":           {events(delta(`"content":"`+strings.Repeat("x", 100_000)+`"`), stop, done).Body, strings.Repeat("x", 100_000), "", "stop"},
	}
	for name, c := range cases {
		for _, kind := range []string{"text/event-stream", "application/json", "text/plain"} {
			r := providerstest.Response{Status: http.StatusOK, Body: c.body, Header: http.Header{"Content-Type": {kind}}}
			resp, said, err := ask(t, open(t, func(providerstest.Request) providerstest.Response { return r }))
			if err != nil || resp.Content != c.text || said.text != c.text || said.thoughts != c.thoughts || resp.FinishReason != c.finish {
				t.Errorf("%s as %s: got %+v, %v, was told %+v", name, kind, resp, err, said)
			}
		}
	}
}

// However servers cut calls into pieces, the same two come out.
func TestStreamsOfCalls(t *testing.T) {
	cases := map[string][]string{
		"as OpenAI": {
			callDelta(`"index":0,"id":"a","type":"function","function":{"name":"read_file","arguments":""}`), callDelta(`"index":0,"function":{"arguments":"{\"path\":"}`), callDelta(`"index":0,"function":{"arguments":"\"x\"}"}`),
			callDelta(`"index":1,"id":"b","type":"function","function":{"name":"now","arguments":""}`), callDelta(`"index":1,"function":{"arguments":"{}"}`),
		},
		"interleaved": {
			callDelta(`"index":0,"id":"a","function":{"name":"read_file","arguments":""}`), callDelta(`"index":1,"id":"b","function":{"name":"now","arguments":""}`),
			callDelta(`"index":0,"function":{"arguments":"{\"path\":"}`), callDelta(`"index":1,"function":{"arguments":"{}"}`), callDelta(`"index":0,"function":{"arguments":"\"x\"}"}`),
		},
		"index 0 for each": {
			callDelta(`"index":0,"id":"a","function":{"name":"read_file","arguments":"{\"path\":"}`), callDelta(`"index":0,"function":{"arguments":"\"x\"}"}`),
			callDelta(`"index":0,"id":"b","function":{"name":"now","arguments":"{}"}`),
		},
		"index 0 for each, ids in each": {
			callDelta(`"index":0,"id":"a","function":{"name":"read_file","arguments":"{\"path\":"}`), callDelta(`"index":0,"id":"a","function":{"arguments":"\"x\"}"}`),
			callDelta(`"index":0,"id":"b","function":{"name":"now"}`), callDelta(`"index":0,"id":"b","function":{"arguments":"{}"}`),
		},
		"no index": {
			callDelta(`"id":"a","function":{"name":"read_file","arguments":"{\"path\":"}`), callDelta(`"function":{"arguments":"\"x\"}"}`),
			callDelta(`"id":"b","function":{"name":"now","arguments":"{}"}`),
		},
		"no index, interleaved by id": {
			callDelta(`"id":"a","function":{"name":"read_file","arguments":"{\"path\":"}`), callDelta(`"id":"b","function":{"name":"now","arguments":"{}"}`),
			callDelta(`"id":"a","function":{"arguments":"\"x\"}"}`),
		},
		"names repeated": {
			callDelta(`"index":0,"id":"a","function":{"name":"read_file","arguments":"{\"path\":"}`), callDelta(`"index":0,"function":{"name":"read_file","arguments":"\"x\"}"}`), callDelta(`"index":0,"function":{"name":"read_file","arguments":""}`),
			callDelta(`"index":1,"id":"b","function":{"name":"now","arguments":"{"}`), callDelta(`"index":1,"id":"b","function":{"name":"now","arguments":"}"}`),
		},
		"names in pieces": {
			callDelta(`"index":0,"id":"a","function":{"name":"read_"}`), callDelta(`"index":0,"function":{"name":"file","arguments":""}`), callDelta(`"index":0,"function":{"arguments":"{\"path\":\"x\"}"}`),
			callDelta(`"index":1,"id":"b","function":{"name":"now"}`),
		},
		"other ids in each piece": {
			callDelta(`"index":0,"id":"a","function":{"name":"read_file","arguments":"{\"path\":"}`), callDelta(`"index":0,"id":"a2","function":{"arguments":"\"x\"}"}`),
			callDelta(`"index":1,"id":"b","function":{"name":"now","arguments":"{"}`), callDelta(`"index":1,"id":"b2","function":{"arguments":"}"}`),
		},
		"whole":                  {callDelta(`"index":0,"id":"a","function":{"name":"read_file","arguments":"{\"path\":\"x\"}"}`), callDelta(`"index":0,"id":"b","function":{"name":"now","arguments":"{}"}`)},
		"whole, in one piece":    {delta(`"tool_calls":[{"id":"a","function":{"name":"read_file","arguments":"{\"path\":\"x\"}"}},{"id":"b","function":{"name":"now","arguments":"{}"}}]`)},
		"no ids, whole":          {callDelta(`"index":0,"function":{"name":"read_file","arguments":"{\"path\":\"x\"}"}`), callDelta(`"index":0,"function":{"name":"now","arguments":"{}"}`)},
		"no ids, no index":       {callDelta(`"function":{"name":"read_file","arguments":"{\"path\":"}`), callDelta(`"function":{"arguments":"\"x\"}"}`), callDelta(`"function":{"name":"now","arguments":"{}"}`)},
		"arguments as an object": {callDelta(`"index":0,"id":"a","function":{"name":"read_file","arguments":{"path":"x"}}`), callDelta(`"index":1,"id":"b","function":{"name":"now","arguments":{}}`)},
		"text as well":           {delta(`"content":"I look."`), delta(`"content":"","tool_calls":[{"index":0,"id":"a","function":{"name":"read_file","arguments":"{\"path\":\"x\"}"}}]`), callDelta(`"index":1,"id":"b","function":{"name":"now"}`)},
	}
	for name, pieces := range cases {
		for _, end := range []string{calls, stop} {
			resp, _, err := ask(t, open(t, func(providerstest.Request) providerstest.Response { return events(append(pieces, end, done)...) }))
			if err != nil || len(resp.ToolCalls) != 2 {
				t.Errorf("%s: %+v, %v", name, resp, err)
				continue
			}
			a, b := resp.ToolCalls[0], resp.ToolCalls[1]
			if a.Name != "read_file" || b.Name != "now" || a.Arguments["path"] != "x" || len(a.Arguments) != 1 || len(b.Arguments) != 0 || a.ID == b.ID || a.ID == "" || b.ID == "" {
				t.Errorf("%s: read as %+v and %+v", name, a, b)
			}
			if ids := !strings.HasPrefix(name, "no ids"); ids && (a.ID != "a" || b.ID != "b") {
				t.Errorf("%s: the ids became %q and %q", name, a.ID, b.ID)
			}
		}
	}
	same := events(callDelta(`"function":{"name":"now","arguments":"{\"a\":1}"}`), callDelta(`"function":{"name":"now","arguments":"{\"a\":2}"}`), calls, done)
	if resp, _, err := ask(t, open(t, func(providerstest.Request) providerstest.Response { return same })); err != nil || len(resp.ToolCalls) != 2 || resp.ToolCalls[1].Arguments["a"] != 2.0 {
		t.Errorf("two calls of one tool without ids: %+v, %v", resp, err)
	}
}

// What goes wrong on the way, before a text was told and after.
func TestStreamsThatFail(t *testing.T) {
	a := delta(`"content":"Good "`)
	cases := map[string]struct {
		body     string
		kind     providers.ErrorKind
		words    string
		attempts int
	}{
		"nothing":               {"", providers.KindUnreachable, "empty", 4},
		"only the mark":         {"data: [DONE]\n\n", providers.KindOverloaded, "no message", 4},
		"only comments":         {": x\n\n: y\n\n", providers.KindUnreachable, "empty", 4},
		"only usage":            {events(`{"choices":[],"usage":{"prompt_tokens":1}}`, done).Body, providers.KindOverloaded, "no message", 4},
		"ends early":            {events(delta(`"role":"assistant"`)).Body, providers.KindUnreachable, "broke off", 4},
		"ends within":           {"data: " + delta(`"role":"assistant"`) + "\n\ndata: {\"choi", providers.KindUnreachable, "broke off", 4},
		"ends after text":       {events(a).Body, providers.KindUnreachable, "broke off", 1},
		"error":                 {events(`{"error":{"message":"Provider returned error","code":502}}`).Body, providers.KindOverloaded, "Provider returned", 4},
		"error after text":      {events(a, `{"error":{"message":"Provider returned error","code":502},"choices":[{"delta":{"content":""},"finish_reason":"error"}]}`).Body, providers.KindOverloaded, "Provider returned", 1},
		"error as an event":     {"event: error\ndata: {\"error\":{\"message\":\"slow down\",\"code\":\"rate_limit_exceeded\"}}\n\n", providers.KindRateLimit, "slow down", 4},
		"error without a field": {": x\n\n" + `{"error":{"message":"too long","code":"context_length_exceeded"}}` + "\n", providers.KindContextOverflow, "too long", 1},
		"error that is a text":  {events(`{"error":"out of memory"}`).Body, providers.KindOverloaded, "out of memory", 4},
		"a refused request":     {events(`{"error":{"message":"bad tools","type":"invalid_request_error"}}`).Body, providers.KindInvalidRequest, "bad tools", 1},
		"error with the key":    {events(`{"error":{"message":"key ` + providerstest.Secret + ` is in use","code":429}}`).Body, providers.KindRateLimit, "***", 4},
		"gave up":               {events(`{"choices":[{"delta":{},"finish_reason":"insufficient_system_resource"}]}`, done).Body, providers.KindOverloaded, "on the way", 4},
		"not JSON":              {"data: hello\n\n", providers.KindUnreachable, "base_url", 1},
		"a page":                {"<html>welcome</html>", providers.KindUnreachable, "base_url", 1},
	}
	for name, c := range cases {
		synctest.Test(t, func(t *testing.T) {
			n := 0
			resp, _, err := ask(t, open(t, func(providerstest.Request) providerstest.Response { n++; return stream(c.body) }))
			if resp != nil || providers.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.words) || strings.Contains(err.Error(), providerstest.Secret) || n != c.attempts {
				t.Errorf("%s: %+v, %v in %d attempts, want %s with %q in %d", name, resp, err, n, c.kind, c.words, c.attempts)
			}
		})
	}
}

// A stream may take as long as it likes as long as something comes.
func TestStreamStallLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := openWith(t, func(providerstest.Request) providerstest.Response {
			return providerstest.Response{Content: "slow but steady wins the race", Pause: 50 * time.Second}
		}, openai.Config{AttemptTimeout: time.Minute})
		start := time.Now()
		if resp, _, err := ask(t, slow); err != nil || resp.Content != "slow but steady wins the race" || time.Since(start) < 5*time.Minute {
			t.Errorf("got %+v, %v after %s", resp, err, time.Since(start))
		}
		n := 0
		silent := openWith(t, func(providerstest.Request) providerstest.Response {
			n++
			return providerstest.Response{Content: "it never gets to the point", Park: true}
		}, openai.Config{AttemptTimeout: time.Minute})
		start = time.Now()
		resp, said, err := ask(t, silent)
		if resp != nil || providers.KindOf(err) != providers.KindTimeout || said.text == "" || n != 1 || time.Since(start) > time.Minute+time.Second {
			t.Errorf("got %+v, %v, told %+v in %d attempts after %s, want a timeout after a minute", resp, err, said, n, time.Since(start))
		}
		// When all is said, the mark of the end is not waited for long.
		late := openWith(t, func(providerstest.Request) providerstest.Response { return providerstest.Response{Park: true} }, openai.Config{AttemptTimeout: time.Minute})
		start = time.Now()
		if resp, _, err := ask(t, late); err != nil || resp.FinishReason != "stop" || time.Since(start) > 6*time.Second {
			t.Errorf("without the mark of the end: %+v, %v after %s", resp, err, time.Since(start))
		}
	})
}

func TestStreamsAreBounded(t *testing.T) {
	for name, piece := range map[string]string{
		"text":     "data: " + delta(`"content":"`+strings.Repeat("x", 1<<16)+`"`) + "\n\n",
		"thoughts": "data: " + delta(`"reasoning":"`+strings.Repeat("x", 1<<16)+`"`) + "\n\n",
		"one line": strings.Repeat("x", 1<<16),
		"calls":    "data: " + callDelta(`"function":{"name":"f","arguments":"{}"}`) + "\n\n",
	} {
		endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for {
				if _, err := w.Write([]byte(piece)); err != nil {
					return
				}
			}
		}))
		_, _, err := ask(t, dial(t, openai.Config{BaseURL: endless.URL, MaxAttempts: 1}))
		if providers.KindOf(err) != providers.KindInvalidRequest || !strings.Contains(err.Error(), "8 MiB") && name != "calls" {
			t.Errorf("an endless stream of %s gave %v", name, err)
		}
		endless.Close()
	}
}

// What a server does not know is left out, from then on.
func TestServersThatDoNotStream(t *testing.T) {
	cases := map[string]struct {
		status  int
		refusal string
		field   string // that it is about
	}{
		"usage":         {http.StatusBadRequest, `{"error":{"message":"Unrecognized request argument supplied: stream_options","type":"invalid_request_error","param":null,"code":null}}`, "stream_options"},
		"usage, 422":    {http.StatusUnprocessableEntity, `{"detail":[{"type":"extra_forbidden","loc":["body","stream_options"],"msg":"Extra inputs are not permitted"}]}`, "stream_options"},
		"usage, part":   {http.StatusBadRequest, `{"error":"unknown field \"include_usage\""}`, "stream_options"},
		"not verified":  {http.StatusBadRequest, `{"error":{"message":"Your organization must be verified to stream this model.","type":"invalid_request_error","param":"stream","code":"unsupported_value"}}`, "stream"},
		"not supported": {http.StatusNotImplemented, `{"error":"streaming is not supported"}`, "stream"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var seen []map[string]any
			p := open(t, func(r providerstest.Request) providerstest.Response {
				seen = append(seen, r.Options)
				if v := r.Options[c.field]; v != nil && v != false {
					return providerstest.Response{Status: c.status, Body: c.refusal}
				}
				return providerstest.Text("Good day")
			})
			for range 2 {
				if resp, said, err := ask(t, p); err != nil || resp.Content != "Good day" || said.text != "Good day" {
					t.Errorf("got %+v, %v, told %+v", resp, err, said)
				}
			}
			if len(seen) > 4 || seen[len(seen)-2][c.field] == true {
				t.Errorf("the server was asked %v", seen)
			}
			if v := seen[len(seen)-1][c.field]; v != nil && v != false {
				t.Errorf("what was refused is asked for again: %v", seen)
			}
		})
	}
	n := 0
	p := open(t, func(providerstest.Request) providerstest.Response {
		n++
		return providerstest.Response{Status: http.StatusBadRequest, Body: `{"error":{"message":"the upstream refuses","param":"messages"}}`}
	})
	if _, _, err := ask(t, p); providers.KindOf(err) != providers.KindInvalidRequest || n != 1 {
		t.Errorf("another refusal gave %v after %d requests", err, n)
	}
}

// Thoughts are cut out of the content wherever the pieces begin and end.
func TestThoughtsInTheContent(t *testing.T) {
	cases := map[string]struct{ content, text, thoughts string }{
		"thinking":      {"<think>\nhm, hello\n</think>\n\nHello!\n", "Hello!\n", "\nhm, hello\n"},
		"space first":   {" \n<think>hm</think>Hello!", "Hello!", "hm"},
		"cut off":       {"<think>hm </thi", "", "hm </thi"},
		"not begun":     {"  <thi", "  <thi", ""},
		"only space":    {"  \n", "  \n", ""},
		"space kept":    {"  Hello!", "  Hello!", ""},
		"later":         {"Use <think> and </think>.", "Use <think> and </think>.", ""},
		"twice":         {"<think>a</think><think>b</think>", "<think>b</think>", "a"},
		"nothing":       {"<think></think>", "", ""},
		"nearly an end": {"<think>a</thin </think k></think>b", "b", "a</thin </think k>"},
		"another tag":   {"<thinking>a</thinking>", "<thinking>a</thinking>", ""},
		"letters":       {"<think>äöü</think>äöü", "äöü", "äöü"},
	}
	for name, c := range cases {
		for size := 1; size <= len(c.content); size++ {
			var pieces []string
			for rest := []rune(c.content); len(rest) > 0; rest = rest[min(size, len(rest)):] {
				pieces = append(pieces, delta(fmt.Sprintf(`"content":%q`, string(rest[:min(size, len(rest))]))))
			}
			resp, said, err := ask(t, open(t, func(providerstest.Request) providerstest.Response { return events(append(pieces, stop, done)...) }))
			if err != nil || resp.Content != c.text || !reflect.DeepEqual(said, told{c.text, c.thoughts}) {
				t.Fatalf("%s in pieces of %d: %+v, %v, told %+v", name, size, resp, err, said)
			}
		}
		whole := providerstest.Text(c.content)
		if resp, err := open(t, func(providerstest.Request) providerstest.Response { return whole }).Chat(t.Context(), hello(), nil, "m", nil); err != nil || resp.Content != c.text {
			t.Errorf("%s as a whole: %+v, %v", name, resp, err)
		}
	}
}

// Who only says that he is still there is not waited for without end.
func TestKeptAliveForNothing(t *testing.T) {
	for name, sign := range map[string]string{
		"comments":       ": still here\n\n",
		"empty events":   `data: {"choices":[]}` + "\n\n",
		"single bytes":   " ",
		"without an end": ":",
	} {
		synctest.Test(t, func(t *testing.T) {
			transport := alive{sign: sign, pause: 20 * time.Second}
			p, err := openai.New(openai.Config{BaseURL: "http://model.test/v1", AttemptTimeout: time.Minute, MaxAttempts: 1, Transport: transport})
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			resp, _, err := ask(t, p)
			if took := time.Since(start); resp != nil || providers.KindOf(err) != providers.KindTimeout || took < 2*time.Minute || took > 4*time.Minute {
				t.Errorf("%s: got %+v, %v after %s, want a timeout after three minutes", name, resp, err, took)
			}
		})
	}
}

// alive answers with a sign of life again and again.
type alive struct {
	sign  string
	pause time.Duration
}

func (a alive) RoundTrip(r *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, r.Body)
	_ = r.Body.Close()
	body, w := io.Pipe()
	go func() {
		for {
			select {
			case <-r.Context().Done():
				_ = w.CloseWithError(r.Context().Err())
				return
			case <-time.After(a.pause):
				if _, err := io.WriteString(w, a.sign); err != nil {
					return
				}
			}
		}
	}()
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: body, Request: r}, nil
}
