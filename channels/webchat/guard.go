package webchat

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// guard decides which requests come from our own page and from somebody who
// may see it. It is immutable, but for the count of failed logins.
type guard struct {
	token    string
	anyName  bool            // every Host is fine
	proxied  bool            // there are allowed_hosts
	names    map[string]bool // "name:port", lower case
	hosts    map[string]bool // names that are fine with every port
	failures *failures
	now      func() time.Time
}

func newGuard(cfg Config, addr net.Addr) *guard {
	g := &guard{
		token:    string(cfg.Token),
		anyName:  len(cfg.AllowedHosts) == 0 && !isLoopback(addr),
		proxied:  len(cfg.AllowedHosts) > 0,
		names:    map[string]bool{},
		hosts:    map[string]bool{},
		failures: newFailures(),
		now:      time.Now,
	}
	for _, h := range cfg.AllowedHosts {
		h = strings.ToLower(strings.TrimSpace(h))
		if _, _, err := net.SplitHostPort(h); err == nil {
			g.names[h] = true
		} else {
			g.hosts[strings.Trim(h, "[]")] = true
		}
	}
	names, port := []string{"localhost", "127.0.0.1", "::1"}, "80"
	if tcp, ok := addr.(*net.TCPAddr); ok {
		port = strconv.Itoa(tcp.Port)
		if !tcp.IP.IsUnspecified() {
			names = append(names, tcp.IP.String())
		}
	}
	for _, n := range names {
		g.names[net.JoinHostPort(n, port)] = true
	}
	return g
}

// hostOK reports whether the page may be asked for under this name. A name
// that another site made point to us (DNS rebinding) is not among those.
// Beyond loopback and without allowed_hosts every name is fine: there the token
// decides, and a browser does not show our cookies under a foreign name.
func (g *guard) hostOK(host string) bool {
	if host == "" {
		return false
	}
	return g.anyName || g.known(strings.ToLower(host), "80")
}

// known reports whether host, which is lower case, is one of our names.
func (g *guard) known(host, defaultPort string) bool {
	name := hostOnly(host)
	_, port, err := net.SplitHostPort(host)
	if err != nil {
		port = defaultPort
	}
	return g.hosts[name] || g.names[net.JoinHostPort(name, port)]
}

// sameOrigin reports whether a browser sent r from our own page. A request
// that changes something has to say so itself (needOrigin); a browser leaves
// the header out when a page reads from its own origin.
func (g *guard) sameOrigin(r *http.Request, needOrigin bool) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" {
		return false
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return !needOrigin
	}
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || u.Path != "" {
		return false
	}
	port := "80"
	switch u.Scheme {
	case "http":
	case "https":
		port = "443"
	default:
		return false
	}
	host := strings.ToLower(u.Host)
	if host == strings.ToLower(strings.TrimSuffix(r.Host, ":"+port)) {
		return true
	}
	// A proxy may have put another Host in front of us; the name the browser
	// knows is then one of the configured ones.
	return g.proxied && g.known(host, port)
}

// tokenOK compares in constant time and independent of the token's length.
func (g *guard) tokenOK(token string) bool {
	want, got := sha256.Sum256([]byte(g.token)), sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(want[:], got[:]) == 1
}

// bearer returns the token of an Authorization header.
func bearer(r *http.Request) (token string, ok bool) {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	return strings.TrimSpace(token), true
}
