package tools

import (
	"context"
	"slices"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// RunToolLoop alternates between the model and the tools it calls, until it
// answers without calls or MaxIterations is reached.
func RunToolLoop(ctx context.Context, config ToolLoopConfig, messages []providers.Message, channel, chatID string) (*ToolLoopResult, error) {
	msgs := slices.Clone(messages)
	res := &ToolLoopResult{Iterations: config.Rounds, StopReason: StopMaxIterations}
	var defs []providers.ToolDefinition
	for round := config.Rounds + 1; round <= config.MaxIterations; round++ {
		if config.Tools != nil {
			defs = config.Tools.ToProviderDefs()
		}
		resp, err := config.Provider.Chat(ctx, msgs, defs, config.Model, config.LLMOptions)
		if err != nil {
			res.StopReason = StopError
			return res, err
		}
		res.Iterations++
		reply := providers.Message{Role: providers.RoleAssistant, Content: resp.Content, ToolCalls: resp.ToolCalls}
		msgs = append(msgs, reply)
		res.Messages = append(res.Messages, reply)
		if len(resp.ToolCalls) == 0 {
			res.Content, res.StopReason = resp.Content, StopAnswer
			return res, nil
		}
		for _, tc := range resp.ToolCalls {
			call, _ := CallFrom(ctx)
			call.ID, call.Round, call.Tool, call.Channel, call.ChatID = tc.ID, round, tc.Name, channel, chatID
			result := ErrorResult("there are no tools")
			if config.Tools != nil {
				var cb AsyncCallback
				if config.AsyncCallback != nil {
					cb = config.AsyncCallback(call)
				}
				result = config.Tools.ExecuteWithContext(WithCall(ctx, call), tc.Name, tc.Arguments, channel, chatID, cb)
			}
			m := providers.Message{Role: providers.RoleTool, Content: result.ForLLM, ToolCallID: tc.ID}
			msgs = append(msgs, m)
			res.Messages = append(res.Messages, m)
		}
	}
	return res, nil
}
