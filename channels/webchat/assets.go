package webchat

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"sync"
	"time"
)

//go:embed page
var page embed.FS

// asset is one file of the page.
type asset struct {
	file, mime string
	load       func() (content []byte, etag string)
}

// assets returns the page's files by their path. A file is read and hashed when
// it is first asked for.
func assets() map[string]*asset {
	return map[string]*asset{
		"/{$}":         newAsset("index.html", "text/html; charset=utf-8"),
		"/app.js":      newAsset("app.js", "text/javascript; charset=utf-8"),
		"/style.css":   newAsset("style.css", "text/css; charset=utf-8"),
		"/favicon.svg": newAsset("favicon.svg", "image/svg+xml"),
	}
}

func newAsset(file, mime string) *asset {
	a := &asset{file: file, mime: mime}
	a.load = sync.OnceValues(func() ([]byte, string) {
		b, err := page.ReadFile("page/" + file)
		if err != nil {
			panic(err) // cannot happen: the file is part of the program
		}
		sum := sha256.Sum256(b)
		return b, `"` + hex.EncodeToString(sum[:12]) + `"`
	})
	return a
}

// ServeHTTP serves the file; a browser asks each time whether it is still the
// same, so a new version of the daemon shows at once.
func (a *asset) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	content, etag := a.load()
	h := w.Header()
	h.Set("Content-Type", a.mime)
	h.Set("Cache-Control", "no-cache")
	h.Set("Etag", etag)
	http.ServeContent(w, r, a.file, time.Time{}, bytes.NewReader(content))
}
