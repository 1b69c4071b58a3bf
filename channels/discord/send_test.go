package discord

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/channels/discord/discordtest"
	"github.com/dragoman-chat/dragoman/pkg/bus"
)

// message is an answer in a channel of the rig's fake.
func message(chatID, key, text string) bus.OutboundMessage {
	return bus.OutboundMessage{Address: bus.Address{Channel: "discord", ChatID: chatID}, Key: key, Text: text}
}

// guildChannel makes a guild with one channel.
func (r *rig) guildChannel() string {
	return r.srv.AddChannel(r.srv.AddGuild("Guild"), "general")
}

func (r *rig) send(m bus.OutboundMessage) (bus.Receipt, error) {
	r.Helper()
	receipt, err := r.ch.Send(r.Context(), m)
	if err != nil && strings.Contains(err.Error(), discordtest.Token) {
		r.Errorf("the token is in %q", err)
	}
	return receipt, err
}

// TestSendPingsNobody: whatever the text names and quotes, nobody is notified;
// and links show no preview.
func TestSendPingsNobody(t *testing.T) {
	inBubble(t, discordtest.Options{}, func(r *rig) {
		ann, bob := r.srv.AddUser("ann", ""), r.srv.AddUser("bob", "")
		general := r.guildChannel()
		question := r.srv.Say(general, ann, "who are all here?")
		m := message(general, "k", "@everyone @here "+discordtest.Mention(bob)+" <@&123> https://example.org")
		m.ReplyTo = question
		if _, err := r.send(m); err != nil {
			t.Fatal(err)
		}
		got := r.srv.Sent()[0]
		if got.Everyone || len(got.Pings) > 0 {
			t.Errorf("pinged everyone: %v, users: %v", got.Everyone, got.Pings)
		}
		if got.Flags&discordtest.FlagSuppressEmbeds == 0 {
			t.Errorf("flags %d show link previews", got.Flags)
		}
		if got.ReplyTo != question {
			t.Errorf("quotes %q, want %q", got.ReplyTo, question)
		}
	})
}

// TestSendWithoutQuote: a quote that Discord refuses does not stop the answer.
func TestSendWithoutQuote(t *testing.T) {
	inBubble(t, discordtest.Options{}, func(r *rig) {
		ann := r.srv.AddUser("ann", "")
		general := r.guildChannel()
		joined := r.srv.Post(general, discordtest.Message{Type: discordtest.MessageJoin, Author: &ann})
		elsewhere := r.srv.Say(r.srv.AddDM(ann), ann, "hello")
		said := r.srv.Say(general, ann, "hello")
		for name, quoted := range map[string]string{
			"system message": joined, "another channel's": elsewhere, "unknown": "12345", "no id": "nonsense", "no right": said,
		} {
			r.srv.HideHistory(name == "no right")
			m := message(general, bus.Key(name), name)
			m.ReplyTo = quoted
			receipt, err := r.send(m)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			sent := r.srv.Sent()
			if got := sent[len(sent)-1]; got.MessageID != receipt.MessageID || got.Content != name || got.ReplyTo != "" {
				t.Errorf("%s: sent %+v", name, got)
			}
		}
	})
}

// TestSendAgain: the same key makes one message, even if its answer was lost.
func TestSendAgain(t *testing.T) {
	inBubble(t, discordtest.Options{}, func(r *rig) {
		general := r.guildChannel()
		r.srv.CutAfterAccept(1)
		m := message(general, bus.Key("turn", "1"), "once")
		if _, err := r.send(m); !errors.Is(err, channels.ErrUnknownOutcome) {
			t.Fatalf("Send = %v, want one that wraps ErrUnknownOutcome", err)
		}
		receipt, err := r.send(m)
		if err != nil {
			t.Fatal(err)
		}
		if sent := r.srv.Sent(); len(sent) != 1 || sent[0].MessageID != receipt.MessageID {
			t.Errorf("sent %+v, receipt %+v: want one message", sent, receipt)
		}
	})
}

func TestSendErrors(t *testing.T) {
	permanent := func(err error) bool { return errors.Is(err, channels.ErrPermanent) }
	// again is an error after which the message may be sent again at once.
	again := func(err error) bool {
		var limited *channels.RateLimitError
		return err != nil && !permanent(err) && !errors.Is(err, channels.ErrUnknownOutcome) && !errors.As(err, &limited)
	}
	limited := func(after time.Duration, global bool) func(error) bool {
		return func(err error) bool {
			var l *channels.RateLimitError
			return errors.As(err, &l) && l.RetryAfter == after && l.Global == global
		}
	}
	tests := map[string]struct {
		fault func(s *discordtest.Server, chat string)
		text  string
		want  func(error) bool
	}{
		"429":                  {fault: func(s *discordtest.Server, _ string) { s.Throttle(1, 1500*time.Millisecond, false) }, want: limited(1500*time.Millisecond, false)},
		"429 global":           {fault: func(s *discordtest.Server, _ string) { s.Throttle(1, 2*time.Second, true) }, want: limited(2*time.Second, true)},
		"429 in front":         {fault: func(s *discordtest.Server, _ string) { s.FailInFront(1, 429, time.Minute) }, want: limited(time.Minute, false)},
		"429 without a time":   {fault: func(s *discordtest.Server, _ string) { s.FailInFront(1, 429, 0) }, want: limited(time.Second, false)},
		"500":                  {fault: func(s *discordtest.Server, _ string) { s.Fail(1, 500) }, want: again},
		"502":                  {fault: func(s *discordtest.Server, _ string) { s.Fail(1, 502) }, want: again},
		"503 in front":         {fault: func(s *discordtest.Server, _ string) { s.FailInFront(1, 503, 0) }, want: again},
		"403 in front":         {fault: func(s *discordtest.Server, _ string) { s.FailInFront(1, 403, 0) }, want: again},
		"token":                {fault: func(s *discordtest.Server, _ string) { s.SetToken("another") }, want: func(err error) bool { return errors.Is(err, channels.ErrNotReady) }},
		"channel gone":         {fault: func(s *discordtest.Server, c string) { s.Block(c, discordtest.CodeUnknownChannel) }, want: permanent},
		"blocked":              {fault: func(s *discordtest.Server, c string) { s.Block(c, discordtest.CodeCannotMessageUser) }, want: permanent},
		"no access":            {fault: func(s *discordtest.Server, c string) { s.Block(c, discordtest.CodeMissingAccess) }, want: permanent},
		"no right":             {fault: func(s *discordtest.Server, c string) { s.Block(c, discordtest.CodeMissingPermission) }, want: permanent},
		"too long":             {text: strings.Repeat("é", 2001), want: permanent},
		"empty":                {text: " \n ", want: permanent},
		"long but not too":     {text: strings.Repeat("😀", 2000), want: func(err error) bool { return err == nil }},
		"cut before the start": {fault: func(s *discordtest.Server, _ string) { s.CutBeforeAccept(1) }, want: func(err error) bool { return errors.Is(err, channels.ErrUnknownOutcome) }},
		"nobody there":         {fault: func(s *discordtest.Server, _ string) { s.SetDown(true) }, want: func(err error) bool { return errors.Is(err, channels.ErrNotReady) }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, discordtest.Options{}, func(r *rig) {
				general := r.guildChannel()
				if tt.fault != nil {
					tt.fault(r.srv, general)
				}
				text := tt.text
				if text == "" {
					text = "hello"
				}
				start := time.Now()
				_, err := r.send(message(general, "k", text))
				if !tt.want(err) {
					t.Errorf("Send = %v", err)
				}
				if took := time.Since(start); took != 0 {
					t.Errorf("Send waited %s; waiting is the caller's", took)
				}
			})
		})
	}
}

// TestSendOddHeaders: a delivered message is a delivered message, whatever the
// limits in its answer look like.
func TestSendOddHeaders(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-RateLimit-Global", "true")
		w.Header().Set("X-RateLimit-Remaining", "many")
		w.Header().Set("X-RateLimit-Reset-After", "1.5")
		_, _ = io.WriteString(w, `{"id":"8"}`)
	}))
	defer srv.Close()
	cfg := DefaultConfig()
	cfg.APIBase, cfg.Token = srv.URL, "x"
	c := New("discord", cfg, nil, quiet())
	defer c.transport.next.CloseIdleConnections()
	if receipt, err := c.Send(t.Context(), message("7", "k", "hello")); err != nil || receipt.MessageID != "8" {
		t.Errorf("Send = %+v, %v", receipt, err)
	}
}

// TestSendCancelled: the caller's context ends a Send, and its error says so.
func TestSendCancelled(t *testing.T) {
	inBubble(t, discordtest.Options{}, func(r *rig) {
		ctx, cancel := context.WithCancel(r.Context())
		cancel()
		_, err := r.ch.Send(ctx, message(r.guildChannel(), "k", "hello"))
		if !errors.Is(err, context.Canceled) || errors.Is(err, channels.ErrPermanent) {
			t.Errorf("Send = %v", err)
		}
		if n := len(r.srv.Sent()); n != 0 {
			t.Errorf("%d messages were sent", n)
		}
	})
}

// TestRealBucket: Discord's own limit of 5 in 5 seconds comes back as an error,
// and never as a sleep within the library.
func TestRealBucket(t *testing.T) {
	inBubble(t, discordtest.Options{PerChannel: 5, Per: 5 * time.Second}, func(r *rig) {
		general := r.guildChannel()
		start, sent := time.Now(), 0
		for i := 0; sent < 12; i++ {
			_, err := r.send(message(general, bus.Key("m", strings.Repeat("i", i)), "hello"))
			var limited *channels.RateLimitError
			switch {
			case err == nil:
				sent++
			case errors.As(err, &limited):
				time.Sleep(limited.RetryAfter)
			default:
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took < 10*time.Second || took > 11*time.Second {
			t.Errorf("12 messages took %s, want two windows", took)
		}
	})
}

func TestTyping(t *testing.T) {
	inBubble(t, discordtest.Options{}, func(r *rig) {
		general := r.guildChannel()
		if err := r.ch.Typing(r.Context(), bus.Address{Channel: "discord", ChatID: general}); err != nil {
			t.Fatal(err)
		}
		if n := r.srv.Typings(general); n != 1 {
			t.Errorf("typing shown %d times", n)
		}
		if err := r.ch.Typing(r.Context(), bus.Address{Channel: "discord", ChatID: "../users/@me"}); !errors.Is(err, channels.ErrPermanent) {
			t.Errorf("Typing in no channel = %v", err)
		}
		if n := len(r.srv.Calls()); n != 1 {
			t.Errorf("%d requests, want 1", n)
		}
	})
}

func TestConfig(t *testing.T) {
	cfg := DefaultConfig()
	if cfg.APIBase != "https://discord.com" || cfg.Groups != "mention" || len(cfg.AllowUsers) != 0 {
		t.Errorf("DefaultConfig = %+v", cfg)
	}
	if cfg.CatchUp != (CatchUp{MaxAge: time.Hour, MaxMessages: 200}) {
		t.Errorf("DefaultConfig = %+v", cfg)
	}
	c := New("discord", cfg, nil, quiet())
	if got := c.RatesFor(bus.Address{ChatID: "7"}); got != (channels.Rates{GlobalPerSec: 50, Key: "7", PerSec: 1}) {
		t.Errorf("RatesFor = %+v", got)
	}
	if c.transport.base != nil {
		t.Error("the default address is rewritten")
	}
	cfg.Token = "Bot abc"
	if c := New("discord", cfg, nil, quiet()); c.token != "abc" || c.rest.Token != "Bot abc" {
		t.Errorf("a token with its prefix becomes %q and %q", c.token, c.rest.Token)
	}
	if c.transport.next.MaxIdleConnsPerHost < 100 || c.transport.next.Proxy == nil || c.dialer.Proxy == nil {
		t.Error("keep-alive or proxy is off")
	}
	if http.DefaultTransport == http.RoundTripper(c.transport.next) {
		t.Error("the transport is shared with others")
	}
}
