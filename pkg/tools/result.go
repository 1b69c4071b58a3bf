package tools

// ToolResult is what a tool's execution comes to: what the model reads, what
// the person reads, and how to treat the outcome.
type ToolResult struct {
	ForLLM  string `json:"for_llm"`            // what the model reads; always set
	ForUser string `json:"for_user,omitempty"` // shown to the person as it is, unless Silent
	Silent  bool   `json:"silent"`             // show the person nothing, whatever ForUser says
	IsError bool   `json:"is_error"`           // the call failed
	Async   bool   `json:"async"`              // work goes on and ends in the callback
	Err     error  `json:"-"`                  // for the log; the model reads it only if ForLLM is empty

	// Final says that the person has been told all there is to say, by ForUser or
	// by the tool itself: the loop ends, and the model is not asked again. It
	// does not count with IsError.
	Final bool `json:"final,omitempty"`

	// Data is the outcome for programs; neither the model nor the person sees it.
	Data map[string]interface{} `json:"data,omitempty"`
}

// NewToolResult returns a result for the model.
func NewToolResult(forLLM string) *ToolResult { return &ToolResult{ForLLM: forLLM} }

// SilentResult returns a result for the model of which the person sees nothing.
func SilentResult(forLLM string) *ToolResult { return &ToolResult{ForLLM: forLLM, Silent: true} }

// AsyncResult tells the model that work has started and will report back.
func AsyncResult(forLLM string) *ToolResult { return &ToolResult{ForLLM: forLLM, Async: true} }

// ErrorResult tells the model that the call failed and what to do about it.
func ErrorResult(message string) *ToolResult { return &ToolResult{ForLLM: message, IsError: true} }

// UserResult shows the same text to the model and to the person.
func UserResult(content string) *ToolResult { return &ToolResult{ForLLM: content, ForUser: content} }

// WithError attaches the cause, for the log, and returns the same result.
func (tr *ToolResult) WithError(err error) *ToolResult {
	tr.Err = err
	return tr
}
