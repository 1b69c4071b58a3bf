package discord

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/channels/discord/discordtest"
	"github.com/dragoman-chat/dragoman/pkg/agent"
	"github.com/dragoman-chat/dragoman/pkg/gateway"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/state"
	"github.com/dragoman-chat/dragoman/pkg/store/mem"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// The tests of this file are named in docs/cases.md.

// A connection that ends without a code, or with one that tells nothing, is not
// taken for one that works, and what is written meanwhile is heard.
func TestCaseCloseWithoutCodeIsNotDeaf(t *testing.T) {
	for _, code := range []int{1000, 1001, 1005, 4000} { // 1005 is a close without a code
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			inBubble(t, discordtest.Options{}, func(r *rig) {
				ann := r.srv.AddUser("ann", "")
				dm := r.srv.AddDM(ann)
				r.connect()
				r.srv.Say(dm, ann, "before")
				r.texts(1)
				r.srv.CloseSockets(code, "")
				r.srv.Say(dm, ann, "meanwhile")
				r.until("connected again", func(s discordtest.Stats) bool { return s.Identified+s.Resumed == 2 && s.Connected == 1 })
				if got := r.texts(1); !slices.Equal(got, []string{"meanwhile"}) {
					t.Errorf("got %q", got)
				}
				synctest.Wait()
				if err := r.ch.Health(); err != nil {
					t.Errorf("Health = %v", err)
				}
				r.quietFor(time.Hour)
			})
		})
	}
}

// model answers every question with a long text, or fails.
type model struct{}

func (model) Chat(_ context.Context, m []providers.Message, _ []providers.ToolDefinition, _ string, _ map[string]interface{}) (*providers.LLMResponse, error) {
	time.Sleep(time.Second) // for the typing sign
	if strings.HasSuffix(m[len(m)-1].Content, "fail") {
		return nil, errors.New("broken")
	}
	return &providers.LLMResponse{Content: strings.Repeat("lengthy ", 700), FinishReason: providers.FinishStop}, nil
}

// What is said to a thread's question is said in the thread and nowhere else:
// all parts of it, an apology, a command's answer and the typing sign; whether
// or not the thread is known, and also when its channel and another thread of it
// spoke last.
func TestCaseThreadsKeepTheirReplies(t *testing.T) {
	inBubble(t, discordtest.Options{}, func(r *rig) {
		ann := r.srv.AddUser("ann", "")
		guild := r.srv.AddGuild("Guild")
		general, forum := r.srv.AddChannel(guild, "general"), r.srv.AddForum(guild, "forum")
		threads := []string{r.srv.AddThread(general, "one"), r.srv.AddThread(general, "two"), r.srv.AddQuietThread(general, "quiet"), r.srv.AddThread(forum, "post")}
		r.cfg.AllowUsers, r.cfg.Rate = []string{"*"}, Rate{}
		ledger := mem.New()
		log := slog.New(slog.NewTextHandler(r.log, nil))
		r.ch = New("discord", r.cfg, state.New(ledger, "channel/discord"), log, WithDialer(r.dial))
		registry := tools.NewToolRegistry()
		g := gateway.New(gateway.Config{
			Channels: []channels.Channel{r.ch}, Store: ledger, Tools: registry, Log: log, Owners: []string{"discord:1"}, MaxParallelTurns: 64, Grace: time.Second,
			Agent: agent.New(agent.Config{Provider: model{}, Tools: registry, History: ledger, MaxIterations: 5, HistoryMessages: 50, Log: log}),
		})
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		done := make(chan error, 1)
		go func() { done <- g.Run(ctx) }()
		r.until("connected", func(s discordtest.Stats) bool { return s.Connected == 1 })
		for _, text := range []string{"tell me", "fail", "/help"} {
			for _, id := range threads {
				r.srv.Say(id, ann, discordtest.Mention(r.srv.Bot())+" "+text)
			}
			time.Sleep(2 * time.Minute)
		}
		r.srv.Say(general, ann, "not for the bot")
		time.Sleep(time.Minute)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		seen := map[string]string{}
		for _, m := range r.srv.Sent() {
			seen[m.ChannelID] += m.Content + "|"
		}
		for _, id := range threads {
			all := seen[id]
			if strings.Count(all, "lengthy") != 700 || !strings.Contains(all, "went wrong") || !strings.Contains(all, "/undo") || r.srv.Typings(id) == 0 {
				t.Errorf("%s was sent %q, with %d typing signs", id, all, r.srv.Typings(id))
			}
		}
		if len(seen) != len(threads) || r.srv.Typings(general) > 0 {
			t.Errorf("%d places were written to, and %d typing signs shown in the channel", len(seen), r.srv.Typings(general))
		}
	})
}
