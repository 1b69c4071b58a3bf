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
// thoughts (<think>), and in the words of people and tools. Their tags are made
// harmless before the model sees them, so that it can repeat what it reads. And
// a model that restores a tag when it repeats a block is told that nothing is run
// which was copied: a block of its own that stands in a message of a person or in
// a tool's result, whatever its spaces, case, quotes, entities, invisible
// characters or marks of quotation there, is never run; nor is the same call in
// another order or form.
//
// No form of text can do more. A model that is talked into writing a call of its
// own, in other words or out of parts, has made that call, as with native calls;
// what it may do then is a matter of the tools and the rights it is given.
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
// without them and without thoughts, and without the space around it. err joins what is wrong with
// the blocks that are no proper calls; calls has the others, and rest none of
// them. For a reply that was cut off use a Splitter, which can be told so.
func Parse(text string) (calls []ToolCall, rest string, err error) {
	rest, blocks := split(text, false)
	var errs []error
	for _, b := range blocks {
		if b.Err != nil {
			errs = append(errs, b.Err)
			continue
		}
		calls = append(calls, b.Call)
	}
	return calls, trim(rest), errors.Join(errs...)
}
