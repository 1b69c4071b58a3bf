package tools_test

import (
	"testing"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// What is recorded of a reply tells what was asked, as Shape left it, and what
// it cost.
func TestReplyRecordTellsRequestAndCost(t *testing.T) {
	first, last := calling(toolCall("1", "echo", text("x"))), answering("done")
	first.Usage = &providers.Usage{PromptTokens: 3, CompletionTokens: 2, TotalTokens: 5}
	model, records := &script{replies: []providers.LLMResponse{first, last}}, &kept{}
	options := map[string]any{"temperature": 0.5}
	_, err := tools.RunToolLoop(t.Context(), tools.ToolLoopConfig{
		Provider: model, Model: "m", LLMOptions: options, Tools: echo(), MaxIterations: 1, FinalAnswer: true, Checkpoint: records.keep,
		Shape: func(m []providers.Message) []providers.Message { return m[max(0, len(m)-3):] },
	}, append(user("left out"), user("hi")...), "test", "1")
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	for _, r := range records.records {
		if r.Kind != tools.RecordReply {
			if r.Request != "" || r.Usage != nil {
				t.Errorf("the %s tells of a request", r.Kind)
			}
			continue
		}
		digest := providers.ToolsDigest(model.defs[asked])
		if where := providers.Deviation(r.Request, model.asked[asked], digest, "m", options); where != "" {
			t.Errorf("request %d: %s", asked, where)
		}
		if asked == 0 && (r.Usage == nil || r.Usage.TotalTokens != 5) {
			t.Errorf("the first reply cost %+v", r.Usage)
		}
		asked++
	}
	if asked != 2 {
		t.Errorf("%d replies are recorded, want 2", asked)
	}
}
