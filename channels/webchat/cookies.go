package webchat

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
	"time"
)

// How long cookies live: a conversation as long as browsers allow, a login a
// month.
const (
	chatTTL  = 400 * 24 * time.Hour
	loginTTL = 30 * 24 * time.Hour
)

// The conversation's key is 24 random bytes; the chat id and the sender's id
// are hashes of it, so that neither opens the conversation.
const (
	keyBytes    = 24
	chatIDBytes = 20
)

var idEncoding = base32.HexEncoding.WithPadding(base32.NoPadding)

func newKey() string {
	var b [keyBytes]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return base64.RawURLEncoding.EncodeToString(b[:])
}

func validKey(key string) bool {
	b, err := base64.RawURLEncoding.Strict().DecodeString(key)
	return err == nil && len(b) == keyBytes
}

func derive(purpose, key string) string {
	h := sha256.Sum256([]byte(purpose + ":" + key))
	return strings.ToLower(idEncoding.EncodeToString(h[:chatIDBytes]))
}

func chatIDOf(key string) string   { return derive("chat", key) }
func senderIDOf(key string) string { return derive("sender", key) }

// validChatID reports whether id has the form chatIDOf makes.
func validChatID(id string) bool {
	b, err := idEncoding.DecodeString(strings.ToUpper(id))
	return err == nil && len(b) == chatIDBytes && len(id) == idEncoding.EncodedLen(chatIDBytes) && id == strings.ToLower(id)
}

// cookies makes and reads the page's two cookies: which conversation, and
// whether this browser has shown the token.
type cookies struct {
	chat, login string // names
	secret      []byte // of the login's signature
	now         func() time.Time
}

// newCookies names the cookies after the channel, because browsers share them
// between all ports of a host, and the login also after the token, so that two
// daemons on one host do not log each other's users out.
func newCookies(channel, token string, now func() time.Time) *cookies {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '_'
	}, channel)
	secret := sha256.Sum256([]byte("login:" + token))
	tag := sha256.Sum256(secret[:])
	return &cookies{
		chat:   "dragoman_" + name,
		login:  "dragoman_" + name + "_" + hex.EncodeToString(tag[:4]),
		secret: secret[:],
		now:    now,
	}
}

// key returns the conversation's key, "" if the browser has none yet.
func (c *cookies) key(r *http.Request) string {
	ck, err := r.Cookie(c.chat)
	if err != nil || !validKey(ck.Value) {
		return ""
	}
	return ck.Value
}

func (c *cookies) setKey(w http.ResponseWriter, r *http.Request, key string) {
	c.set(w, r, c.chat, key, chatTTL)
}

// setLogin marks the browser as one that has shown the token. The mark is
// signed with the token, so it needs no list of sessions and ends with a
// change of the token.
func (c *cookies) setLogin(w http.ResponseWriter, r *http.Request) {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(c.now().Add(loginTTL).Unix())) //nolint:gosec // far from both ends
	_, _ = rand.Read(b[8:])
	c.set(w, r, c.login, base64.RawURLEncoding.EncodeToString(c.sign(b[:])), loginTTL)
}

func (c *cookies) sign(b []byte) []byte {
	mac := hmac.New(sha256.New, c.secret)
	mac.Write(b)
	return mac.Sum(slices.Clip(b))
}

func (c *cookies) loggedIn(r *http.Request) bool {
	ck, err := r.Cookie(c.login)
	if err != nil {
		return false
	}
	b, err := base64.RawURLEncoding.DecodeString(ck.Value)
	if err != nil || len(b) != 16+sha256.Size || !hmac.Equal(b, c.sign(b[:16])) {
		return false
	}
	until := time.Unix(int64(binary.BigEndian.Uint64(b[:8])), 0) //nolint:gosec // signed by us
	return c.now().Before(until)
}

func (c *cookies) set(w http.ResponseWriter, r *http.Request, name, value string, ttl time.Duration) {
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // Secure wherever there is https; on loopback there is none
		Name:     name,
		Value:    value,
		Path:     "/",
		MaxAge:   int(ttl.Seconds()),
		HttpOnly: true,
		SameSite: http.SameSiteStrictMode,
		Secure:   r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https"),
	})
}
