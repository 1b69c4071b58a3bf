package telegram

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/dragoman-chat/dragoman/channels/telegram/telegramtest"
	"github.com/dragoman-chat/dragoman/pkg/config"
)

// The long poll and every send share one connection, as with the real service.
func TestTransportSpeaksHTTP2(t *testing.T) {
	t.Parallel()
	fake := telegramtest.New()
	protocol := make(chan string, 2)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		protocol <- r.Proto
		fake.ServeHTTP(w, r)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	transport := newTransport()
	defer transport.CloseIdleConnections()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	cfg := DefaultConfig()
	cfg.APIBase, cfg.Token = server.URL, config.Secret(telegramtest.Token)
	var me user
	if err := newClient(cfg, transport).request(t.Context(), "getMe", nil, &me); err != nil {
		t.Fatal(err)
	}
	if got := <-protocol; got != "HTTP/2.0" || me.ID != telegramtest.BotID {
		t.Errorf("spoke %s with %d", got, me.ID)
	}
}
