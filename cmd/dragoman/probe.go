package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/state"
)

// prober asks whether a model can be used; check is nil if it always can.
type prober struct {
	name  string
	check providers.Checker
}

// A model that is not there yet, because it starts together with the daemon,
// gets this long to appear.
const (
	probeFor   = 10 * time.Second
	probeEvery = 500 * time.Millisecond
)

// probeModels finds out, once at start, whether a model of the chain can be
// reached and used. If none can, and none ever could at these addresses, the
// configuration is probably wrong, so it returns an error that says what to do.
// A model that worked before is having an outage: that is logged, and the
// daemon goes on. It blocks until one answers, the time is up, or ctx ends.
func (a *app) probeModels(ctx context.Context) error {
	err := a.awaitModel(ctx)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the daemon is being stopped
	}
	facts := state.New(a.store, "app")
	known, factErr := facts.Get(ctx, "models_that_worked")
	if factErr != nil {
		return nil //nolint:nilerr // the ledger has its own way of saying so
	}
	var names []string
	for _, p := range a.probes {
		names = append(names, p.name+" "+a.cfg.Models[p.name].Address())
	}
	here := strings.Join(names, "\n")
	switch {
	case err == nil && known != here:
		if err := facts.Set(ctx, "models_that_worked", here); err != nil {
			a.log.Warn("cannot store that the model works", "err", err)
		}
	case err != nil && known == here:
		a.log.Error("no model can be reached at the moment", "err", err)
	case err != nil:
		return err
	}
	return nil
}

func (a *app) awaitModel(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeFor)
	defer cancel()
	var last error
	for {
		var errs []error
		for _, p := range a.probes {
			if p.check == nil {
				return nil
			}
			err := p.check.Check(ctx)
			if err == nil {
				return nil
			}
			if providers.KindOf(err) == providers.KindInvalidRequest {
				a.log.Warn("the model may not work", "model", p.name, "err", err)
				return nil
			}
			errs = append(errs, a.explainModel(p.name, err))
		}
		if ctx.Err() != nil && last != nil {
			return last // it says more than that the time was up
		}
		last = errors.Join(errs...)
		if providers.KindOf(last) == providers.KindAuth {
			return last
		}
		select {
		case <-ctx.Done():
			return last
		case <-time.After(probeEvery):
		}
	}
}

func (a *app) explainModel(name string, err error) error {
	base := cmp.Or(a.cfg.Models[name].Address(), "the provider's own address")
	switch providers.KindOf(err) {
	case providers.KindAuth, providers.KindBilling:
		return fmt.Errorf("the model %q refuses its key: check models.%s.api_key: %w", name, name, err)
	default:
		return fmt.Errorf("the model %q cannot be reached at %s: check models.%s.base_url and whether the server runs: %w", name, base, name, err)
	}
}

// healthz answers that the process lives.
func (a *app) healthz() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok\n"))
	})
}

// readyz answers whether every channel works and the ledger can be written.
func (a *app) readyz() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if err := a.gateway.Ready(); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			text := fmt.Sprintf("not ready:\n%v\n", err)
			if a.opts.Hide != nil {
				text = a.opts.Hide(text)
			}
			_, _ = io.WriteString(w, text)
			return
		}
		_, _ = w.Write([]byte("ready\n"))
	})
}

// serveHealth opens the health endpoint and returns how to close it.
func (a *app) serveHealth(ctx context.Context) (stop func(), err error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", a.cfg.Health.Listen)
	if err != nil {
		return nil, channels.Setupf("health.listen: %s cannot be opened; choose another address: %w", a.cfg.Health.Listen, err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /healthz", a.healthz())
	mux.Handle("GET /readyz", a.readyz())
	mux.Handle("GET /metrics", a.metrics.Handler())
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(ln) // ends when stop closes it
	}()
	return func() {
		_ = srv.Close()
		<-done
	}, nil
}
