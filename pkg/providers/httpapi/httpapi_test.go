package httpapi_test

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/httpapi"
)

// What the two adapters make of this package is tested there.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func client(t *testing.T) *httpapi.Client {
	t.Helper()
	c, err := httpapi.NewClient(httpapi.Config{BaseURL: " http://fake/v1// ", APIKey: " the-key ", MaxAttempts: 3}, "http://fake")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestNewClientFillsGaps(t *testing.T) {
	c := client(t)
	if c.BaseURL != "http://fake/v1" || c.Key != "the-key" || c.MaxAttempts != 3 {
		t.Errorf("got %q, %q, %d", c.BaseURL, c.Key, c.MaxAttempts)
	}
	if c.AttemptTimeout != httpapi.DefaultAttemptTimeout || c.RetryBudget != httpapi.DefaultRetryBudget ||
		c.MaxRetryAfter != httpapi.DefaultMaxRetryAfter || c.Transport == nil || c.Logger == nil {
		t.Errorf("gaps are left: %+v", c.Config)
	}
}

func TestRetry(t *testing.T) {
	tests := map[string]struct {
		retry      bool
		retryAfter time.Duration
		fails      int
		attempts   int
		least      time.Duration
	}{
		"at once":             {fails: 0, attempts: 1},
		"second time":         {retry: true, fails: 1, attempts: 2},
		"no use":              {fails: 9, attempts: 1},
		"as often as allowed": {retry: true, fails: 9, attempts: 3},
		"as the API asks":     {retry: true, retryAfter: 40 * time.Second, fails: 1, attempts: 2, least: 40 * time.Second},
		"asks for too much":   {retry: true, retryAfter: 2 * time.Minute, fails: 1, attempts: 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, start, attempts := client(t), time.Now(), 0
				err := c.Retry(t.Context(), func() *httpapi.Failure {
					if attempts++; attempts > tt.fails {
						return nil
					}
					f := c.Fail(providers.KindOverloaded, 503, "busy", tt.retry)
					f.RetryAfter = tt.retryAfter
					return &f
				})
				if attempts != tt.attempts || (err == nil) != (attempts > tt.fails) {
					t.Errorf("%d attempts, then %v", attempts, err)
				}
				if err != nil && providers.KindOf(err) != providers.KindOverloaded {
					t.Errorf("the error is %v", err)
				}
				if took := time.Since(start); took < tt.least {
					t.Errorf("it waited for %v", took)
				}
			})
		})
	}
}

func TestFailuresHoldNoSecret(t *testing.T) {
	c := client(t)
	secret := errors.New("refused: the-key")
	f := c.Unreachable(&url.Error{Op: "Post", URL: "http://user:password@fake", Err: secret})
	if got := fmt.Sprint(f.Error, f.Unwrap()); strings.Contains(got, "the-key") || strings.Contains(got, "password") {
		t.Errorf("the error is %s", got)
	}
	plain := errors.New("reset\nby peer")
	if f := c.BrokeOff(200, plain); !errors.Is(f.Error, plain) || !f.Retry || f.Message != "the answer broke off: reset by peer" {
		t.Errorf("got %+v", f)
	}
}
