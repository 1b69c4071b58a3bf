package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/dragoman-chat/dragoman/pkg/config"
	"github.com/dragoman-chat/dragoman/pkg/metrics"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/providerstest"
)

// The keys of a model are used up before the next model is asked, and neither
// the log nor an error shows one.
func TestKeysBeforeFallback(t *testing.T) {
	var mu sync.Mutex
	var used []string
	spent := map[string]bool{"sk-first-key": true}
	fake := providerstest.NewServer(providerstest.ServerConfig{Reply: func(r providerstest.Request) providerstest.Response {
		key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		mu.Lock()
		defer mu.Unlock()
		used = append(used, r.Model+" "+key)
		if spent[key] {
			return providerstest.Fail(providers.KindAuth) // which repeats the key
		}
		return providerstest.Text("ok")
	}})
	defer fake.Close()
	server := httptest.NewServer(fake)
	defer server.Close()
	cfg, err := config.Load(file(t, fmt.Sprintf(`
data_dir: %q
models:
  main: {provider: openai, base_url: %q, api_key: sk-first-key, api_keys: [sk-second-key], model: big, fallback: [spare]}
  spare: {provider: openai, base_url: %q, api_key: sk-spare-key, model: small}
`, t.TempDir(), server.URL+"/v1", server.URL+"/v1")), func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	a := &app{cfg: cfg, log: slog.New(slog.NewTextHandler(&log, nil)), metrics: metrics.New("")}
	model, err := a.model()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range a.closers {
		defer c()
	}
	ask := func(want ...string) error {
		used = nil
		_, err := model.Chat(t.Context(), []providers.Message{{Role: providers.RoleUser, Content: "hi"}}, nil, "", nil)
		if !slices.Equal(used, want) {
			t.Errorf("asked %q, want %q", used, want)
		}
		return err
	}
	for _, step := range [][]string{{"big sk-first-key", "big sk-second-key"}, {"big sk-second-key"}} {
		if err := ask(step...); err != nil {
			t.Error(err)
		}
	}
	spent["sk-second-key"] = true
	if err := ask("big sk-second-key", "small sk-spare-key"); err != nil {
		t.Error(err)
	}
	spent["sk-spare-key"] = true
	err = ask("small sk-spare-key")
	if providers.KindOf(err) != providers.KindAuth || strings.Contains(err.Error(), "sk-") || strings.Contains(log.String(), "sk-") || !strings.Contains(log.String(), "key 2 of 2") {
		t.Errorf("the error is %v, the log\n%s", err, log.String())
	}
}
