package logger_test

import (
	"strings"
	"testing"

	"github.com/dragoman-chat/dragoman/pkg/logger"
)

func TestHideTokens(t *testing.T) {
	a := func(n int) string { return strings.Repeat("aB3_x-", 20)[:n] }
	for _, token := range []string{"12345678:AA" + a(33), "sk-" + a(48), "sk-ant-api03-" + a(90), "sk-proj-" + a(100), "M" + a(23) + "." + a(6) + "." + a(38)} {
		for _, around := range [][2]string{{"", ""}, {"token: ", "\n"}, {`{"t":"`, `"}`}, {"https://api.example/bot", "/getMe"}} {
			if got, want := logger.HideTokens(around[0]+token+around[1]), around[0]+"***"+around[1]; got != want {
				t.Errorf("%s%s%s became %s", around[0], token, around[1], got)
			}
		}
	}
	for _, text := range []string{
		"", "An ordinary text.", "20261128:da39a3ee5e6b4b0d3255bfef95601890afd80709", "sk-button-primary-large", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
		"github.com/some-organisation/some-repository/internal.package.with.a.very.long.name", "d41d8cd9-8f00-b204-e980-0998ecf8427e", "12345678:AA" + a(32),
	} {
		if got := logger.HideTokens(text); got != text {
			t.Errorf("%s became %s", text, got)
		}
	}
}
