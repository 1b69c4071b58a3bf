package logger

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// line strips the time from the front of a text line.
func line(b *bytes.Buffer) string {
	_, rest, _ := strings.Cut(b.String(), " ")
	return rest
}

func TestNewHonoursLevelAndFormat(t *testing.T) {
	for _, tc := range []struct{ level, format, want string }{
		{"debug", "text", "level=DEBUG"},
		{"info", "text", "level=INFO"},
		{"warn", "json", `"level":"WARN"`},
		{"error", "json", `"level":"ERROR"`},
		{"nonsense", "nonsense", "level=INFO"},
	} {
		var b bytes.Buffer
		log := New(&b, tc.level, tc.format)
		log.Debug("a")
		log.Info("b")
		log.Warn("c")
		log.Error("d")
		first, _, _ := strings.Cut(b.String(), "\n")
		if !strings.Contains(first, tc.want) {
			t.Errorf("level %s, format %s: the first line is %q, want %q in it", tc.level, tc.format, first, tc.want)
		}
	}
}

func TestComponentFormSortsFields(t *testing.T) {
	var b bytes.Buffer
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	slog.SetDefault(New(&b, "debug", "text"))
	for _, tc := range []struct {
		log   func(component, msg string, fields map[string]interface{})
		level string
	}{{DebugCF, "DEBUG"}, {InfoCF, "INFO"}, {WarnCF, "WARN"}, {ErrorCF, "ERROR"}} {
		b.Reset()
		tc.log("tool", "it ran", map[string]interface{}{"z": 1, "a": "x y", "m": errors.New("bad")})
		want := "level=" + tc.level + ` msg="it ran" component=tool a="x y" m=bad z=1` + "\n"
		if got := line(&b); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	b.Reset()
	InfoCF("tool", "nothing more", nil)
	if got, want := line(&b), `level=INFO msg="nothing more" component=tool`+"\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestComponentFormHonoursLevel(t *testing.T) {
	var b bytes.Buffer
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	slog.SetDefault(New(&b, "warn", "text"))
	DebugCF("tool", "no", nil)
	InfoCF("tool", "no", nil)
	if b.Len() > 0 {
		t.Errorf("a quiet logger wrote %q", b.String())
	}
}

func TestRedactorHidesEverywhere(t *testing.T) {
	const token = `123456:AA"b+c/d<e>`
	for _, format := range []string{"text", "json"} {
		var b bytes.Buffer
		r := NewRedactor(&b)
		log := New(r, "debug", format).With("bound", token)
		r.Add(token)
		r.Add(token)
		r.Add("") // hides nothing, rather than everything
		r.Add("ab")
		log.Info("message "+token,
			"attr", token,
			"err", fmt.Errorf("get https://api/bot%s/x: %w", token, errors.New(token)),
			slog.Group("g", "deep", token))
		log.Info("another", "query", "?t=123456%3AAA%22b%2Bc%2Fd%3Ce%3E", "path", "/123456:AA%22b+c%2Fd%3Ce%3E/")
		got := b.String()
		for _, part := range []string{"AA", "b+c", "<e>", "123456"} {
			if strings.Contains(got, part) {
				t.Errorf("%s: %q is still there:\n%s", format, part, got)
			}
		}
		if n := strings.Count(got, mask); n < 7 {
			t.Errorf("%s: %d masks, want at least 7:\n%s", format, n, got)
		}
		if !strings.Contains(got, "another") || !strings.Contains(got, "https://api/bot***/x") {
			t.Errorf("%s: the rest of the line is gone:\n%s", format, got)
		}
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestRedactorHidesInText(t *testing.T) {
	r := NewRedactor(nil)
	r.Add("sk-123456")
	r.Add("say \"please\"")
	if got, want := r.Hide(`{"a":"sk-123456","b":"say \"please\""}`), `{"a":"***","b":"***"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestRedactorPassesErrorsOn(t *testing.T) {
	if _, err := NewRedactor(failing{}).Write([]byte("x")); err == nil || err.Error() != "disk full" {
		t.Errorf("got %v, want the writer's own error", err)
	}
	r := NewRedactor(&bytes.Buffer{})
	r.Add("long-enough")
	if n, err := r.Write([]byte("a long-enough line")); n != 18 || err != nil {
		t.Errorf("Write reports %d, %v; want the length it was given", n, err)
	}
}

func BenchmarkRedactor(b *testing.B) {
	r := NewRedactor(&bytes.Buffer{})
	for i := range 5 {
		r.Add(fmt.Sprintf("%d23456789:AAbbccddeeffgghhiijjkkllmmnnoopp", i))
	}
	r.w = discard{}
	text := []byte(strings.Repeat("level=INFO msg=\"turn ended\" ", 8))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Write(text); err != nil {
			b.Fatal(err)
		}
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
