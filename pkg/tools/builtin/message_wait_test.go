package builtin_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/tools/builtin"
)

func TestMessageWaitsFiveSecondsForTheOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		box := &outbox{hang: true}
		start := time.Now()
		r := builtin.NewMessageTool(builtin.WithOutbox(box)).Execute(during(t, "telegram", "1", "c1"), args{"content": "x"})
		wantOK(t, r, "Queued for telegram:1", "Do not send it again")
		if waited := time.Since(start); waited != 5*time.Second {
			t.Errorf("waited %s, want 5s", waited)
		}
	})
}
