package discord

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/channels/discord/discordtest"
	"github.com/dragoman-chat/dragoman/pkg/bus"
)

// TestStrangeGateway: whatever a gateway says, the connection ends with a reason
// and leaves nothing behind.
func TestStrangeGateway(t *testing.T) {
	const hello = `{"op":10,"d":{"heartbeat_interval":60000}}`
	tests := map[string]struct {
		says  []string
		code  int // closes with it after that
		want  string
		setup bool
	}{
		"nothing":           {code: 1011, want: "1011"},
		"no JSON":           {says: []string{"<html>"}, want: "invalid character"},
		"no hello":          {says: []string{`{"op":0,"t":"READY","s":1,"d":{}}`}, want: "opcode 0"},
		"no interval":       {says: []string{`{"op":10,"d":{}}`}, want: "0 ms"},
		"negative interval": {says: []string{`{"op":10,"d":{"heartbeat_interval":-5}}`}, want: "-5 ms"},
		"endless interval":  {says: []string{`{"op":10,"d":{"heartbeat_interval":9223372036854775807}}`}, want: "ms is asked for"},
		"version":           {code: 4012, want: "4012", setup: true},
		"token":             {says: []string{hello}, code: 4004, want: "token", setup: true},
		"no READY":          {says: []string{hello, `{"op":0,"t":"READY","s":1,"d":[]}`}, want: "ready"},
		"null":              {says: []string{hello, `null`, `{}`, `{"op":11}`, `{"op":99}`, `{"op":7}`}, want: "asked to reconnect"},
		"odd op 9":          {says: []string{hello, `{"op":9}`}, want: "invalid"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var up websocket.Upgrader
				ws, err := up.Upgrade(w, r, nil)
				if err != nil {
					t.Error(err)
					return
				}
				defer func() { _ = ws.Close() }()
				for _, s := range tt.says {
					if ws.WriteMessage(websocket.TextMessage, []byte(s)) != nil {
						return
					}
				}
				if tt.code != 0 {
					_ = ws.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(tt.code, ""))
				}
				for err == nil {
					_, _, err = ws.ReadMessage()
				}
			}))
			defer srv.Close()
			c := New("discord", DefaultConfig(), nil, quiet())
			err := c.connect(t.Context(), &link{url: "ws" + strings.TrimPrefix(srv.URL, "http")}, make(chan event, 10))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("connect = %v, want one that names %q", err, tt.want)
			}
			if errors.Is(err, channels.ErrSetup) != tt.setup {
				t.Errorf("connect = %v; for the operator: want %v", err, tt.setup)
			}
		})
	}
}

// TestWrongAPIBase: an address where no Discord is gets one clear sentence.
func TestWrongAPIBase(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	cfg := DefaultConfig()
	cfg.APIBase, cfg.Token = srv.URL, "x"
	err := New("discord", cfg, nil, quiet()).Run(t.Context(), &inbox{})
	if !errors.Is(err, channels.ErrSetup) || !strings.Contains(err.Error(), "api_base") {
		t.Errorf("Run = %v", err)
	}
}

// TestLoopback is the whole of it over real sockets.
func TestLoopback(t *testing.T) {
	srv := discordtest.New(discordtest.Options{})
	base, stop, err := srv.Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	cfg := DefaultConfig()
	cfg.APIBase, cfg.Token = base+"/", discordtest.Token
	c := New("discord", cfg, nil, quiet())
	in := &inbox{news: make(chan bus.InboundMessage, 10)}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx, in) }()
	if err := srv.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	ann := srv.AddUser("ann", "")
	dm := srv.AddDM(ann)
	srv.Say(dm, ann, "ping")
	m := <-in.news
	if _, err := c.Send(t.Context(), bus.OutboundMessage{Address: m.Address, ReplyTo: m.MessageID, Key: "k", Text: "pong"}); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := c.Send(t.Context(), message(dm, "k2", "a last word")); err != nil {
		t.Error(err)
	}
	if sent := srv.Sent(); len(sent) != 2 || sent[0].Content != "pong" || sent[0].ReplyTo != m.MessageID {
		t.Errorf("sent %+v", sent)
	}
}

// TestPanicInInbox: a panic of the inbox costs neither the process nor the
// messages.
func TestPanicInInbox(t *testing.T) {
	inBubble(t, discordtest.Options{}, func(r *rig) {
		ann := r.srv.AddUser("ann", "")
		dm := r.srv.AddDM(ann)
		r.in.panics = 2
		r.connect()
		r.srv.Say(dm, ann, "hello")
		if m := r.next(); m.Text != "hello" {
			t.Errorf("got %q", m.Text)
		}
	})
}
