package telegramtest

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// params are a request's parameters: "GET and POST; URL query string,
// application/x-www-form-urlencoded, application/json or multipart/form-data".
type params url.Values

const maxRequest = 1 << 20

func readParams(r *http.Request) (params, error) {
	r.Body = http.MaxBytesReader(nil, r.Body, maxRequest)
	kind := r.Header.Get("Content-Type")
	switch {
	case strings.HasPrefix(kind, "application/json"):
		var fields map[string]json.RawMessage
		if err := json.NewDecoder(r.Body).Decode(&fields); err != nil {
			return nil, err
		}
		p := make(params, len(fields))
		for k, raw := range fields {
			var s string
			if json.Unmarshal(raw, &s) != nil {
				s = string(raw)
			}
			p[k] = []string{s}
		}
		return p, nil
	case strings.HasPrefix(kind, "multipart/form-data"):
		if err := r.ParseMultipartForm(maxRequest); err != nil {
			return nil, err
		}
	default:
		if err := r.ParseForm(); err != nil {
			return nil, err
		}
	}
	return params(r.Form), nil
}

func (p params) get(key string) string { return url.Values(p).Get(key) }

// number reads an integer; a missing one is 0, as is one the platform cannot
// read.
func (p params) number(key string) int64 {
	n, err := strconv.ParseInt(p.get(key), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func (p params) flag(key string) bool {
	v := strings.ToLower(p.get(key))
	return v == "true" || v == "1" || v == "yes"
}
