package tracing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// client posts spans to a collector. It is an otlptrace.Client; the one that
// comes with the SDK brings gRPC along, and 13 MB.
type client struct {
	url    string
	header http.Header
	http   *http.Client
}

// Bounds of an export. The SDK gives one up after 30 seconds in all.
const (
	attemptTimeout = 10 * time.Second
	firstPause     = time.Second
	longestPause   = 10 * time.Second
)

// newClient returns a client of the collector at an address. headers are in the
// form of OTEL_EXPORTER_OTLP_HEADERS.
func newClient(address, headers string) (*client, error) {
	to, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	if !strings.HasSuffix(to.Path, tracesPath) {
		to = to.JoinPath(tracesPath)
	}
	c := &client{url: to.String(), header: http.Header{}}
	for pair := range strings.SplitSeq(headers, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !ok || err != nil || strings.TrimSpace(name) == "" {
			return nil, errors.New("OTEL_EXPORTER_OTLP_HEADERS: expected name=value, more of them with commas between")
		}
		c.header.Set(strings.TrimSpace(name), value)
	}
	c.header.Set("Content-Type", "application/x-protobuf")
	// A transport of its own, so that its connections can be closed.
	c.http = &http.Client{Timeout: attemptTimeout, Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true}}
	return c, nil
}

// tracesPath is where a collector takes spans.
const tracesPath = "/v1/traces"

// Start implements otlptrace.Client.
func (*client) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (c *client) Stop(context.Context) error {
	c.http.CloseIdleConnections()
	return nil
}

// UploadTraces implements otlptrace.Client: it tries again what may work later,
// until ctx ends.
func (c *client) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	// On the wire TracesData is what a collector expects, an
	// ExportTraceServiceRequest, whose package would bring gRPC.
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return err
	}
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = firstPause, longestPause
	var last error // says more than that the time is up
	if _, err = backoff.Retry(ctx, func() (struct{}, error) {
		last = c.post(ctx, body)
		return struct{}{}, last
	}, backoff.WithBackOff(pause)); err != nil {
		return last
	}
	return nil
}

// post tries once.
func (c *client) post(ctx context.Context, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return backoff.Permanent(err)
	}
	req.Header = c.header.Clone()
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be used again
	switch resp.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
			return fmt.Errorf("the collector answers %s: %w", resp.Status, backoff.RetryAfter(seconds))
		}
		return fmt.Errorf("the collector answers %s", resp.Status)
	}
	return backoff.Permanent(fmt.Errorf("the collector answers %s", resp.Status))
}
