package telegram_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/channels/telegram"
	tt "github.com/dragoman-chat/dragoman/channels/telegram/telegramtest"
	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// otherClock is the way to a Telegram whose clock differs from ours; without
// one if it does not tell the time.
type otherClock struct {
	next  http.RoundTripper
	ahead time.Duration
	mute  bool
}

func (o otherClock) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := o.next.RoundTrip(r)
	if err == nil {
		resp.Header.Set("Date", time.Now().Add(o.ahead).UTC().Format(http.TimeFormat))
		if o.mute {
			resp.Header.Del("Date")
		}
	}
	return resp, err
}

// postAged posts a message that is so old by Telegram's clock.
func (b *bench) postAged(from tt.User, text string, ahead, age time.Duration) {
	b.t.Helper()
	b.s.Post(tt.Message{Chat: tt.Chat{ID: from.ID}, From: &from, Text: text, Date: time.Now().Add(ahead - age).Unix()})
}

func maxAge(d time.Duration) func(*telegram.Config) {
	return func(c *telegram.Config) { c.MaxAge = d }
}

// late returns what was offered as too old, and the gaps it was found in.
func (in *inbox) late() (texts, gaps []string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, b := range in.batches {
		for _, m := range b.Late {
			texts, gaps = append(texts, m.Text), append(gaps, b.Gap)
		}
	}
	return texts, slices.Compact(gaps)
}

// TestTooOld: what is too old to be answered is told by Telegram's clock, is
// counted in the log, and is offered as such.
func TestTooOld(t *testing.T) {
	const day, year = 24 * time.Hour, 365 * 24 * time.Hour
	for _, c := range []struct {
		name   string
		maxAge time.Duration
		ahead  time.Duration // Telegram's clock
		mute   bool
		late   []string
		young  []string
	}{
		{"an hour", time.Hour, 0, false, []string{"23h0m0s", "1h1m0s"}, []string{"59m0s", "2m0s", "30s", "0s"}},
		{"none of it", 0, 0, false, []string{"23h0m0s", "1h1m0s", "59m0s", "2m0s"}, []string{"30s", "0s"}},
		{"all of it", day, 0, false, nil, []string{"23h0m0s", "1h1m0s", "59m0s", "2m0s", "30s", "0s"}},
		{"our clock is a year ahead", time.Hour, -year, false, []string{"23h0m0s", "1h1m0s"}, []string{"59m0s", "2m0s", "30s", "0s"}},
		{"our clock begins in 1970", time.Hour, 56 * year, false, []string{"23h0m0s", "1h1m0s"}, []string{"59m0s", "2m0s", "30s", "0s"}},
		{"no clock but ours", time.Hour, 0, true, []string{"23h0m0s", "1h1m0s"}, []string{"59m0s", "2m0s", "30s", "0s"}},
		{"no clock but ours, a year ahead", time.Hour, -year, true, nil, []string{"23h0m0s", "1h1m0s", "59m0s", "2m0s", "30s", "0s"}},
	} {
		bubble(t, c.name, func(t *testing.T) {
			b := newBench(t, maxAge(c.maxAge))
			b.through(otherClock{b.net.Transport(), c.ahead, c.mute})
			ada := b.s.AddUser("Ada", "ada")
			for _, age := range []time.Duration{23 * time.Hour, 61 * time.Minute, 59 * time.Minute, 2 * time.Minute, 30 * time.Second, 0} {
				b.postAged(ada, age.String(), c.ahead, age)
			}
			b.run()
			if got, _ := b.in.late(); !slices.Equal(got, c.late) {
				t.Errorf("too old were %q, want %q", got, c.late)
			}
			if got := b.in.texts(); !slices.Equal(got, c.young) {
				t.Errorf("to be answered were %q, want %q", got, c.young)
			}
			counted := fmt.Sprintf(`level=WARN msg="telegram messages too old to be answered passed over" channel=tg count=%d`, len(c.late))
			if strings.Contains(b.log.String(), counted) != (len(c.late) > 0) {
				t.Errorf("the log is\n%s", b.log)
			}
		})
	}
}

// A backlog of many polls is one gap, also when the process ends amid it; the
// next absence is another.
func TestTooOldOverManyPolls(t *testing.T) {
	absent := func(b *bench, n int) {
		ada := b.s.AddUser("Ada", "ada")
		for i := range n {
			b.postAged(ada, fmt.Sprint(i), 0, 2*time.Hour)
		}
	}
	const amid = "946684800 500000001" // where a bubble's time begins, and the gap
	bubble(t, "in one go", func(t *testing.T) {
		b := newBench(t, maxAge(time.Hour))
		absent(b, 250)
		b.run()
		if texts, gaps := b.in.late(); len(texts) != 250 || !slices.Equal(gaps, []string{"500000001"}) {
			t.Errorf("there were %d messages in the gaps %q", len(texts), gaps)
		}
		absent(b, 1)
		synctest.Wait()
		if texts, gaps := b.in.late(); len(texts) != 251 || !slices.Equal(gaps, []string{"500000001", "500000251"}) {
			t.Errorf("after another absence there were %d messages in the gaps %q", len(texts), gaps)
		}
		if got, want := b.in.batches[0].Cursors[0].Value, "500000101 "+amid; got != want {
			t.Errorf("after the first poll the cursor is %q, want %q", got, want)
		}
	})
	bubble(t, "the process ends after the first poll", func(t *testing.T) {
		b := newBench(t, maxAge(time.Hour))
		b.facts.values = map[string]string{cursorKey: "500000101 " + amid}
		b.s.SetNextUpdateID(500000101)
		absent(b, 150)
		b.run()
		if texts, gaps := b.in.late(); len(texts) != 150 || !slices.Equal(gaps, []string{"500000001"}) {
			t.Errorf("there were %d messages in the gaps %q", len(texts), gaps)
		}
	})
}

var cursorKey = fmt.Sprintf("channel/tg/cursor/%d", tt.BotID)

// What Telegram may bring a second time is left to the ledger, which knows
// whether it was answered.
func TestTooOldAndKnownIsNotToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, maxAge(time.Hour))
		// The clock was set back, so all that was not confirmed is asked for.
		b.facts.values = map[string]string{cursorKey: fmt.Sprintf("600000000 %d", time.Now().Add(time.Hour).Unix())}
		b.postAged(b.s.AddUser("Ada", "ada"), "known", 0, 2*time.Hour)
		b.run()
		if got := b.in.texts(); !slices.Equal(got, []string{"known"}) {
			t.Errorf("got %q", got)
		}
	})
}

// TestCaseTooOldIsSaid: nothing is skipped without a word. Whoever asked too
// long ago is told, once, where the bot would have answered.
func TestCaseTooOldIsSaid(t *testing.T) {
	model := func(_ context.Context, m []providers.Message) (*providers.LLMResponse, error) {
		return says("re: " + word(m[len(m)-1].Content))
	}
	inHouses(t, model, func(h *house) {
		bot := h.bots["tg"]
		ada, group := bot.AddUser("Ada", "ada"), bot.AddGroup("Group", false)
		h.stop()
		old := time.Now().Add(-25 * time.Hour).Unix()
		for range 150 {
			bot.Post(tt.Message{From: &ada, Chat: tt.Chat{ID: ada.ID}, Text: "old", Date: old})
			bot.Post(tt.Message{From: &ada, Chat: group, Text: "chatter", Date: old})
		}
		h.tell("tg", ada, tt.Chat{ID: ada.ID}, 0, "young")
		h.start(model)
		time.Sleep(time.Minute)
		h.restart(model)
		time.Sleep(time.Minute)
		seen := h.seen()
		direct := seen["tg:"+address(ada.ID, 0).ChatID]
		if len(seen) != 1 || len(direct) != 2 || !strings.Contains(direct[0], "too old for me to answer") || direct[1] != "re: young" {
			t.Errorf("sent %q", seen)
		}
	})
}
