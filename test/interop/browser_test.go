//go:build browser

// Package interop tries the daemon, as a program of its own, against programs
// that are not ours.
package interop

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// The test of this file needs a Chromium:
//
//	go test -tags browser ./test/interop
//
// With -pictures DIR it leaves pictures of the page there.
var pictures = flag.String("pictures", "", "folder for pictures of the page")

// daemon is a dragoman with the web chat and the offline model, which is what
// starts without any configuration.
type daemon struct {
	t       *testing.T
	program string
	home    string
	addr    string
	cmd     *exec.Cmd
	log     bytes.Buffer // of all runs; the process has to have ended
}

func buildDaemon(t *testing.T) *daemon {
	t.Helper()
	d := &daemon{t: t, home: t.TempDir(), addr: freeAddr(t)}
	d.program = filepath.Join(d.home, "dragoman")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", d.program, "../../cmd/dragoman")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		if d.cmd != nil {
			_ = d.cmd.Process.Kill()
			_ = d.cmd.Wait()
		}
		if t.Failed() {
			t.Logf("the daemon's log:\n%s", d.log.String())
		}
	})
	return d
}

// freeAddr returns an address nobody listens at. The page stays there over a
// restart, so it cannot be left to the daemon to choose.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return addr
}

func (d *daemon) start() {
	d.t.Helper()
	d.cmd = exec.CommandContext(context.WithoutCancel(d.t.Context()), d.program, "gateway")
	d.cmd.Dir = d.home
	d.cmd.Env = []string{"HOME=" + d.home, "WEBCHAT_LISTEN=" + d.addr}
	d.cmd.Stdout, d.cmd.Stderr = &d.log, &d.log
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	wait(d.t, "the daemon is ready", func() bool {
		req, err := http.NewRequestWithContext(d.t.Context(), http.MethodGet, "http://"+d.addr+"/readyz", http.NoBody)
		if err != nil {
			d.t.Fatal(err)
		}
		resp, err := client.Do(req)
		return err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
	})
}

// end ends the daemon with a signal and returns its exit code, -1 if the signal
// killed it.
func (d *daemon) end(sig os.Signal) int {
	d.t.Helper()
	if err := d.cmd.Process.Signal(sig); err != nil {
		d.t.Fatal(err)
	}
	_ = d.cmd.Wait() // the exit code says it
	code := d.cmd.ProcessState.ExitCode()
	d.cmd = nil
	return code
}

// wait waits until something is so.
func wait(t *testing.T, what string, so func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(15 * time.Second); !so(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// openBrowser starts a Chromium that is gone, with all its processes, when the
// test ends.
func openBrowser(t *testing.T) context.Context {
	t.Helper()
	var path string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		t.Skip("there is no Chromium here: none of chromium, chromium-browser, google-chrome, chrome is in the PATH")
	}
	profile := t.TempDir()
	t.Cleanup(func() { // after the browser has been told to end
		wait(t, "no process of the browser is left", func() bool { return len(processesOf(profile)) == 0 })
	})
	ctx, cancel := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()),
		chromedp.ExecPath(path), chromedp.UserDataDir(profile), chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("disable-domain-reliability", true), chromedp.Flag("no-pings", true),
	)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx, chromedp.Navigate("about:blank")); err != nil {
		t.Fatalf("start %s: %v", path, err)
	}
	return ctx
}

// processesOf returns the processes whose command line holds word; none where
// there is no /proc.
func processesOf(word string) []string {
	var found []string
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		if line, err := os.ReadFile(f); err == nil && bytes.Contains(line, []byte(word)) {
			found = append(found, f)
		}
	}
	return found
}

// tab is the page in a browser context of its own: another person.
type tab struct {
	t    *testing.T
	name string
	ctx  context.Context

	mu  sync.Mutex
	bad []string // what the console complained of
}

func openTab(t *testing.T, browser context.Context, name, url string, size chromedp.Action[chromedp.Void]) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	b := &tab{t: t, name: name, ctx: ctx}
	console := chromedp.Console(ctx)
	var reading sync.WaitGroup
	reading.Go(func() {
		for m, err := range console {
			if err != nil {
				return
			}
			if m.Source != "network" && (m.IsException() || m.Type == chromedp.ConsoleError || m.Type == chromedp.ConsoleWarning) {
				b.mu.Lock()
				b.bad = append(b.bad, m.String())
				b.mu.Unlock()
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		reading.Wait()
		if len(b.bad) > 0 {
			t.Errorf("%s's console: %q", name, b.bad)
		}
	})
	b.do(size, chromedp.Navigate(url))
	b.state("online")
	return b
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.t.Fatalf("%s: %v", b.name, err)
	}
}

func eval[T any](b *tab, script string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](script))
	if err != nil {
		b.t.Fatalf("%s: %s: %v", b.name, script, err)
	}
	return v
}

// until waits for a condition of the page. It forbids scripts made from strings,
// so chromedp's own polling does not work in it.
func (b *tab) until(condition string) {
	b.t.Helper()
	defer func() {
		if b.t.Failed() {
			b.picture(b.name + "-failed")
			b.t.Logf("%s sees:\n%s", b.name, b.words())
		}
	}()
	wait(b.t, b.name+" sees "+condition, func() bool { return eval[bool](b, condition) })
}

func (b *tab) state(is string) {
	b.t.Helper()
	b.until(fmt.Sprintf(`document.getElementById("state")?.dataset.state == %q`, is))
}

// say sends a message and waits until the last answer holds want.
func (b *tab) say(text, want string) {
	b.t.Helper()
	b.write(text)
	b.hear(want)
}

func (b *tab) write(text string) {
	b.t.Helper()
	b.do(chromedp.SendKeys("#text", text), chromedp.Click("#send"))
}

func (b *tab) hear(want string) {
	b.t.Helper()
	b.until(fmt.Sprintf(`[...document.querySelectorAll(".message")].at(-1)?.matches(".assistant") && [...document.querySelectorAll(".assistant .body")].at(-1).textContent.includes(%q)`, want))
}

// words returns all that is said on the page.
func (b *tab) words() string {
	b.t.Helper()
	return eval[string](b, `document.getElementById("log").innerText`)
}

func (b *tab) messages() int {
	b.t.Helper()
	return eval[int](b, `document.querySelectorAll(".message").length`)
}

// fits checks that the page cannot be moved sideways.
func (b *tab) fits() {
	b.t.Helper()
	if wide := eval[string](b, `[document.documentElement, document.body, document.getElementById("scroll")].filter((n) => n.scrollWidth > n.clientWidth).map((n) => n.id || n.tagName).join()`); wide != "" {
		b.t.Errorf("%s: wider than the window: %s", b.name, wide)
	}
}

func (b *tab) picture(name string) {
	b.t.Helper()
	if *pictures == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Errorf("picture: %v", err)
		return
	}
	if err := os.WriteFile(filepath.Join(*pictures, name+".png"), png, 0o600); err != nil {
		b.t.Error(err)
	}
}

// Two people at once, one at a desk and one with a phone, use the web chat as
// it starts without any configuration, and sit through a crash of the daemon.
func TestDaemonInBrowser(t *testing.T) {
	browser := openBrowser(t)
	d := buildDaemon(t)
	d.start()
	url := "http://" + d.addr + "/"
	ann := openTab(t, browser, "desk", url, chromedp.EmulateViewport(1280, 800))
	bob := openTab(t, browser, "phone", url, chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile, chromedp.EmulateTouch, chromedp.EmulateScale(2)))
	ann.picture("desk-empty")
	bob.picture("phone-empty")

	asked := time.Now()
	ann.say("remind me in 5 seconds to stretch", "stretch")
	if words := ann.words(); strings.Contains(words, "⏰") {
		t.Errorf("the reminder came at once: %s", words)
	}
	bob.say("list files", "empty")
	ann.say("write notes/a.txt: buy milk", "a.txt")
	ann.hear("⏰ stretch") // by itself, whatever else is going on
	after := time.Since(asked)
	if after < 4500*time.Millisecond || after > 9*time.Second {
		t.Errorf("the reminder came after %s, not 5 seconds", after)
	}
	t.Logf("the reminder came %s after it was asked for", after.Round(time.Millisecond))
	ann.say("read notes/a.txt", "buy milk")
	ann.say("help", "not a language model")
	bob.say("echo only Bob "+strings.Repeat("wide", 100), "only Bob")
	bob.say("list files", "empty")
	ann.fits()
	bob.fits()
	ann.picture("desk")
	bob.picture("phone")
	if words := bob.words(); strings.Contains(words, "stretch") || strings.Contains(words, "milk") {
		t.Errorf("Bob sees what is Ann's: %s", words)
	}
	if words := ann.words(); strings.Contains(words, "only Bob") {
		t.Errorf("Ann sees what is Bob's: %s", words)
	}

	said, count := ann.words(), ann.messages()
	ann.do(chromedp.Reload())
	ann.state("online")
	ann.until(fmt.Sprintf(`document.querySelectorAll(".message").length == %d`, count))
	if now := ann.words(); now != said {
		t.Errorf("after loading again Ann sees\n%s\nand not\n%s", now, said)
	}

	if code := d.end(syscall.SIGKILL); code != -1 {
		t.Errorf("killed, the daemon ended with %d", code)
	}
	for _, b := range []*tab{ann, bob} {
		b.until(`document.getElementById("state").dataset.state != "online" && document.getElementById("state").textContent != ""`)
	}
	ann.write("echo are you back")
	ann.until(`document.querySelector(".user.pending, .user.failed") != null`)
	ann.picture("desk-away")
	bob.picture("phone-away")
	d.start()
	back := time.Now()
	for _, b := range []*tab{ann, bob} {
		b.state("online")
	}
	t.Logf("both pages were connected again %s after the daemon was", time.Since(back).Round(time.Millisecond))
	if eval[bool](ann, `document.querySelector(".user.failed") != null`) {
		ann.do(chromedp.Click(".user.failed .retry"))
	}
	ann.hear("are you back")
	bob.say("echo me too", "me too")
	ann.picture("desk-back")
	bob.picture("phone-back")

	if code := d.end(syscall.SIGTERM); code != 0 {
		t.Errorf("asked to stop, the daemon ended with %d", code)
	}
	if log := d.log.String(); strings.Contains(log, "level=ERROR") || strings.Contains(log, "panic") {
		t.Errorf("the log has errors:\n%s", log)
	}
}
