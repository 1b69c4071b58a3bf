package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dragoman-chat/dragoman/channels/discord/discordtest"
	"github.com/dragoman-chat/dragoman/channels/telegram/telegramtest"
	"github.com/dragoman-chat/dragoman/pkg/providers/providerstest"
)

// rig is everything around the program under test: the fake platforms, the fake
// model, and the book in which they write what they see.
type rig struct {
	book  *book
	model *script
	say   []func(text string) // by chat
	pad   int                 // bytes a message has beside its token

	telegramURL, discordURL, modelURL string
	firstPoll                         chan time.Time // of Telegram's updates; holds one

	servers  []*http.Server
	serving  sync.WaitGroup
	closers  []func()
	telegram *telegramtest.Server
	people   []int64                                                       // Telegram's chats
	sick     atomic.Pointer[func(http.ResponseWriter, *http.Request) bool] // answers instead of Telegram if it says so
	discord  *discordtest.Server
	refused  func() []string // what the model refused as invalid
	failedMu sync.Mutex      // guards failed: the servers' goroutines end at any time
	failed   []error
}

// rigConfig says how large a rig is.
type rigConfig struct {
	telegram, discord int // chats
	rounds            int
	delay, jitter     time.Duration // of the model
	once              bool          // see script
	padding           int           // bytes each message has beside its token
}

// newRig starts the fakes on loopback ports.
func newRig(ctx context.Context, cfg rigConfig) (*rig, error) {
	r := &rig{pad: cfg.padding, model: &script{rounds: cfg.rounds, delay: cfg.delay, jitter: cfg.jitter, once: cfg.once}, firstPoll: make(chan time.Time, 1)}
	names := make([]string, 0, cfg.telegram+cfg.discord)

	telegram := telegramtest.New()
	telegram.Forget = true
	telegram.OnSend = func(s telegramtest.Sent) {
		r.book.heard("t"+strconv.FormatInt(s.ChatID, 10), s.Text, time.Now())
	}
	for range cfg.telegram {
		user := telegram.AddUser("Ada", "")
		chat := telegramtest.Chat{ID: user.ID}
		names = append(names, "t"+strconv.FormatInt(user.ID, 10))
		r.people = append(r.people, user.ID)
		r.say = append(r.say, func(text string) {
			telegram.Post(telegramtest.Message{From: &user, Chat: chat, Text: text})
		})
	}

	r.telegram = telegram

	discord := discordtest.New(discordtest.Options{NoRecord: true, History: 1000, OnSend: func(s discordtest.Sent) {
		r.book.heard("d"+s.ChannelID, s.Content, time.Now())
	}})
	for i := range cfg.discord {
		user := discord.AddUser("user"+strconv.Itoa(i), "Ada")
		dm := discord.AddDM(user)
		names = append(names, "d"+dm)
		r.say = append(r.say, func(text string) { discord.Say(dm, user, text) })
	}
	r.discord = discord
	r.book = newBook(names)

	model := providerstest.NewServer(providerstest.ServerConfig{
		Key: modelKey, Models: []string{modelName}, Reply: r.model.reply, Keep: -1,
	})
	r.refused = model.Refusals
	r.closers = append(r.closers, model.Close, discord.DropSockets)

	var errs [3]error
	r.telegramURL, errs[0] = r.serve(ctx, r.tap(telegram))
	r.discordURL, errs[1] = r.serve(ctx, discord)
	r.modelURL, errs[2] = r.serve(ctx, model)
	r.modelURL += "/v1"
	if err := errors.Join(errs[:]...); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

// serve puts a handler on a free loopback port.
func (r *rig) serve(ctx context.Context, h http.Handler) (string, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("listen: %w", err)
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	r.servers = append(r.servers, s)
	r.serving.Go(func() {
		if err := s.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			r.failedMu.Lock()
			r.failed = append(r.failed, err)
			r.failedMu.Unlock()
		}
	})
	return "http://" + ln.Addr().String(), nil
}

// close stops the fakes.
func (r *rig) close() error {
	for _, s := range r.servers {
		if err := s.Close(); err != nil {
			r.failed = append(r.failed, err)
		}
	}
	for _, f := range r.closers {
		f()
	}
	r.serving.Wait()
	return errors.Join(r.failed...)
}

// tap notes when the first poll came and when each update was handed over.
func (r *rig) tap(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !strings.HasSuffix(req.URL.Path, "/getUpdates") {
			if sick := r.sick.Load(); sick != nil && (*sick)(w, req) {
				return
			}
			h.ServeHTTP(w, req)
			return
		}
		select {
		case r.firstPoll <- time.Now():
		default:
		}
		h.ServeHTTP(&tapped{ResponseWriter: w, book: r.book}, req)
	})
}

// tapped is a response in which the served tokens are noted.
type tapped struct {
	http.ResponseWriter
	book *book
}

func (t *tapped) Write(p []byte) (int, error) {
	t.book.served(string(p), time.Now())
	return t.ResponseWriter.Write(p)
}

// Unwrap serves http.ResponseController.
func (t *tapped) Unwrap() http.ResponseWriter { return t.ResponseWriter }
