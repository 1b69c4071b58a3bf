package tools

import "fmt"

// redacted returns a result without secrets, whoever will read it: result
// itself if there are none in it.
func (c *core) redacted(result *ToolResult) *ToolResult {
	result = speaking(result)
	hide := c.options.Redact
	if hide == nil {
		return result
	}
	clean := *result
	clean.ForLLM, clean.ForUser = hide(result.ForLLM), hide(result.ForUser)
	changed := clean.ForLLM != result.ForLLM || clean.ForUser != result.ForUser
	if result.Err != nil {
		if text := result.Err.Error(); hide(text) != text {
			clean.Err, changed = redactedError{hide(text), result.Err}, true
		}
	}
	if !changed {
		return result
	}
	return &clean
}

// redactedError is an error whose text holds a secret.
type redactedError struct {
	text string
	err  error
}

func (e redactedError) Error() string { return e.text }
func (e redactedError) Unwrap() error { return e.err }

// speaking returns a result whose Err has a text: one that panics when it is asked
// for it, as a nil pointer in an error does, would end whoever asks.
func speaking(result *ToolResult) (sound *ToolResult) {
	if result.Err == nil {
		return result
	}
	defer func() {
		if p := recover(); p != nil {
			clean := *result
			clean.Err = fmt.Errorf("the tool failed with a %T that has no text: %v", result.Err, p)
			sound = &clean
		}
	}()
	_ = result.Err.Error()
	return result
}
