// Package textcall lets models call tools that cannot do so natively: the tools
// are described in the prompt, and the model writes its calls into its text.
//
//	<tool>
//	{"server_name": "local", "tool_name": "calculator", "arguments": {"a": 15, "b": 23}}
//	</tool>
//
// Wrap does this for a whole provider; everything behind it, the loop, the
// history, the ledger, sees ordinary calls and ordinary results. Use it only for
// models that need it: where native calls are to be had, text is just text.
//
// What is no call: a block in a code fence or in inline code, in a model's
// thoughts (<think>), and in the words of people and tools, whose tags are made
// harmless before the model sees them, so that it can repeat them unharmed.
package textcall

import (
	"encoding/json"
	"errors"
)

// ToolCall is a call that a model wrote.
type ToolCall struct {
	ServerName string          // always "local"
	ToolName   string          // never empty
	Arguments  json.RawMessage // a JSON object as the model wrote it, {} if it wrote none
}

// Parse finds the calls in a model's whole reply, in order. rest is the text
// without them, and without the space around it. err joins what is wrong with
// the blocks that are no proper calls; calls has the others, and rest none of
// them. For a reply that was cut off use a Splitter, which can be told so.
func Parse(text string) (calls []ToolCall, rest string, err error) {
	var s Splitter
	rest = s.Write(text) + s.Close(false)
	var errs []error
	for _, b := range s.Blocks() {
		if b.Err != nil {
			errs = append(errs, b.Err)
			continue
		}
		calls = append(calls, b.Call)
	}
	return calls, trim(rest), errors.Join(errs...)
}
