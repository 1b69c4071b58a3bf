package discord

import (
	"context"
	"sync"
	"testing"

	"github.com/dragoman-chat/dragoman/channels/discord/discordtest"
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/state"
)

// echo answers every message it is given, as soon as it can.
type echo struct {
	ch   *Channel
	work chan bus.InboundMessage
}

func (e *echo) PublishInbound(_ context.Context, b bus.Batch) error {
	for _, m := range b.Messages {
		e.work <- m
	}
	return nil
}

// BenchmarkRoundTrip is a message from Discord's socket to the inbox and an
// answer back through REST, over loopback, 64 chats at once; the fake's own
// work is in the figure.
func BenchmarkRoundTrip(b *testing.B) {
	const chats = 64
	answered := make(chan string, chats)
	srv := discordtest.New(discordtest.Options{NoRecord: true, OnSend: func(s discordtest.Sent) { answered <- s.ChannelID }})
	base, stop, err := srv.Listen()
	if err != nil {
		b.Fatal(err)
	}
	defer stop()
	cfg := DefaultConfig()
	cfg.APIBase, cfg.Token = base, discordtest.Token
	e := &echo{ch: New("discord", cfg, state.New(&facts{values: map[string]string{}}, "channel/discord"), quiet()), work: make(chan bus.InboundMessage, chats)}

	ctx, cancel := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := e.ch.Run(ctx, e); err != nil {
			b.Error(err)
		}
	})
	for range chats {
		wg.Go(func() {
			for m := range e.work {
				if _, err := e.ch.Send(b.Context(), bus.OutboundMessage{Address: m.Address, Key: bus.Key(m.ID), Text: m.Text}); err != nil {
					b.Error(err)
				}
			}
		})
	}
	if err := srv.WaitReady(ctx); err != nil {
		b.Fatal(err)
	}
	user := srv.AddUser("ann", "Ann")
	author := map[string]discordtest.User{}
	for range chats {
		u := srv.AddUser("ann", "Ann")
		author[srv.AddDM(u)] = user
	}
	b.ReportAllocs()
	b.ResetTimer()
	sent := 0
	for id, u := range author {
		if sent < b.N {
			srv.Say(id, u, "hello there, what is the time?")
			sent++
		}
	}
	for range b.N {
		id := <-answered
		if sent < b.N {
			srv.Say(id, author[id], "hello there, what is the time?")
			sent++
		}
	}
	b.StopTimer()
	cancel()
	close(e.work)
	wg.Wait()
}
