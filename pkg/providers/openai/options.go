package openai

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	sdk "github.com/sashabaranov/go-openai"

	"github.com/dragoman-chat/dragoman/pkg/providers/httpapi"
)

// reasoning reports whether a model takes max_completion_tokens instead of
// max_tokens, and no sampling options. A router's prefix ("openai/") does not
// count.
func reasoning(model string) bool {
	model = model[strings.LastIndexByte(model, '/')+1:]
	for _, prefix := range []string{"o1", "o3", "o4", "gpt-5", "gpt-6"} {
		if strings.HasPrefix(model, prefix) {
			return true
		}
	}
	return false
}

// setOptions sets request fields by their API names. Unknown names are
// ignored, and so is sampling where the model does not allow it; a known name
// with an unusable value is an error.
func setOptions(req *sdk.ChatCompletionRequest, options map[string]any) error {
	for name, v := range options {
		if v == nil {
			continue
		}
		ok, err := true, error(nil)
		switch name {
		case "max_tokens", "max_completion_tokens":
			ok = setMaxTokens(req, name, v)
		case "temperature", "top_p", "presence_penalty", "frequency_penalty", "logit_bias":
			if !reasoning(req.Model) {
				ok, err = setSampling(req, name, v)
			}
		case "tool_choice", "parallel_tool_calls":
			setToolOption(req, name, v)
		case "response_format", "metadata", "chat_template_kwargs":
			err = setObject(req, name, v)
		case "seed":
			var f float64
			f, ok = httpapi.Number(v)
			seed := int(f)
			req.Seed = &seed
		case "stop":
			req.Stop, ok = httpapi.Texts(v)
		default:
			ok = setText(req, name, v)
		}
		if err != nil {
			return fmt.Errorf("option %s: %w", name, err)
		}
		if !ok {
			return fmt.Errorf("option %s: %v is not a value the API takes", name, v)
		}
	}
	return nil
}

func setMaxTokens(req *sdk.ChatCompletionRequest, name string, v any) bool {
	f, ok := httpapi.Number(v)
	if !ok || f < 1 || f > math.MaxInt32 {
		return false
	}
	switch {
	case name == "max_completion_tokens":
		req.MaxCompletionTokens = int(f)
	case !reasoning(req.Model):
		req.MaxTokens = int(f) //nolint:staticcheck // most servers of this API know no other
	case req.MaxCompletionTokens == 0:
		req.MaxCompletionTokens = int(f)
	}
	return true
}

func setSampling(req *sdk.ChatCompletionRequest, name string, v any) (bool, error) {
	if name == "logit_bias" {
		return true, decode(v, &req.LogitBias)
	}
	f, ok := httpapi.Number(v)
	if !ok {
		return false, nil
	}
	// The SDK leaves zeros out, and zero is not the API's default.
	small := float32(f)
	if small == 0 {
		small = math.SmallestNonzeroFloat32
	}
	switch name {
	case "temperature":
		req.Temperature = small
	case "top_p":
		req.TopP = small
	case "presence_penalty":
		req.PresencePenalty = float32(f)
	case "frequency_penalty":
		req.FrequencyPenalty = float32(f)
	}
	return true, nil
}

// setToolOption sets what the API refuses in a request without tools.
func setToolOption(req *sdk.ChatCompletionRequest, name string, v any) {
	switch {
	case len(req.Tools) == 0:
	case name == "tool_choice":
		req.ToolChoice = v
	default:
		req.ParallelToolCalls = v
	}
}

func setObject(req *sdk.ChatCompletionRequest, name string, v any) error {
	switch name {
	case "response_format":
		return decode(v, &req.ResponseFormat)
	case "metadata":
		return decode(v, &req.Metadata)
	}
	return decode(v, &req.ChatTemplateKwargs)
}

func setText(req *sdk.ChatCompletionRequest, name string, v any) bool {
	s, ok := v.(string)
	switch name {
	case "reasoning_effort":
		req.ReasoningEffort = s
	case "verbosity":
		req.Verbosity = s
	case "user":
		req.User = s
	case "safety_identifier":
		req.SafetyIdentifier = s
	case "service_tier":
		req.ServiceTier = sdk.ServiceTier(s)
	default:
		return true
	}
	return ok
}

// decode turns a map from a configuration file into the SDK's type.
func decode(v, into any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}
