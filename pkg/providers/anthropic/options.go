package anthropic

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"github.com/dragoman-chat/dragoman/pkg/providers/httpapi"
)

// The options that are known, in the order in which they are set: of two that
// say the same in different words the later one counts. By OpenAI's names they
// are
//
//	max_tokens, max_completion_tokens
//	temperature (more than 1 is 1), top_p, top_k; where there is a temperature
//	    top_p is left out, and all three are where the model thinks or takes none
//	stop
//	tool_choice, parallel_tool_calls
//	response_format with a json_schema
//	user
//	service_tier
//	reasoning_effort: none, minimal, low, medium, high, xhigh, max. Models before
//	    4.6 get a budget of thoughts, 1024, 2048, 8192 or 16384 tokens, on top
//	    of max_tokens where that is not set; later ones decide for themselves
//	    within the effort
//	thinking: the API's own object, as it stands
func setOptions(req *sdk.MessageNewParams, options map[string]any) error {
	for _, name := range [...]string{
		"max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "stop", "tool_choice", "parallel_tool_calls",
		"response_format", "user", "service_tier", "reasoning_effort", "thinking",
	} {
		v := options[name]
		if v == nil {
			continue
		}
		if !setOption(req, name, v) {
			return fmt.Errorf("option %s: %v is not a value the API takes", name, v)
		}
	}
	return settle(req)
}

func setOption(req *sdk.MessageNewParams, name string, v any) bool {
	switch name {
	case "max_tokens", "max_completion_tokens", "top_k", "temperature", "top_p":
		return setNumber(req, name, v)
	case "stop":
		texts, ok := httpapi.Texts(v)
		req.StopSequences = texts
		return ok
	case "tool_choice":
		return setToolChoice(req, v)
	case "parallel_tool_calls":
		return setParallel(req, v)
	case "response_format":
		return setFormat(req, v)
	case "reasoning_effort":
		return setEffort(req, v)
	case "thinking":
		raw, err := json.Marshal(v)
		_, ok := v.(map[string]any)
		if ok = ok && err == nil && json.Unmarshal(raw, &req.Thinking) == nil; ok {
			req.OutputConfig.Effort = ""
		}
		return ok
	}
	s, ok := v.(string)
	if name == "user" {
		req.Metadata.UserID = sdk.String(s)
		return ok
	}
	switch s {
	case "auto":
		req.ServiceTier = sdk.MessageNewParamsServiceTierAuto
	case "default", "standard_only":
		req.ServiceTier = sdk.MessageNewParamsServiceTierStandardOnly
	}
	return ok
}

func setNumber(req *sdk.MessageNewParams, name string, v any) bool {
	f, ok := httpapi.Number(v)
	switch name {
	case "temperature":
		req.Temperature = sdk.Float(min(f, 1))
		return ok && f >= 0
	case "top_p":
		req.TopP = sdk.Float(f)
		return ok && f >= 0 && f <= 1
	}
	if !ok || f < 1 || f > math.MaxInt32 || f != math.Trunc(f) {
		return false
	}
	if name == "top_k" {
		req.TopK = sdk.Int(int64(f))
	} else {
		req.MaxTokens = int64(f)
	}
	return true
}

// setToolChoice sets what the API refuses in a request without tools.
func setToolChoice(req *sdk.MessageNewParams, v any) bool {
	kind, _ := v.(string)
	var name string
	if m, ok := v.(map[string]any); ok {
		kind, _ = m["type"].(string)
		if f, ok := m["function"].(map[string]any); ok {
			m = f
		}
		name, _ = m["name"].(string)
	}
	var choice sdk.ToolChoiceUnionParam
	switch {
	case kind == "auto":
		choice.OfAuto = &sdk.ToolChoiceAutoParam{}
	case kind == "none":
		choice.OfNone = &sdk.ToolChoiceNoneParam{}
	case kind == "required", kind == "any":
		choice.OfAny = &sdk.ToolChoiceAnyParam{}
	case (kind == "function" || kind == "tool") && name != "":
		choice.OfTool = &sdk.ToolChoiceToolParam{Name: httpapi.Alias(name)}
	default:
		return false
	}
	if len(req.Tools) > 0 {
		req.ToolChoice = choice
	}
	return true
}

func setParallel(req *sdk.MessageNewParams, v any) bool {
	parallel, ok := v.(bool)
	if !ok || parallel || len(req.Tools) == 0 {
		return ok
	}
	c := &req.ToolChoice
	switch {
	case c.OfAny != nil:
		c.OfAny.DisableParallelToolUse = sdk.Bool(true)
	case c.OfTool != nil:
		c.OfTool.DisableParallelToolUse = sdk.Bool(true)
	case c.OfNone == nil:
		c.OfAuto = &sdk.ToolChoiceAutoParam{DisableParallelToolUse: sdk.Bool(true)}
	}
	return true
}

// setFormat passes a schema on. That an answer is to be some JSON object or
// text cannot be said to this API.
func setFormat(req *sdk.MessageNewParams, v any) bool {
	m, ok := v.(map[string]any)
	if m["type"] == "json_schema" {
		named, _ := m["json_schema"].(map[string]any)
		req.OutputConfig.Format.Schema, ok = named["schema"].(map[string]any)
	}
	return ok
}

func setEffort(req *sdk.MessageNewParams, v any) bool {
	budgets := map[string]int64{"none": 0, "minimal": 1024, "low": 2048, "medium": 8192, "high": 16384, "xhigh": 16384, "max": 16384}
	word, _ := v.(string)
	budget, ok := budgets[word]
	version := versionOf(req.Model)
	switch {
	case !ok:
		return false
	case version < adaptiveSince && budget > 0:
		req.Thinking = sdk.ThinkingConfigParamOfEnabled(budget)
	case version < alwaysThinks && budget == 0:
		req.Thinking.OfDisabled = &sdk.ThinkingConfigDisabledParam{}
	default:
		req.OutputConfig.Effort = effort(word, version)
		if budget > 0 {
			req.Thinking.OfAdaptive = &sdk.ThinkingConfigAdaptiveParam{}
		}
	}
	return true
}

func effort(word string, version int) sdk.OutputConfigEffort {
	switch word {
	case "medium":
		return sdk.OutputConfigEffortMedium
	case "high":
		return sdk.OutputConfigEffortHigh
	case "xhigh":
		if version < alwaysThinks {
			return sdk.OutputConfigEffortHigh
		}
		return "xhigh"
	case "max":
		return sdk.OutputConfigEffortMax
	}
	return sdk.OutputConfigEffortLow
}

// Versions of models, times 100, since which something is different.
const (
	adaptiveSince = 406 // thinks as much as it likes, within an effort
	alwaysThinks  = 407 // cannot be told not to think, or how to sample
)

var versions = regexp.MustCompile(`claude-(?:[a-z]+-)?(\d)(?:[-.](\d\d?)(?:\D|$))?`)

// versionOf reads the version out of a model's name. A Claude without one is
// taken for the newest; the models of others know the oldest forms best.
func versionOf(model string) int {
	m := versions.FindStringSubmatch(model)
	switch {
	case m == nil && strings.Contains(model, "claude"):
		return alwaysThinks
	case m == nil:
		return 0
	}
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2]) // 0 where there is none
	return 100*major + minor
}

// settle makes the settings fit each other and the messages.
func settle(req *sdk.MessageNewParams) error {
	if req.Thinking.OfEnabled != nil && resumesWithoutThought(req.Messages) {
		req.Thinking = sdk.ThinkingConfigParamUnion{}
	}
	var budget int64
	if t := req.Thinking.OfEnabled; t != nil {
		budget = t.BudgetTokens
	}
	if req.MaxTokens == 0 {
		req.MaxTokens = DefaultMaxTokens + budget
	}
	if budget >= req.MaxTokens {
		return fmt.Errorf("option max_tokens: %d leaves nothing for the answer, since thoughts may take %d of it: raise it, or lower reasoning_effort", req.MaxTokens, budget)
	}
	thinks := req.Thinking.OfEnabled != nil || req.Thinking.OfAdaptive != nil
	switch {
	case thinks, versionOf(req.Model) >= alwaysThinks:
		req.Temperature, req.TopP, req.TopK = param.Opt[float64]{}, param.Opt[float64]{}, param.Opt[int64]{}
	case req.Temperature.Valid():
		req.TopP = param.Opt[float64]{}
	}
	return nil
}

// resumesWithoutThought reports whether the model is to go on after calls it
// made without thinking, or by another model; the API refuses to let it think
// from there on.
func resumesWithoutThought(messages []sdk.MessageParam) bool {
	n := len(messages)
	if n < 2 || messages[n-1].Content[0].OfToolResult == nil {
		return false
	}
	first := messages[n-2].Content[0]
	return first.OfText != nil || first.OfToolUse != nil
}
