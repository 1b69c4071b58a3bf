//go:build browser

package webchat

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/config"
)

// The tests of this file need a Chromium:
//
//	go test -tags browser -run Chromium ./channels/webchat
//
// With -pictures DIR they leave pictures of the page there.
var pictures = flag.String("pictures", "", "folder for pictures of the page")

// tab is one page in a Chromium of its own.
type tab struct {
	t   *testing.T
	ctx context.Context
}

func openTab(t *testing.T) *tab {
	t.Helper()
	var path string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		t.Skip("there is no Chromium here")
	}
	ctx, cancel := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()),
		chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()), chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("disable-domain-reliability", true), chromedp.Flag("no-pings", true),
	)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	return &tab{t: t, ctx: ctx}
}

// do runs steps.
func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// eval evaluates a script.
func eval[T any](b *tab, script string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](script))
	if err != nil {
		b.t.Fatalf("%s: %v", script, err)
	}
	return v
}

// until waits for a condition. The page forbids scripts made from strings, so
// chromedp's own polling does not work in it.
func (b *tab) until(condition string) {
	b.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); !eval[bool](b, condition); <-tick.C {
		if time.Now().After(deadline) {
			b.picture("failed")
			b.t.Fatalf("waited in vain: %s", condition)
		}
	}
}

func (b *tab) connected() {
	b.t.Helper()
	b.until(`document.querySelector("#state")?.dataset.state == "online"`)
}

// say types a message and sends it with Enter, or on a phone with the button.
func (b *tab) say(text string) {
	b.t.Helper()
	b.do(chromedp.SendKeys("#text", text), chromedp.Click("#send"))
	b.until(`!document.querySelector(".user.pending")`)
}

func (b *tab) answers(n int) {
	b.t.Helper()
	b.until(fmt.Sprintf(`document.querySelectorAll(".assistant").length == %d`, n))
}

func (b *tab) picture(name string) {
	b.t.Helper()
	if *pictures == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*pictures, name+".png"), png, 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// scripted answers as a model might.
type scripted struct {
	c *Channel
	memory
}

func (s *scripted) PublishInbound(ctx context.Context, b bus.Batch) error {
	if err := s.memory.PublishInbound(ctx, b); err != nil {
		return err
	}
	for _, m := range b.Messages {
		for _, text := range answers(m.Text) {
			_, err := s.c.Send(ctx, bus.OutboundMessage{Address: m.Address, Key: bus.Key(m.ID, text), Text: text})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func answers(text string) []string {
	switch {
	case strings.HasPrefix(text, "remind me"):
		return []string{"All right, I will remind you in 5 seconds.", "⏰ stretch"}
	case strings.Contains(text, "disk"):
		return []string{"Here is a quick way to find out:\n\n1. See which file system is full.\n2. Look for the largest folders on it.\n3. Check the usual suspects: logs and old packages.\n\n" +
			"```sh\ndf -h /\ndu -xh --max-depth=1 /var 2>/dev/null | sort -h | tail -5\njournalctl --vacuum-size=200M   # keeps the newest logs\n```\n\nIf `/var/log` leads the list, the last command alone may be enough."}
	case strings.Contains(text, "wide"):
		return []string{"| a | b | c |\n|---|---:|---|\n| " + strings.Repeat("wide ", 40) + " | 1 | x |\n\n```go\n" + strings.Repeat("wide", 60) + "\n```\n\n" + strings.Repeat("x", 300) + "\n\n[link](https://example.org/" + strings.Repeat("y", 200) + ")\n\n> quoted\n\n- [ ] one\n- two\n  - three\n\n---\n\n### Heading\n\n<script>alert(1)</script> <b>x</b>"}
	case text == "/new":
		return []string{"We start afresh. What is on your mind?"}
	}
	return []string{"You said: *" + text + "*"}
}

func serveScripted(t *testing.T, cfg Config) (c *Channel, url string) {
	t.Helper()
	c = New("webchat", cfg, nil, slog.New(slog.DiscardHandler))
	run(t, c, &scripted{c: c})
	return c, "http://" + c.Addr() + "/"
}

func scheme(name string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features})
		return err
	})
}

func TestChromium(t *testing.T) {
	for _, dark := range []bool{false, true} {
		for _, phone := range []bool{false, true} {
			name, size, colours := "desktop", chromedp.EmulateViewport(1280, 800), "light"
			if phone {
				name, size = "phone", chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile, chromedp.EmulateTouch, chromedp.EmulateScale(2))
			}
			if dark {
				colours = "dark"
			}
			name += "-" + colours
			t.Run(name, func(t *testing.T) { converse(t, name, size, colours) })
		}
	}
}

func converse(t *testing.T, name string, size chromedp.Action[chromedp.Void], colours string) {
	t.Helper()
	_, url := serveScripted(t, Config{Listen: "127.0.0.1:0"})
	b := openTab(t)
	b.do(size, scheme(colours), chromedp.Navigate(url))
	b.connected()
	b.picture(name + "-empty")
	b.say("Hello! My disk is nearly full. What can I do?")
	b.answers(1)
	b.say("remind me in 5 seconds to stretch")
	b.answers(3)
	if code := eval[string](b, `document.querySelector(".assistant pre code").textContent`); !strings.Contains(code, "df -h /") {
		t.Errorf("the block of code says %q", code)
	}
	words := eval[string](b, `document.getElementById("log").innerText`)
	for _, want := range []string{"⏰ stretch", "usual suspects", "Copy", "My disk is nearly full"} {
		if !strings.Contains(words, want) {
			t.Errorf("%q is not shown in %q", want, words)
		}
	}
	b.fits()
	b.until(`document.getElementById("scroll").scrollTop + document.getElementById("scroll").clientHeight > document.getElementById("scroll").scrollHeight - 2`)
	b.picture(name)
	b.say("something wide")
	b.answers(4)
	b.fits()
	if n := eval[int](b, `document.querySelectorAll(".body script, .body b").length`); n != 0 {
		t.Errorf("%d elements of an answer's HTML came through", n)
	}
	b.picture(name + "-wide")
	b.do(chromedp.Reload())
	b.answers(4)
	b.connected()
	b.do(chromedp.Click("#new"))
	b.answers(1)
	b.until(`document.querySelectorAll(".message").length == 2`)
	b.picture(name + "-new")
}

// fits checks that nothing is wider than the window.
func (b *tab) fits() {
	b.t.Helper()
	if wide := eval[string](b, `[document.documentElement, document.getElementById("scroll")].filter((n) => n.scrollWidth > n.clientWidth).map((n) => n.id || n.tagName).join()`); wide != "" {
		b.t.Errorf("wider than the window: %s", wide)
	}
}

// The page asks for the token, and opens with the right one.
func TestChromiumLogin(t *testing.T) {
	const token = "open sesame, please"
	_, url := serveScripted(t, Config{Listen: "127.0.0.1:0", Token: config.Secret(token)})
	b := openTab(t)
	b.do(chromedp.EmulateViewport(390, 844), scheme("light"), chromedp.Navigate(url), chromedp.WaitVisible("#token"))
	b.do(chromedp.SendKeys("#token", "guess\r"))
	b.until(`document.getElementById("login-error").textContent.includes("not right")`)
	b.picture("login")
	b.do(chromedp.SendKeys("#token", token+"\r"))
	b.connected()
	b.say("am I in?")
	b.answers(1)
}

// A server that goes away and comes back costs no message, and shows.
func TestChromiumReconnect(t *testing.T) {
	c := New("webchat", Config{Listen: "127.0.0.1:0"}, nil, slog.New(slog.DiscardHandler))
	in := &scripted{c: c}
	stop := run(t, c, in)
	c.cfg.Listen = c.Addr()
	b := openTab(t)
	b.do(chromedp.EmulateViewport(1280, 800), scheme("light"), chromedp.Navigate("http://"+c.Addr()+"/"))
	b.connected()
	b.say("one")
	b.answers(1)
	stop()
	b.until(`document.getElementById("state").dataset.state != "online"`)
	b.do(chromedp.SendKeys("#text", "two\r"))
	b.until(`document.querySelector(".user.pending, .user.failed") != null`)
	b.picture("offline")
	run(t, c, in)
	b.connected()
	b.until(`document.querySelector(".user.pending") == null`)
	if eval[bool](b, `document.querySelector(".user.failed") != null`) {
		b.picture("failed-message")
		b.do(chromedp.Click(".user.failed .retry"))
	}
	b.answers(2)
	if n := len(in.messages()); n != 2 {
		t.Errorf("%d messages were stored, want 2", n)
	}
}
