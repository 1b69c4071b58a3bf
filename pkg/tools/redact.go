package tools

// redacted returns a result without secrets, whoever will read it: result
// itself if there are none in it.
func (c *core) redacted(result *ToolResult) *ToolResult {
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
