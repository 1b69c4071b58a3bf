package httpapi

import (
	"crypto/tls"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"unicode"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// Failure is a failed attempt.
type Failure struct {
	*providers.Error

	Retry bool // the same request may succeed
}

// Fail makes a failure whose message holds no key and fits a log line.
func (c *Client) Fail(kind providers.ErrorKind, status int, message string, retry bool) Failure {
	return Failure{Error: &providers.Error{Kind: kind, Status: status, Message: c.clean(message)}, Retry: retry}
}

// Unreachable is a request that got no answer at all.
func (c *Client) Unreachable(err error) Failure {
	err = withoutURL(err)
	_, badCert := errors.AsType[*tls.CertificateVerificationError](err)
	f := c.Fail(providers.KindUnreachable, 0, err.Error(), !badCert)
	f.Err = c.cause(err)
	return f
}

// BrokeOff is an answer that ended too early, because of err.
func (c *Client) BrokeOff(status int, err error) Failure {
	err = withoutURL(err)
	f := c.Fail(providers.KindUnreachable, status, "the answer broke off: "+err.Error(), true)
	f.Err = c.cause(err)
	return f
}

// Classify says what a refusal means by its status, and whether to try again.
// What else an API tells of it comes before that.
func Classify(status int) (kind providers.ErrorKind, retry bool) {
	switch {
	case status == http.StatusPaymentRequired:
		return providers.KindBilling, false
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return providers.KindAuth, false
	case status == http.StatusRequestEntityTooLarge:
		return providers.KindContextOverflow, false
	case status == http.StatusTooManyRequests:
		return providers.KindRateLimit, true
	case status == http.StatusRequestTimeout, status == http.StatusGatewayTimeout, status == 524: // 524: a proxy of Cloudflare's waited in vain
		return providers.KindTimeout, true
	case status == http.StatusNotImplemented: // some other web server
		return providers.KindUnreachable, false
	case status == http.StatusConflict, status == http.StatusTooEarly, status >= http.StatusInternalServerError:
		return providers.KindOverloaded, true
	}
	return providers.KindInvalidRequest, false
}

// withoutURL takes the address, which may hold a password, out of an error.
func withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// cause keeps an error for errors.Is, unless its text holds the key.
func (c *Client) cause(err error) error {
	if c.Key != "" && strings.Contains(err.Error(), c.Key) {
		return nil
	}
	return err
}

// clean makes an API's words fit for a log: without the key, on one line, and
// not longer than a line should be.
func (c *Client) clean(s string) string {
	if len(c.Key) > 3 {
		s = strings.ReplaceAll(s, c.Key, "***")
	}
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	const most = 500
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
