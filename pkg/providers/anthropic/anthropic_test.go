package anthropic_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/anthropic"
	"github.com/dragoman-chat/dragoman/pkg/providers/anthropic/anthropictest"
	"github.com/dragoman-chat/dragoman/pkg/providers/providerstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open starts a provider on a fake API, without a network.
func open(t *testing.T, reply func(providerstest.Request) providerstest.Response) providers.LLMProvider {
	t.Helper()
	p, _ := openWith(t, reply, anthropic.Config{})
	return p
}

func openWith(t *testing.T, reply func(providerstest.Request) providerstest.Response, cfg anthropic.Config) (*anthropic.Provider, *anthropictest.Server) {
	t.Helper()
	s := anthropictest.NewServer(providerstest.ServerConfig{Key: providerstest.Secret, Reply: reply})
	t.Cleanup(func() {
		s.Close()
		if refusals := s.Refusals(); len(refusals) != 0 {
			t.Errorf("the API refused: %q", refusals)
		}
	})
	cfg.BaseURL, cfg.APIKey, cfg.Transport = "http://fake", providerstest.Secret, s.Transport()
	p, err := anthropic.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p, s
}

func TestKit(t *testing.T) {
	providerstest.Run(t, "claude-test-4-5", open)
}
