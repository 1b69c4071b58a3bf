package webchat

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/config"
)

func tcp(ip string, port int) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: port} }

// Under which names the page answers.
func TestHost(t *testing.T) {
	loopback, public := tcp("127.0.0.1", 8080), tcp("0.0.0.0", 8080)
	proxied := []string{"chat.example.org", "10.0.0.5:9000", "[2001:db8::1]"}
	for _, tc := range []struct {
		addr    net.Addr
		allowed []string
		host    string
		want    bool
	}{
		{loopback, nil, "127.0.0.1:8080", true},
		{loopback, nil, "localhost:8080", true},
		{loopback, nil, "LocalHost:8080", true},
		{loopback, nil, "[::1]:8080", true},
		{tcp("127.0.0.2", 8080), nil, "127.0.0.2:8080", true},
		{tcp("127.0.0.1", 80), nil, "localhost", true},
		{loopback, nil, "", false},
		{loopback, nil, "localhost", false},
		{loopback, nil, "localhost:80", false},
		{loopback, nil, "127.0.0.1:8081", false},
		{loopback, nil, "evil.example:8080", false},
		{loopback, nil, "127.0.0.1.evil.example:8080", false},
		{loopback, nil, "localhost.:8080", false},
		{loopback, nil, "localhost:8080:8080", false},
		{loopback, nil, "0.0.0.0:8080", false},
		{loopback, nil, "192.168.1.2:8080", false},
		{loopback, nil, "localhost:8080@evil.example", false},
		{loopback, proxied, "chat.example.org", true},
		{loopback, proxied, "CHAT.example.org:443", true},
		{loopback, proxied, "10.0.0.5:9000", true},
		{loopback, proxied, "10.0.0.5:9001", false},
		{loopback, proxied, "10.0.0.5", false},
		{loopback, proxied, "[2001:db8::1]:8080", true},
		{loopback, proxied, "example.org", false},
		{loopback, proxied, "localhost:8080", true},
		{public, nil, "anything.example:8080", true},
		{public, nil, "", false},
		{public, proxied, "chat.example.org", true},
		{public, proxied, "localhost:8080", true}, // health checks
		{public, proxied, "anything.example:8080", false},
	} {
		if got := newGuard(Config{AllowedHosts: tc.allowed}, tc.addr).hostOK(tc.host); got != tc.want {
			t.Errorf("at %s with %q, Host %q: %v, want %v", tc.addr, tc.allowed, tc.host, got, tc.want)
		}
	}
}

// From which pages requests are taken.
func TestOrigin(t *testing.T) {
	for _, tc := range []struct {
		host, origin, site string
		allowed            string
		read, change       bool
	}{
		{"localhost:8080", "http://localhost:8080", "same-origin", "", true, true},
		{"localhost:8080", "http://localhost:8080", "", "", true, true},
		{"localhost:8080", "", "same-origin", "", true, false},
		{"localhost:8080", "", "", "", true, false},
		{"localhost:8080", "", "cross-site", "", false, false},
		{"localhost:8080", "", "same-site", "", false, false},
		{"localhost:8080", "", "none", "", false, false},
		{"localhost:8080", "null", "", "", false, false},
		{"localhost:8080", "http://localhost:3000", "", "", false, false},
		{"localhost:8080", "http://localhost", "", "", false, false},
		{"localhost:8080", "http://127.0.0.1:8080", "", "", false, false},
		{"localhost:8080", "http://evil.example", "", "", false, false},
		{"localhost:8080", "http://localhost:8080.evil.example", "", "", false, false},
		{"localhost:8080", "http://localhost:8080", "cross-site", "", false, false},
		{"localhost:8080", "file://localhost:8080", "", "", false, false},
		{"localhost:8080", "localhost:8080", "", "", false, false},
		{"localhost:8080", "http://localhost:8080/", "", "", false, false},
		{"chat.example.org", "https://chat.example.org", "", "chat.example.org", true, true},
		{"chat.example.org:443", "https://chat.example.org", "", "chat.example.org", true, true},
		{"127.0.0.1:8080", "https://chat.example.org", "", "chat.example.org", true, true}, // the proxy's own Host
		{"127.0.0.1:8080", "https://chat.example.org:8443", "", "chat.example.org:443", false, false},
		{"127.0.0.1:8080", "https://other.example.org", "", "chat.example.org", false, false},
	} {
		cfg := Config{}
		if tc.allowed != "" {
			cfg.AllowedHosts = []string{tc.allowed}
		}
		g := newGuard(cfg, tcp("127.0.0.1", 8080))
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody)
		r.Host = tc.host
		for k, v := range map[string]string{"Origin": tc.origin, "Sec-Fetch-Site": tc.site} {
			if v != "" {
				r.Header.Set(k, v)
			}
		}
		if got := g.sameOrigin(r, false); got != tc.read {
			t.Errorf("reading at %s from %q (%s): %v, want %v", tc.host, tc.origin, tc.site, got, tc.read)
		}
		if got := g.sameOrigin(r, true); got != tc.change {
			t.Errorf("changing at %s from %q (%s): %v, want %v", tc.host, tc.origin, tc.site, got, tc.change)
		}
	}
}

// Nothing of the page's interface can be used from another site, or under
// another name, not even with the browser's cookies.
func TestForeignRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := &memory{}
		_, w := serve(t, Config{}, in)
		b := newBrowser(t, origin, w.dial)
		b.open()
		body := post{ID: "message-1", Text: "not mine"}
		for name, header := range map[string]map[string]string{
			"another site":              {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"},
			"another site, old browser": {"Origin": "http://evil.example", "Sec-Fetch-Site": ""},
			"another port":              {"Origin": "http://localhost:3000", "Sec-Fetch-Site": "same-site"},
			"a sandbox":                 {"Origin": "null", "Sec-Fetch-Site": "cross-site"},
			"a rebound name":            {"Host": "evil.example", "Origin": "http://evil.example"},
			"no origin":                 {"Origin": "", "Sec-Fetch-Site": ""},
			"a wrong bearer":            {"Authorization": "Bearer x", "Origin": "http://evil.example"},
		} {
			for _, path := range []string{"/api/session", "/api/messages", "/api/login"} {
				if code, text := b.status(http.MethodPost, path, body, header); code < 400 || strings.Contains(text, "cursor") {
					t.Errorf("%s: POST %s = %d", name, path, code)
				}
			}
			if name == "no origin" {
				continue // a browser leaves it out when its own page reads
			}
			if code, _ := b.status(http.MethodGet, "/api/events", nil, header); code < 400 {
				t.Errorf("%s: GET /api/events = %d", name, code)
			}
		}
		for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""} {
			if code, _ := b.status(http.MethodPost, "/api/messages", body, map[string]string{"Content-Type": kind}); code != http.StatusUnsupportedMediaType {
				t.Errorf("a %q body: %d", kind, code)
			}
		}
		for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete, http.MethodOptions} {
			if code, _ := b.status(method, "/api/messages", nil, nil); code != http.StatusMethodNotAllowed {
				t.Errorf("%s /api/messages: %d", method, code)
			}
		}
		if n := len(in.messages()); n != 0 {
			t.Errorf("%d messages were taken", n)
		}
		if code, text := b.status(http.MethodPost, "/api/messages", body, nil); code != http.StatusAccepted {
			t.Errorf("the page's own message: %d %s", code, text)
		}
	})
}

// With a token nothing is served to who does not show it.
func TestToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, w := serve(t, Config{Token: testToken}, &memory{})
		b := newBrowser(t, origin, w.dial)
		tries := func(want int) {
			t.Helper()
			for method, path := range map[string]string{http.MethodPost: "/api/session", http.MethodGet: "/api/events"} {
				if code, _ := b.status(method, path, nil, nil); code != want {
					t.Errorf("%s: %d, want %d", path, code, want)
				}
			}
		}
		tries(http.StatusUnauthorized)
		if code, _ := b.status(http.MethodPost, "/api/login", map[string]string{"token": "guess"}, nil); code != http.StatusUnauthorized {
			t.Errorf("a wrong token: %d", code)
		}
		tries(http.StatusUnauthorized)
		if code, _ := b.status(http.MethodPost, "/api/login", map[string]string{"token": testToken}, nil); code != http.StatusNoContent {
			t.Fatalf("the right token: %d", code)
		}
		s := b.open()
		if code, _ := b.status(http.MethodGet, "/api/events", nil, nil); code != http.StatusOK || s.Cursor == 0 {
			t.Errorf("events after the login: %d", code)
		}
		// A script with the token needs no login and no origin.
		api := newBrowser(t, origin, w.dial)
		header := map[string]string{"Authorization": "Bearer " + testToken, "Origin": "", "Sec-Fetch-Site": ""}
		if code, _ := api.status(http.MethodPost, "/api/session", nil, header); code != http.StatusOK {
			t.Errorf("a session with the token: %d", code)
		}
		if code, text := api.status(http.MethodPost, "/api/messages", post{ID: "message-1", Text: "hi"}, header); code != http.StatusAccepted {
			t.Errorf("a message with the token: %d %s", code, text)
		}
		if n, _, _ := c.hub.counts(); n != 2 {
			t.Errorf("%d conversations, want 2", n)
		}
	})
}

// Guessing is slow, and does not lock out who guesses not.
func TestGuessing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFailures()
		now := time.Now()
		const guesser, friend = "192.0.2.1:1000", "192.0.2.2:1000"
		for i := range maxFailures {
			if _, ok := f.attempt(guesser, now); !ok {
				t.Fatalf("attempt %d is refused", i)
			}
		}
		if _, ok := f.attempt("192.0.2.1:2000", now); ok {
			t.Error("the same address from another port may go on")
		}
		for range 100 {
			right, ok := f.attempt(friend, now)
			if !ok {
				t.Fatal("right tokens count as failures")
			}
			right()
		}
		if _, ok := f.attempt(guesser, now.Add(failurePeriod)); !ok {
			t.Error("still refused after the pause")
		}
		f.attempt("[2001:db8::1]:1", now)
		for i := range 4 * maxTracked {
			f.attempt(fmt.Sprintf("10.0.%d.%d:1", i/256, i%256), now)
		}
		if len(f.byAddr) > maxTracked {
			t.Errorf("%d addresses are remembered", len(f.byAddr))
		}
		for i := range maxFailures {
			f.attempt(fmt.Sprintf("[2001:db8::%d]:1", i+2), now)
		}
		if _, ok := f.attempt("[2001:db8::ffff]:1", now); ok {
			t.Error("a network may go on from its next address")
		}
		later := now.Add(time.Hour)
		f.attempt("10.99.0.1:1", later)
		if len(f.byAddr) > 2 {
			t.Errorf("%d addresses are remembered after an hour", len(f.byAddr))
		}
	})
}

func TestLoginIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, w := serve(t, Config{Token: testToken}, &memory{})
		b := newBrowser(t, origin, w.dial)
		codes := map[int]int{}
		for range maxFailures + 3 {
			code, _ := b.status(http.MethodPost, "/api/login", map[string]string{"token": "guess"}, nil)
			codes[code]++
		}
		if codes[http.StatusUnauthorized] != maxFailures || codes[http.StatusTooManyRequests] != 3 {
			t.Errorf("answers: %v", codes)
		}
		if code, _ := b.status(http.MethodPost, "/api/session", nil, map[string]string{"Authorization": "Bearer guess"}); code != http.StatusTooManyRequests {
			t.Errorf("guessing goes on with bearer tokens: %d", code)
		}
		time.Sleep(failurePeriod)
		if code, _ := b.status(http.MethodPost, "/api/login", map[string]string{"token": testToken}, nil); code != http.StatusNoContent {
			t.Errorf("the right token after the pause: %d", code)
		}
	})
}

// A login is worth something only here, unchanged, and for its time.
func TestLoginCookie(t *testing.T) {
	now := time.Now()
	clock := func() time.Time { return now }
	ck := newCookies("web", testToken, clock)
	rec := httptest.NewRecorder()
	ck.setLogin(rec, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody))
	cookie := rec.Result().Cookies()[0]
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Secure {
		t.Errorf("cookie %+v", cookie)
	}
	in := func(ck *cookies, value string) bool {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
		r.AddCookie(&http.Cookie{Name: ck.login, Value: value})
		return ck.loggedIn(r)
	}
	if !in(ck, cookie.Value) {
		t.Error("the login does not count")
	}
	for _, other := range []*cookies{newCookies("web", "another token", clock), newCookies("web", "", clock)} {
		if in(other, cookie.Value) {
			t.Error("the login counts for another token")
		}
	}
	for i := range cookie.Value {
		forged := []byte(cookie.Value)
		if forged[i] ^= 1; in(ck, string(forged)) {
			t.Errorf("a login with character %d changed counts", i)
		}
	}
	if in(ck, "") || in(ck, cookie.Value[:20]) {
		t.Error("a cut login counts")
	}
	now = now.Add(loginTTL + time.Second)
	if in(ck, cookie.Value) {
		t.Error("the login counts for ever")
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody)
	r.Header.Set("X-Forwarded-Proto", "https")
	rec = httptest.NewRecorder()
	ck.setKey(rec, r, newKey())
	if !rec.Result().Cookies()[0].Secure {
		t.Error("a cookie behind https is not marked Secure")
	}
}

// The names of the two cookies hold nothing a header cannot, and differ
// between channels.
func TestCookieNames(t *testing.T) {
	a, b := newCookies("my web; chat=ä", "t", time.Now), newCookies("web", "t", time.Now)
	if a.chat == b.chat || strings.ContainsAny(a.chat+a.login, " ;=ä") {
		t.Errorf("cookies %q and %q", a.chat, b.chat)
	}
	if strings.Contains(b.login, string(config.Secret("t"))+"_t") {
		t.Error("the token is part of a name")
	}
}

func TestChatIDs(t *testing.T) {
	key := newKey()
	chat := chatIDOf(key)
	if !validKey(key) || !validChatID(chat) || strings.Contains(key, chat) || chat == senderIDOf(key) {
		t.Errorf("key %q, chat %q, sender %q", key, chat, senderIDOf(key))
	}
	if chatIDOf(key) != chat || chatIDOf(newKey()) == chat {
		t.Error("a chat id is not its key's and only its key's")
	}
	for _, bad := range []string{"", "x", chat + "0", chat[1:], strings.ToUpper(chat), "../../etc/passwd", key} {
		if validChatID(bad) {
			t.Errorf("%q is a chat id", bad)
		}
	}
	for _, bad := range []string{"", "x", key + "A", key[1:], strings.Repeat("=", len(key))} {
		if validKey(bad) {
			t.Errorf("%q is a key", bad)
		}
	}
}
