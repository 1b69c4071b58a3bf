package logger

import (
	"bytes"
	"encoding/json"
	"io"
	"net/url"
	"strconv"
	"sync"
)

// mask stands where a secret was, as in config.Secret.
const mask = "***"

// minSecret is the shortest text that is hidden: a shorter one would blot out
// half the log and is no secret anyway.
const minSecret = 6

// Redactor is a writer that blots out secrets in what passes through it,
// wherever in a line they stand: in a message, an attribute, an error's text or
// the address of a request. Put it between the log and its file.
type Redactor struct {
	w io.Writer

	// Handlers of several loggers may share one writer.
	mu      sync.RWMutex
	secrets [][]byte
}

// NewRedactor returns a Redactor that writes to w.
func NewRedactor(w io.Writer) *Redactor { return &Redactor{w: w} }

// Add hides secret from now on, also in the forms in which a log line or a URL
// writes it. Safe for concurrent use.
func (r *Redactor) Add(secret string) {
	if len(secret) < minSecret {
		return
	}
	quoted := strconv.Quote(secret)
	forms := []string{secret, url.QueryEscape(secret), url.PathEscape(secret), quoted[1 : len(quoted)-1]}
	if j, err := json.Marshal(secret); err == nil {
		forms = append(forms, string(j[1:len(j)-1]))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range forms {
		if !r.has(f) {
			r.secrets = append(r.secrets, []byte(f))
		}
	}
}

func (r *Redactor) has(form string) bool {
	for _, s := range r.secrets {
		if string(s) == form {
			return true
		}
	}
	return false
}

// Write writes p with every secret replaced. It reports len(p) as written,
// whatever the length of what really was.
func (r *Redactor) Write(p []byte) (int, error) {
	if _, err := r.w.Write(r.hide(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Hide returns s with every secret replaced. Safe for concurrent use.
func (r *Redactor) Hide(s string) string { return string(r.hide([]byte(s))) }

// hide returns p itself if no secret is in it.
func (r *Redactor) hide(p []byte) []byte {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, s := range r.secrets {
		if bytes.Contains(p, s) {
			p = bytes.ReplaceAll(p, s, []byte(mask))
		}
	}
	return p
}
