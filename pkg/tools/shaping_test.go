package tools_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// Shape sees every request whole, after all else, and changes nothing but it.
func TestLoopShapesWhatIsSentAndNothingElse(t *testing.T) {
	replies := []providers.LLMResponse{calling(toolCall("1", "quiet", nil)), calling(toolCall("2", "echo", text("two")))}
	run := func(shape func([]providers.Message) []providers.Message) (*script, *kept, *tools.ToolLoopResult) {
		p, records := &script{replies: replies}, &kept{}
		res, err := tools.RunToolLoop(t.Context(), tools.ToolLoopConfig{
			Provider: p, Tools: echo(), MaxIterations: 2, FinalAnswer: true, Checkpoint: records.keep, Shape: shape,
		}, user("hi"), "test", "1")
		if err != nil {
			t.Fatal(err)
		}
		return p, records, res
	}
	plain, plainRecords, plainResult := run(nil)

	var seen [][]providers.Message
	shaped, shapedRecords, shapedResult := run(func(m []providers.Message) []providers.Message {
		seen = append(seen, m)
		return append(m, providers.Message{Role: providers.RoleUser, Content: "appended"}) // has to land in a copy
	})
	if diff := cmp.Diff(plain.asked, seen); diff != "" {
		t.Errorf("Shape was given something else than what is sent without it: %s", diff)
	}
	for i, asked := range shaped.asked {
		want := slices.Concat(plain.asked[i], []providers.Message{{Role: providers.RoleUser, Content: "appended"}})
		if diff := cmp.Diff(want, asked); diff != "" {
			t.Errorf("request %d is not what Shape returned: %s", i, diff)
		}
	}
	if len(seen) != 3 {
		t.Errorf("%d requests were shaped, want 3, the final one included", len(seen))
	}
	if diff := cmp.Diff(plainResult.Messages, shapedResult.Messages); diff != "" {
		t.Errorf("the history differs: %s", diff)
	}
	if plainRecords.String() != shapedRecords.String() {
		t.Errorf("the records differ: %s and %s", plainRecords, shapedRecords)
	}
}
