package sandbox

import (
	"strings"
	"testing"

	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// An offer runs nothing, whoever calls it.
func TestAnOfferRunsNothing(t *testing.T) {
	for _, commands := range [][]string{nil, {"ls"}} {
		ctx := tools.WithCall(t.Context(), tools.Call{Principal: "work:1"})
		r := NewExecOffer(0, commands).Execute(ctx, map[string]any{"command": "ls"})
		if !r.IsError || !strings.Contains(r.ForLLM, "forbidden") {
			t.Errorf("%q: %+v", commands, r)
		}
	}
}
