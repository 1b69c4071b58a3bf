package discordtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client talks to a fake the way a bot does.
type client struct {
	*testing.T
	srv  *Server
	base string
	http *http.Client
}

func newClient(t *testing.T, opts Options) *client {
	t.Helper()
	srv := New(opts)
	base, stop, err := srv.Listen()
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{}
	t.Cleanup(func() { tr.CloseIdleConnections(); stop() })
	return &client{T: t, srv: srv, base: base, http: &http.Client{Transport: tr}}
}

// answer is a REST answer.
type answer struct {
	status int
	header http.Header
	ID     string `json:"id"`
	Code   int    `json:"code"`
	raw    string
}

func (c *client) do(method, path, body string, change ...func(*http.Request)) answer {
	c.Helper()
	req, err := http.NewRequestWithContext(c.Context(), method, c.base+path, strings.NewReader(body))
	if err != nil {
		c.Fatal(err)
	}
	req.Header.Set("Authorization", "Bot "+Token)
	req.Header.Set("User-Agent", "DiscordBot (https://example.org, 1)")
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, f := range change {
		f(req)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		c.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		c.Fatal(err)
	}
	a := answer{status: resp.StatusCode, header: resp.Header, raw: string(raw)}
	if len(raw) > 0 && raw[0] == '{' {
		if err := json.Unmarshal(raw, &a); err != nil {
			c.Fatalf("%s: %v", raw, err)
		}
	}
	return a
}

func header(k, v string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(k, v) }
}

func TestREST(t *testing.T) {
	c := newClient(t, Options{})
	ann := c.srv.AddUser("ann", "Ann")
	guild := c.srv.AddGuild("Guild")
	general := c.srv.AddChannel(guild, "general")
	forum := c.srv.AddForum(guild, "forum")
	blocked := c.srv.AddChannel(guild, "blocked")
	c.srv.Block(blocked, CodeMissingPermission)
	joined := c.srv.Post(general, Message{Type: MessageJoin, Author: &ann})
	post := "/api/v9/channels/" + general + "/messages"
	long := strings.Repeat("😀", 2001)
	tests := map[string]struct {
		method, path, body string
		change             func(*http.Request)
		status, code       int
	}{
		"me":                    {"GET", "/api/v10/users/@me", "", nil, 200, 0},
		"no version":            {"GET", "/api/users/@me", "", nil, 200, 0},
		"old version":           {"GET", "/api/v6/users/@me", "", nil, 400, 50041},
		"unknown path":          {"GET", "/api/v9/nothing", "", nil, 404, 0},
		"not the API":           {"GET", "/", "", nil, 404, 0},
		"gateway without token": {"GET", "/api/v9/gateway", "", header("Authorization", ""), 200, 0},
		"no token":              {"GET", "/api/v9/gateway/bot", "", header("Authorization", ""), 401, 0},
		"no Bot prefix":         {"GET", "/api/v9/gateway/bot", "", header("Authorization", Token), 401, 0},
		"user agent":            {"GET", "/api/v9/gateway/bot", "", header("User-Agent", "curl/8"), 403, 40333},
		"content type":          {"POST", post, `{"content":"x"}`, header("Content-Type", "text/plain"), 415, 0},
		"no JSON":               {"POST", post, `{"content":`, nil, 400, 50109},
		"wrong JSON":            {"POST", post, `{"content":7}`, nil, 400, 50035},
		"channel":               {"GET", "/api/v9/channels/" + general, "", nil, 200, 0},
		"unknown channel":       {"POST", "/api/v9/channels/1/messages", `{"content":"x"}`, nil, 404, 10003},
		"no channel id":         {"POST", "/api/v9/channels/x/messages", `{"content":"x"}`, nil, 400, 50035},
		"blocked":               {"POST", "/api/v9/channels/" + blocked + "/messages", `{"content":"x"}`, nil, 403, 50013},
		"forum":                 {"POST", "/api/v9/channels/" + forum + "/messages", `{"content":"x"}`, nil, 400, 50008},
		"wrong method":          {"PUT", post, `{}`, nil, 405, 0},
		"full":                  {"POST", post, `{"content":"` + long[:4*2000] + `"}`, nil, 200, 0},
		"too long":              {"POST", post, `{"content":"` + long + `"}`, nil, 400, 50035},
		"empty":                 {"POST", post, `{"content":" \n"}`, nil, 400, 50006},
		"nonce":                 {"POST", post, `{"content":"x","nonce":"` + strings.Repeat("n", 25) + `"}`, nil, 200, 0},
		"nonce as number":       {"POST", post, `{"content":"x","nonce":12}`, nil, 200, 0},
		"long nonce":            {"POST", post, `{"content":"x","nonce":"` + strings.Repeat("n", 26) + `"}`, nil, 400, 50035},
		"flags":                 {"POST", post, `{"content":"x","flags":64}`, nil, 400, 50035},
		"mention words":         {"POST", post, `{"content":"x","allowed_mentions":{"parse":["all"]}}`, nil, 400, 50035},
		"mentions twice":        {"POST", post, `{"content":"x","allowed_mentions":{"parse":["users"],"users":["1"]}}`, nil, 400, 50035},
		"reply to nothing":      {"POST", post, `{"content":"x","message_reference":{"message_id":"1"}}`, nil, 400, 50035},
		"reply, if it exists":   {"POST", post, `{"content":"x","message_reference":{"message_id":"1","fail_if_not_exists":false}}`, nil, 200, 0},
		"reply to a notice":     {"POST", post, `{"content":"x","message_reference":{"message_id":"` + joined + `"}}`, nil, 400, 50035},
		"reply elsewhere":       {"POST", post, `{"content":"x","message_reference":{"message_id":"` + joined + `","channel_id":"1"}}`, nil, 400, 50035},
		"reply to no id":        {"POST", post, `{"content":"x","message_reference":{"message_id":"x"}}`, nil, 400, 50035},
		"typing":                {"POST", "/api/v9/channels/" + general + "/typing", "", nil, 204, 0},
		"message":               {"GET", post + "/" + joined, "", nil, 200, 0},
		"unknown message":       {"GET", post + "/1", "", nil, 404, 10008},
		"limit":                 {"GET", post + "?limit=101", "", nil, 400, 50035},
		"limit 0":               {"GET", post + "?limit=0", "", nil, 400, 50035},
		"after and before":      {"GET", post + "?after=1&before=2", "", nil, 400, 50035},
		"after no id":           {"GET", post + "?after=x", "", nil, 400, 50035},
		"messages of a forum":   {"GET", "/api/v9/channels/" + forum + "/messages", "", nil, 400, 50024},
		"messages, blocked":     {"GET", "/api/v9/channels/" + blocked + "/messages", "", nil, 403, 50013},
		"private channel":       {"POST", "/api/v9/users/@me/channels", `{"recipient_id":"` + ann.ID + `"}`, nil, 200, 0},
		"nobody's channel":      {"POST", "/api/v9/users/@me/channels", `{"recipient_id":"1"}`, nil, 400, 50033},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			change := tt.change
			if change == nil {
				change = func(*http.Request) {}
			}
			got := c.do(tt.method, tt.path, tt.body, change)
			if got.status != tt.status || got.Code != tt.code {
				t.Errorf("%d, code %d; want %d, %d: %s", got.status, got.Code, tt.status, tt.code, got.raw)
			}
		})
	}
}

func TestEnforceNonce(t *testing.T) {
	c := newClient(t, Options{})
	dm := c.srv.AddDM(c.srv.AddUser("ann", ""))
	post := "/api/v9/channels/" + dm + "/messages"
	first := c.do("POST", post, `{"content":"one","nonce":"k","enforce_nonce":true}`)
	again := c.do("POST", post, `{"content":"two","nonce":"k","enforce_nonce":true}`)
	if first.ID == "" || again.ID != first.ID || !strings.Contains(again.raw, "one") {
		t.Errorf("an enforced nonce made %s after %s", again.raw, first.raw)
	}
	if free := c.do("POST", post, `{"content":"three","nonce":"k"}`); free.ID == first.ID {
		t.Error("a nonce that is not enforced was")
	}
	if n := len(c.srv.Sent()); n != 2 {
		t.Errorf("%d messages, want 2", n)
	}
}

func TestRateLimit(t *testing.T) {
	c := newClient(t, Options{PerChannel: 2, Per: time.Hour})
	post := "/api/v9/channels/" + c.srv.AddDM(c.srv.AddUser("ann", "")) + "/messages"
	for _, remaining := range []string{"1", "0"} {
		got := c.do("POST", post, `{"content":"x"}`)
		if got.status != 200 || got.header.Get("X-RateLimit-Remaining") != remaining || got.header.Get("X-RateLimit-Limit") != "2" {
			t.Errorf("%d with %v", got.status, got.header)
		}
	}
	got := c.do("POST", post, `{"content":"x"}`)
	if got.status != 429 || got.header.Get("Retry-After") == "" || !strings.Contains(got.raw, `"retry_after":3`) || !strings.Contains(got.raw, `"global":false`) {
		t.Errorf("%d %s with %v", got.status, got.raw, got.header)
	}
	c.srv.Throttle(1, time.Second, true)
	if got := c.do("POST", post, `{"content":"x"}`); got.header.Get("X-RateLimit-Global") != "true" || !strings.Contains(got.raw, `"global":true`) {
		t.Errorf("global: %s with %v", got.raw, got.header)
	}
}

func TestHistory(t *testing.T) {
	c := newClient(t, Options{History: 10})
	ann := c.srv.AddUser("ann", "")
	dm := c.srv.AddDM(ann)
	var ids []string
	for i := range 12 {
		ids = append(ids, c.srv.Say(dm, ann, fmt.Sprint(i)))
	}
	get := func(query string) string {
		var list []Message
		if err := json.Unmarshal([]byte(c.do("GET", "/api/v9/channels/"+dm+"/messages"+query, "").raw), &list); err != nil {
			t.Fatal(err)
		}
		var texts []string
		for _, m := range list {
			texts = append(texts, m.Content)
		}
		return strings.Join(texts, " ")
	}
	for query, want := range map[string]string{
		"?limit=3":                 "11 10 9",
		"?after=" + ids[8]:         "11 10 9",
		"?after=1&limit=2":         "3 2",
		"?before=" + ids[4]:        "3 2",
		"?limit=100":               "11 10 9 8 7 6 5 4 3 2",
		"?after=" + ids[11]:        "",
		"?limit=1&after=" + ids[9]: "10",
	} {
		if got := get(query); got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
}

// TestHistoryIsREST: messages read over REST lack what only the gateway adds,
// and the rights of the bot count.
func TestHistoryIsREST(t *testing.T) {
	for name, tt := range map[string]struct {
		refused int
		want    string
	}{"content": {0, "hello"}, "no content": {IntentMessageContent, ""}} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, Options{Refused: tt.refused})
			ann := c.srv.AddUser("ann", "")
			general := c.srv.AddChannel(c.srv.AddGuild("Guild"), "general")
			c.srv.Post(general, Message{Author: &ann, Content: "hello", GuildID: "1", Member: &Member{}, Nonce: "n"})
			path := "/api/v9/channels/" + general + "/messages"
			var list []Message
			if err := json.Unmarshal([]byte(c.do("GET", path, "").raw), &list); err != nil || len(list) != 1 {
				t.Fatalf("%v, %v", list, err)
			}
			if m := list[0]; m.GuildID != "" || m.Member != nil || m.Nonce != "" || m.Content != tt.want || m.Author.ID != ann.ID {
				t.Errorf("got %+v", m)
			}
			c.srv.HideHistory(true)
			if got := strings.TrimSpace(c.do("GET", path, "").raw); got != "[]" {
				t.Errorf("without the right to read history: %s", got)
			}
			c.srv.HideHistory(false)
			c.srv.ThrottleReads(general, 1, 1500*time.Millisecond)
			c.srv.FailReads(general, 1, 502)
			for _, status := range []int{429, 502, 200} {
				if got := c.do("GET", path, ""); got.status != status {
					t.Errorf("status %d, want %d", got.status, status)
				}
			}
			if q := c.srv.Calls()[0].Query; q != "" {
				t.Errorf("query %q", q)
			}
			c.do("GET", path+"?limit=7", "")
			if calls := c.srv.Calls(); calls[len(calls)-1].Query != "limit=7" {
				t.Errorf("calls %+v", calls)
			}
		})
	}
}

// TestGuildCreate: a guild lists its channels with their last messages, a forum
// with its last thread; hidden threads are left out, and a new one says so.
func TestGuildCreate(t *testing.T) {
	c := newClient(t, Options{})
	ann := c.srv.AddUser("ann", "")
	guild := c.srv.AddGuild("Guild")
	general, forum := c.srv.AddChannel(guild, "general"), c.srv.AddForum(guild, "forum")
	said := c.srv.Say(general, ann, "hello")
	post, hidden := c.srv.AddThread(forum, "post"), c.srv.AddThread(general, "hidden")
	c.srv.Block(hidden, CodeMissingAccess)
	ws := c.dial("?v=9&encoding=json")
	_, events, _ := c.talk(ws, 3, identify(Token, usual))
	var g guildCreate
	if err := json.Unmarshal(events[2], &g); err != nil {
		t.Fatal(err)
	}
	last := map[string]string{}
	for _, ch := range g.Channels {
		if ch.GuildID != "" || ch.LastMessageID == nil {
			t.Errorf("channel %+v", ch)
			continue
		}
		last[ch.ID] = *ch.LastMessageID
	}
	if last[general] != said || last[forum] != post || len(g.Threads) != 1 || g.Threads[0].ID != post || g.Threads[0].NewlyCreated {
		t.Errorf("got %+v", g)
	}
	c.srv.AddThread(general, "new")
	if seen, events, _ := c.talk(ws, 1); seen[0] != "THREAD_CREATE" || !strings.Contains(string(events[0]), `"newly_created":true`) {
		t.Errorf("%s: %s", seen, events)
	}
}

type guildCreate struct {
	Channels []Channel `json:"channels"`
	Threads  []Channel `json:"threads"`
}

// dial opens a gateway connection and reads HELLO.
func (c *client) dial(query string) *websocket.Conn {
	c.Helper()
	d := websocket.Dialer{}
	ws, resp, err := d.DialContext(c.Context(), "ws"+strings.TrimPrefix(c.base, "http")+"/"+query, nil)
	if err != nil {
		c.Fatal(err)
	}
	_ = resp.Body.Close()
	c.Cleanup(func() { _ = ws.Close() })
	return ws
}

// talk sends packets and returns the types (or opcodes) of what comes back
// until a close, whose code it returns, or until n packets have come.
func (c *client) talk(ws *websocket.Conn, n int, packets ...string) (seen []string, events []json.RawMessage, code int) {
	c.Helper()
	for _, p := range packets {
		if err := ws.WriteMessage(websocket.TextMessage, []byte(p)); err != nil {
			c.Fatal(err)
		}
	}
	for range n {
		_ = ws.SetReadDeadline(time.Now().Add(10 * time.Second))
		var p struct {
			Op   int             `json:"op"`
			Type string          `json:"t"`
			Data json.RawMessage `json:"d"`
		}
		err := ws.ReadJSON(&p)
		if closed, ok := errors.AsType[*websocket.CloseError](err); ok {
			return seen, events, closed.Code
		}
		if err != nil {
			c.Fatalf("%v after %v", err, seen)
		}
		if p.Type == "" {
			p.Type = fmt.Sprint(p.Op)
		}
		seen, events = append(seen, p.Type), append(events, p.Data)
	}
	return seen, events, 0
}

func identify(token string, intents int) string {
	return fmt.Sprintf(`{"op":2,"d":{"token":%q,"intents":%d,"properties":{"os":"x"}}}`, token, intents)
}

const usual = IntentGuilds | IntentGuildMessages | IntentDirectMessages | IntentMessageContent

func TestCloseCodes(t *testing.T) {
	c := newClient(t, Options{Refused: IntentGuildPresences})
	good := identify(Token, usual)
	for name, tt := range map[string]struct {
		query   string
		packets []string
		want    int
	}{
		"version":             {"?v=6&encoding=json", nil, CloseInvalidVersion},
		"encoding":            {"?v=9&encoding=etf", nil, CloseDecodeError},
		"no JSON":             {"", []string{`{`}, CloseDecodeError},
		"too large":           {"", []string{`{"op":1,"d":"` + strings.Repeat("x", 4100) + `"}`}, CloseDecodeError},
		"opcode":              {"", []string{`{"op":99}`}, CloseUnknownOpcode},
		"not authenticated":   {"", []string{`{"op":3,"d":{}}`}, CloseNotAuthenticated},
		"token":               {"", []string{identify("nonsense", usual)}, CloseAuthFailed},
		"twice":               {"", []string{good, good}, CloseAlreadyAuth},
		"no properties":       {"", []string{`{"op":2,"d":{"token":"` + Token + `","intents":1}}`}, CloseDecodeError},
		"unknown intent":      {"", []string{identify(Token, 1<<30)}, CloseInvalidIntents},
		"disallowed intent":   {"", []string{identify(Token, IntentGuildPresences)}, CloseDisallowedIntents},
		"resume, bad token":   {"", []string{`{"op":6,"d":{"token":"x","session_id":"y","seq":1}}`}, CloseAuthFailed},
		"too many heartbeats": {"", slicesRepeat(`{"op":1,"d":null}`, 121), CloseRateLimited},
	} {
		t.Run(name, func(t *testing.T) {
			query := tt.query
			if query == "" {
				query = "?v=9&encoding=json"
			}
			if seen, _, code := c.talk(c.dial(query), 200, tt.packets...); code != tt.want {
				t.Errorf("close code %d after %v, want %d", code, seen, tt.want)
			}
		})
	}
}

func slicesRepeat(s string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = s
	}
	return out
}

func TestSession(t *testing.T) {
	c := newClient(t, Options{})
	ann := c.srv.AddUser("ann", "")
	guild := c.srv.AddGuild("Guild")
	general, dm := c.srv.AddChannel(guild, "general"), c.srv.AddDM(ann)

	ws := c.dial("?v=9&encoding=json")
	seen, events, _ := c.talk(ws, 4, identify(Token, usual&^IntentMessageContent), `{"op":1,"d":null}`)
	if got := strings.Join(seen, " "); got != "10 READY GUILD_CREATE 11" {
		t.Fatalf("got %s", got)
	}
	var ready struct {
		SessionID string `json:"session_id"`
	}
	if err := json.Unmarshal(events[1], &ready); err != nil || ready.SessionID == "" {
		t.Fatalf("READY = %s", events[1])
	}

	// Content is withheld without its intent, except where the documentation says.
	c.srv.Say(general, ann, "secret")
	c.srv.Say(general, ann, "open "+Mention(c.srv.Bot()))
	c.srv.Say(dm, ann, "private")
	c.do("POST", "/api/v9/channels/"+general+"/messages", `{"content":"own"}`)
	seen, events, _ = c.talk(ws, 4)
	for i, want := range []string{"", "open " + Mention(c.srv.Bot()), "private", "own"} {
		var m Message
		if err := json.Unmarshal(events[i], &m); err != nil || seen[i] != "MESSAGE_CREATE" || m.Content != want {
			t.Errorf("%s says %q, want %q", seen[i], m.Content, want)
		}
		if (m.GuildID == guild) != (i != 2) {
			t.Errorf("message %d is of guild %q", i, m.GuildID)
		}
	}

	// A dropped session is resumed with what it missed; seq counts READY as 1.
	c.srv.DropSockets()
	if _, _, err := ws.ReadMessage(); err == nil {
		t.Fatal("the socket still lives")
	}
	c.srv.Say(dm, ann, "missed")
	resume := fmt.Sprintf(`{"op":6,"d":{"token":%q,"session_id":%q,"seq":%%d}}`, Token, ready.SessionID)
	ws = c.dial("?v=9&encoding=json")
	seen, events, _ = c.talk(ws, 4, fmt.Sprintf(resume, 5))
	if got := strings.Join(seen, " "); got != "10 MESSAGE_CREATE MESSAGE_CREATE RESUMED" || !strings.Contains(string(events[2]), "missed") {
		t.Errorf("resumed with %s: %s", got, events)
	}

	// A sequence from the future is refused, and its session is over.
	if _, _, code := c.talk(c.dial("?v=9&encoding=json"), 9, fmt.Sprintf(resume, 99)); code != CloseInvalidSeq {
		t.Errorf("close code %d", code)
	}
	if seen, _, _ := c.talk(c.dial("?v=9&encoding=json"), 2, fmt.Sprintf(resume, 5)); seen[1] != "9" {
		t.Errorf("resuming what is over gets %v", seen)
	}
}
