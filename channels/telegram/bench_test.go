package telegram_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"testing"

	"github.com/dragoman-chat/dragoman/channels/telegram"
	tt "github.com/dragoman-chat/dragoman/channels/telegram/telegramtest"
	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/config"
	"github.com/dragoman-chat/dragoman/pkg/state"
)

// echo answers every message at once.
type echo struct{ ch *telegram.Channel }

func (e echo) PublishInbound(ctx context.Context, b bus.Batch) error {
	for _, m := range b.Messages {
		if _, err := e.ch.Send(ctx, bus.OutboundMessage{Address: m.Address, ReplyTo: m.MessageID, Text: m.Text}); err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkTurn is a message in and its answer out over loopback, the fake's
// share included.
func BenchmarkTurn(b *testing.B) {
	s := tt.New()
	s.Forget = true
	sent := make(chan struct{}, 1)
	s.OnSend = func(tt.Sent) { sent <- struct{}{} }
	server := httptest.NewServer(s)
	defer server.Close()
	cfg := telegram.DefaultConfig()
	cfg.Token, cfg.APIBase = config.Secret(tt.Token), server.URL
	ch := telegram.New("tg", cfg, state.New(&facts{}, "channel/tg"), slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- ch.Run(ctx, echo{ch}) }()
	ada := s.AddUser("Ada", "ada")
	n := 0
	for b.Loop() {
		n++
		s.Post(tt.Message{Chat: tt.Chat{ID: ada.ID}, From: &ada, Text: fmt.Sprint("message ", n)})
		<-sent
	}
	cancel()
	if err := <-done; err != nil {
		b.Error(err)
	}
}
