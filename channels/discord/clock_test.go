package discord

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"
)

// TestAgeByDiscordsClock: what is too old to be answered is told by Discord's
// clock. Where ours was a year ahead every message of a gap was too old.
func TestAgeByDiscordsClock(t *testing.T) {
	for name, off := range map[string]time.Duration{"right": 0, "ours is ahead": -365 * 24 * time.Hour, "ours is behind": 56 * 365 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Date", time.Now().Add(off).UTC().Format(http.TimeFormat))
			}))
			t.Cleanup(srv.Close)
			base, err := url.Parse(srv.URL)
			if err != nil {
				t.Fatal(err)
			}
			tr := newTransport(base, nil)
			t.Cleanup(tr.next.CloseIdleConnections)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://discord.com/api/v9/gateway/bot", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			if err := resp.Body.Close(); err != nil {
				t.Fatal(err)
			}
			d := &delivery{c: &Channel{transport: tr, cfg: Config{CatchUp: CatchUp{MaxAge: time.Hour}}}}
			there := time.Now().Add(off)
			if old, young := snowflakeAt(there.Add(-61*time.Minute)), snowflakeAt(there.Add(-59*time.Minute)); d.oldest() < old || d.oldest() > young {
				t.Errorf("the oldest is %d, want it between %d and %d", d.oldest(), old, young)
			}
		})
	}
}
