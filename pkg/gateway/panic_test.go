package gateway

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store"
)

// left reports what the ledger still holds as not done.
func left(t *testing.T, s store.Store) string {
	t.Helper()
	lanes, err := s.Lanes(t.Context())
	turns, err2 := s.OpenTurns(t.Context())
	tasks, err3 := s.OpenTasks(t.Context())
	unsent, err4 := s.Unsent(t.Context())
	if err := errors.Join(err, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	if len(lanes)+len(turns)+len(tasks)+len(unsent) == 0 {
		return ""
	}
	return fmt.Sprintf("%d conversations, %d turns, %d tasks, %d unsent", len(lanes), len(turns), len(tasks), len(unsent))
}

// panicky is a channel with a bug in the place it names.
type panicky struct {
	*fakeChannel
	where string
}

func (p panicky) Typing(context.Context, bus.Address) error {
	if p.where == "typing" {
		panic("typing")
	}
	return nil
}

func (p panicky) TextLimit() (int, func(string) int) {
	return 10, func(s string) int {
		if p.where == "measure" {
			panic("measure")
		}
		return len(s)
	}
}

func (p panicky) RatesFor(to bus.Address) channels.Rates {
	if p.where == "rates" && to.ChatID == "1" {
		panic("rates")
	}
	return channels.Rates{}
}

func (p panicky) Send(ctx context.Context, m bus.OutboundMessage) (bus.Receipt, error) {
	if p.where == "send" && m.ChatID == "1" {
		panic("send")
	}
	return p.fakeChannel.Send(ctx, m)
}

// A bug in an adapter ends neither the process nor another conversation.
func TestPanicsOfAnAdapterStayThere(t *testing.T) {
	for _, where := range []string{"typing", "measure", "rates", "send"} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slow := fakeModel(func(ctx context.Context, m []providers.Message, t []providers.ToolDefinition) (*providers.LLMResponse, error) {
					time.Sleep(time.Second)
					return echo(ctx, m, t)
				})
				bad := panicky{newFakeChannel("fake"), where}
				r := start(t, slow, func(c *Config) { c.Channels = []channels.Channel{bad} })
				r.ch = bad.fakeChannel
				r.say(r.ch.from("1", "a", "hi"), r.ch.from("1", "a", "/help"), r.ch.from("2", "a", "hi"))
				time.Sleep(time.Minute)
				r.wantTexts("2", "re: hi")
				if open := left(t, r.store); open != "" {
					t.Errorf("still open: %s", open)
				}
			})
		})
	}
}
