package openai_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/providers/openai"
	"github.com/dragoman-chat/dragoman/pkg/providers/providerstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open starts a provider on a fake API, without a network.
func open(t *testing.T, reply func(providerstest.Request) providerstest.Response) providers.LLMProvider {
	t.Helper()
	return openWith(t, reply, openai.Config{})
}

func openWith(t *testing.T, reply func(providerstest.Request) providerstest.Response, cfg openai.Config) *openai.Provider {
	t.Helper()
	s := providerstest.NewServer(providerstest.ServerConfig{Key: providerstest.Secret, Reply: reply})
	t.Cleanup(func() {
		s.Close()
		if refusals := s.Refusals(); len(refusals) != 0 {
			t.Errorf("the API refused: %q", refusals)
		}
	})
	cfg.BaseURL, cfg.APIKey, cfg.Transport = "http://fake/v1", providerstest.Secret, s.Transport()
	p, err := openai.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestKit(t *testing.T) {
	providerstest.Run(t, "test-model", open)
}
