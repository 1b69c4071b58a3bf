// Package control has the tools by which a model says how its turn ends:
// task_completion, ask_question and converse. Each ends the loop, and its text
// is what the person reads.
//
// They are for agents that want such a word instead of a plain answer, most of
// all those that call tools in their text (package textcall). Without them a
// reply without calls ends the turn, as ever.
package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/dragoman-chat/dragoman/pkg/tools"
	"github.com/dragoman-chat/dragoman/pkg/tools/jsontool"
)

// Install registers the three tools and reserves their names, so that nothing
// can replace them. It fails, and changes nothing, if one of the names is taken.
func Install(r *tools.ToolRegistry) error {
	var names []string
	for _, t := range []jsontool.Tool{&TaskCompletionTool{}, &AskQuestionTool{}, &ConverseTool{}} {
		if err := r.RegisterTool(jsontool.Adapt(t)); err != nil {
			for _, name := range names {
				r.Unregister(name)
			}
			return fmt.Errorf("control: %w", err)
		}
		names = append(names, t.Name())
	}
	r.Reserve(names...)
	return nil
}

// ending is what the tools have in common.
type ending struct{}

// IsLoopBreaking implements jsontool.Tool.
func (ending) IsLoopBreaking() bool { return true }

// Idempotent reports that a call may be run again: it does nothing but speak.
func (ending) Idempotent() bool { return true }

// TaskCompletionTool ends the turn with the result of the work.
type TaskCompletionTool struct{ ending }

// Name implements jsontool.Tool.
func (*TaskCompletionTool) Name() string { return "task_completion" }

// Description implements jsontool.Tool.
func (*TaskCompletionTool) Description() string {
	return "Say that the task is done and what came of it. This ends your turn, so call it alone, when nothing is left to do."
}

// Schema implements jsontool.Tool.
func (*TaskCompletionTool) Schema() map[string]interface{} {
	return schema("result", "What was done and what came of it, in full: the person reads nothing else.", nil)
}

// Execute returns the result.
func (*TaskCompletionTool) Execute(_ context.Context, arguments json.RawMessage) (string, error) {
	var in struct {
		Result string `json:"result"`
	}
	return said(arguments, &in, "result", &in.Result)
}

// AskQuestionTool ends the turn with a question; the person's next message is
// the answer.
type AskQuestionTool struct{ ending }

// Name implements jsontool.Tool.
func (*AskQuestionTool) Name() string { return "ask_question" }

// Description implements jsontool.Tool.
func (*AskQuestionTool) Description() string {
	return "Ask the person something you must know to go on. This ends your turn; the answer is their next message."
}

// Schema implements jsontool.Tool.
func (*AskQuestionTool) Schema() map[string]interface{} {
	return schema("question", "The question, clear and specific.", map[string]interface{}{
		"suggestions": map[string]interface{}{
			"type":        "array",
			"items":       map[string]interface{}{"type": "string"},
			"description": "Answers the person may choose from, if there are likely ones.",
		},
	})
}

// Execute returns the question and, numbered, the suggested answers.
func (*AskQuestionTool) Execute(_ context.Context, arguments json.RawMessage) (string, error) {
	var in struct {
		Question    string   `json:"question"`
		Suggestions []string `json:"suggestions"`
	}
	text, err := said(arguments, &in, "question", &in.Question)
	if err != nil {
		return "", err
	}
	n := 0
	for _, s := range in.Suggestions {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		if n++; n == 1 {
			text += "\n\nSuggested answers:"
		}
		text += fmt.Sprintf("\n%d. %s", n, s)
	}
	return text, nil
}

// ConverseTool ends the turn with a message that needs no work.
type ConverseTool struct{ ending }

// Name implements jsontool.Tool.
func (*ConverseTool) Name() string { return "converse" }

// Description implements jsontool.Tool.
func (*ConverseTool) Description() string {
	return "Say something that needs no work, such as a greeting or an answer you know. This ends your turn."
}

// Schema implements jsontool.Tool.
func (*ConverseTool) Schema() map[string]interface{} {
	return schema("message", "What the person reads.", nil)
}

// Execute returns the message.
func (*ConverseTool) Execute(_ context.Context, arguments json.RawMessage) (string, error) {
	var in struct {
		Message string `json:"message"`
	}
	return said(arguments, &in, "message", &in.Message)
}

// schema describes an object with one required text, and what else there is.
func schema(name, description string, more map[string]interface{}) map[string]interface{} {
	properties := map[string]interface{}{name: map[string]interface{}{"type": "string", "description": description}}
	maps.Copy(properties, more)
	return map[string]interface{}{"type": "object", "properties": properties, "required": []string{name}}
}

// said reads arguments into in and returns one of its texts, which must not be
// empty.
func said(arguments json.RawMessage, in any, name string, text *string) (string, error) {
	if err := json.Unmarshal(arguments, in); err != nil {
		return "", fmt.Errorf("invalid arguments: %w", err)
	}
	if strings.TrimSpace(*text) == "" {
		return "", errors.New(name + " cannot be empty")
	}
	return *text, nil
}
