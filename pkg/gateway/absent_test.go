package gateway

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/store"
	"github.com/dragoman-chat/dragoman/pkg/store/mem"
)

// What is left of a channel that is missing from the configuration, or has
// another name there, waits until the channel is back. Nobody else notices.
func TestAbsentChannelLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger, gone := mem.New(), newFakeChannel("gone")
		message := func(chat, text string) bus.InboundMessage {
			m := gone.from(chat, "a", text)
			m.Principal, m.SessionKey = "gone:a", m.String()
			return m
		}
		at := func(chat string) bus.Address { return bus.Address{Channel: "gone", ChatID: chat} }
		res, err := ledger.Apply(t.Context(), store.Tx{
			Admit:     []bus.InboundMessage{message("1", "begun"), message("2", "waits"), message("3", "/start code"), message("3", "/undo")},
			Send:      []store.Outbound{{Message: bus.OutboundMessage{Address: at("4"), Key: "k", Text: "unsent"}, Created: time.Now()}},
			Schedules: []store.Schedule{{ID: "s", Address: at("5"), SessionKey: "gone:5", Due: time.Now().Add(time.Minute), Text: "tea"}},
			Tasks:     []store.Task{{ID: "t", Address: at("6"), SessionKey: "gone:6", State: store.TaskPending, Label: "digging"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		begun := store.Turn{ID: "turn", Address: at("1"), Session: "gone:1", Inbound: []int64{res.Admitted[0].Seq}, Started: time.Now()}
		if _, err := ledger.Apply(t.Context(), store.Tx{Begin: &begun}); err != nil {
			t.Fatal(err)
		}
		limited := func(c *Config) { c.Store, c.TurnsPerMinute = keep{ledger}, 10 }
		for i := range 10 {
			chat := fmt.Sprint("c", i)
			r := start(t, fakeModel(echo), limited)
			r.say(r.ch.from(chat, "b", "hi"))
			time.Sleep(5 * time.Minute)
			r.wantTexts(chat, "re: hi")
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
		}
		start(t, fakeModel(echo), limited, func(c *Config) { c.Channels = []channels.Channel{gone} })
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		for chat, want := range map[string][]string{
			"1": {"re: begun"}, "2": {"re: waits"}, "3": {"Hello! " + helpText, textUndone}, "4": {"unsent"}, "5": {"⏰ tea"},
			"6": {"A background task was interrupted by a restart and did not finish: digging"},
		} {
			if got := gone.texts(chat); !slices.Equal(got, want) {
				t.Errorf("chat %s was sent %q, want %q", chat, got, want)
			}
		}
		if open := left(t, ledger); open != "" {
			t.Errorf("still open: %s", open)
		}
	})
}
