package discord

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/channels/discord/discordtest"
)

// setupError waits for Run to end and checks that it tells the operator what to
// do.
func (r *rig) setupError(words ...string) {
	r.Helper()
	var err error
	select {
	case err = <-r.ended:
	case <-time.After(time.Hour):
		r.Fatalf("Run goes on\n%s", r.log)
	}
	r.ended = nil
	if !errors.Is(err, channels.ErrSetup) {
		r.Fatalf("Run = %v, want one that wraps ErrSetup", err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			r.Errorf("Run = %q, which does not name %q", err, w)
		}
	}
	if strings.Contains(err.Error(), discordtest.Token) {
		r.Errorf("the token is in %q", err)
	}
	if r.ch.Health() == nil {
		r.Error("healthy after Run")
	}
}

func TestTokenResetWhileRunning(t *testing.T) {
	inBubble(t, discordtest.Options{}, func(r *rig) {
		r.connect()
		r.srv.SetToken("another") // closes with 4004
		r.setupError("token", "channels.discord.token", portal)
	})
}

func TestIntentNotSwitchedOn(t *testing.T) {
	inBubble(t, discordtest.Options{Refused: discordtest.IntentMessageContent}, func(r *rig) {
		r.start()
		r.setupError("Message Content Intent", portal)
	})
}

func TestFatalCloseCodes(t *testing.T) {
	for _, code := range []int{4010, 4011, 4012, 4013} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			inBubble(t, discordtest.Options{}, func(r *rig) {
				r.connect()
				r.srv.CloseSockets(code, "")
				r.setupError(fmt.Sprint(code))
			})
		})
	}
}

func TestSetupWithoutIO(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"no token": func(c *Config) { c.Token = " " },
		"api_base": func(c *Config) { c.APIBase = "discord.com" },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, discordtest.Options{}, func(r *rig) {
				cfg := r.ch.cfg
				change(&cfg)
				r.ch = New("discord", cfg, nil, r.ch.log)
				r.start()
				r.setupError(strings.Fields(name)...)
			})
		})
	}
}

// TestResume: however a connection ends, what was written in the meantime
// arrives once and in order, and the session is the same.
func TestResume(t *testing.T) {
	ends := map[string]func(s *discordtest.Server){
		"dropped":            func(s *discordtest.Server) { s.DropSockets() },
		"reconnect asked":    func(s *discordtest.Server) { s.AskReconnect() },
		"invalid, resumable": func(s *discordtest.Server) { s.InvalidateSessions(true) },
		"unknown error":      func(s *discordtest.Server) { s.CloseSockets(discordtest.CloseUnknownError, "Unknown error.") },
		"rate limited":       func(s *discordtest.Server) { s.CloseSockets(discordtest.CloseRateLimited, "") },
		"without acks":       func(s *discordtest.Server) { s.StopAcks() },
		"net gone":           func(s *discordtest.Server) { s.SetDown(true); s.SetDown(false) },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			inBubble(t, discordtest.Options{}, func(r *rig) {
				ann := r.srv.AddUser("ann", "")
				dm := r.srv.AddDM(ann)
				r.connect()
				r.srv.Say(dm, ann, "before")
				end(r.srv)
				for i := range 20 {
					r.srv.Say(dm, ann, fmt.Sprint(i))
				}
				r.until("resumed", func(s discordtest.Stats) bool { return s.Resumed == 1 })
				r.srv.Say(dm, ann, "after")
				want := []string{"before"}
				for i := range 20 {
					want = append(want, fmt.Sprint(i))
				}
				if got := r.texts(22); !slices.Equal(got, append(want, "after")) {
					t.Errorf("got %q", got)
				}
				synctest.Wait()
				if err := r.ch.Health(); err != nil {
					t.Errorf("Health = %v after RESUMED", err)
				}
				if s := r.srv.Stats(); s.Identified != 1 || s.ResumedThere != 1 {
					t.Errorf("%+v, want one session, resumed at its own address", s)
				}
			})
		})
	}
}

// TestIdentifyAgain: a session that is gone is replaced.
func TestIdentifyAgain(t *testing.T) {
	ends := map[string]func(s *discordtest.Server){
		"invalid":          func(s *discordtest.Server) { s.InvalidateSessions(false) },
		"timed out":        func(s *discordtest.Server) { s.CloseSockets(discordtest.CloseSessionTimedOut, "") },
		"invalid sequence": func(s *discordtest.Server) { s.CloseSockets(discordtest.CloseInvalidSeq, "") },
		"forgotten":        func(s *discordtest.Server) { s.ForgetSessions(); s.DropSockets() },
		"never resumed":    func(s *discordtest.Server) { s.RefuseResumes(3); s.DropSockets() },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			inBubble(t, discordtest.Options{}, func(r *rig) {
				ann := r.srv.AddUser("ann", "")
				dm := r.srv.AddDM(ann)
				r.connect()
				start := time.Now()
				end(r.srv)
				r.until("identified again", func(s discordtest.Stats) bool { return s.Identified == 2 })
				r.srv.Say(dm, ann, "after")
				if m := r.next(); m.Text != "after" {
					t.Errorf("got %q", m.Text)
				}
				if s := r.srv.Stats(); s.Resumed != 0 {
					t.Errorf("%+v, want nothing resumed", s)
				}
				if took := time.Since(start); name == "invalid" && (took < time.Second || took > 5*time.Second) {
					t.Errorf("identified again after %s; Discord asks for 1 to 5 seconds", took)
				}
			})
		})
	}
}

// TestUnansweredHeartbeat: a connection that looks open but is deaf is neither
// healthy nor kept.
func TestUnansweredHeartbeat(t *testing.T) {
	const interval = 40 * time.Second
	inBubble(t, discordtest.Options{Heartbeat: interval}, func(r *rig) {
		r.connect()
		time.Sleep(10 * interval)
		if err := r.ch.Health(); err != nil {
			t.Fatalf("Health = %v while heartbeats are answered", err)
		}
		if s := r.srv.Stats(); s.Heartbeats < 9 || s.Heartbeats > 11 || s.Resumed != 0 {
			t.Fatalf("%+v after ten intervals", s)
		}
		r.srv.SetDown(true) // a reconnect would hide what is to be seen
		r.until("disconnected", func(s discordtest.Stats) bool { return s.Connected == 0 })
		synctest.Wait()
		if r.ch.Health() == nil {
			t.Error("healthy without a connection")
		}
		r.srv.SetDown(false)
		r.until("resumed", func(s discordtest.Stats) bool { return s.Resumed == 1 })
		synctest.Wait()
		r.srv.StopAcks()
		start := time.Now()
		r.until("resumed again", func(s discordtest.Stats) bool { return s.Resumed == 2 })
		if took := time.Since(start); took > 2*interval {
			t.Errorf("noticed after %s", took)
		}
		if !strings.Contains(r.log.String(), "heartbeats are not answered") {
			t.Errorf("the log does not say why:\n%s", r.log)
		}
	})
}

func TestStatusDeadline(t *testing.T) {
	now := time.Now()
	s := &status{deadline: now}
	if err := s.err(now); err != nil {
		t.Errorf("at the deadline: %v", err)
	}
	if s.err(now.Add(1)) == nil {
		t.Error("healthy after the deadline")
	}
}

func TestHeartbeatOnRequest(t *testing.T) {
	inBubble(t, discordtest.Options{Heartbeat: time.Hour}, func(r *rig) {
		r.connect()
		before := r.srv.Stats().Heartbeats
		r.srv.AskHeartbeat()
		synctest.Wait()
		if n := r.srv.Stats().Heartbeats - before; n != 1 {
			t.Errorf("%d heartbeats, want 1 at once", n)
		}
	})
}

// TestBackoff: a gateway that fails again and again is left in peace.
func TestBackoff(t *testing.T) {
	inBubble(t, discordtest.Options{}, func(r *rig) {
		r.connect()
		r.srv.SetDown(true)
		time.Sleep(10 * time.Minute)
		if n := strings.Count(r.log.String(), "connecting again"); n < 10 || n > 40 {
			t.Errorf("%d tries in ten minutes", n)
		}
		r.srv.SetDown(false)
		r.until("resumed", func(s discordtest.Stats) bool { return s.Resumed == 1 })
	})
}

// TestStartsUsedUp: identifying beyond the daily limit would cost the bot its
// token.
func TestStartsUsedUp(t *testing.T) {
	inBubble(t, discordtest.Options{}, func(r *rig) {
		r.srv.UseStarts(1000, 20*time.Minute)
		r.start()
		time.Sleep(19 * time.Minute)
		if s := r.srv.Stats(); s.Identified != 0 {
			t.Fatalf("%+v while no start is left", s)
		}
		if n := len(r.srv.Calls()); n != 1 {
			t.Errorf("asked %d times", n)
		}
		r.srv.UseStarts(0, 0)
		r.until("connected", func(s discordtest.Stats) bool { return s.Connected == 1 })
	})
}

// TestStopIsPrompt: a planned stop waits for nothing and tells Discord.
func TestStopIsPrompt(t *testing.T) {
	inBubble(t, discordtest.Options{}, func(r *rig) {
		r.connect()
		start := time.Now()
		r.stop()
		if took := time.Since(start); took != 0 {
			t.Errorf("Run took %s to end", took)
		}
		synctest.Wait()
		if s := r.srv.Stats(); s.Sessions != 0 {
			t.Errorf("%+v: the bot still looks online", s)
		}
	})
}
