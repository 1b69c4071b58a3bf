package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

func (l *loop) prepareOutput() (err error) {
	if l.cfg.OutputSchema == nil {
		return nil
	}
	if l.schema, err = compileSchema(l.cfg.OutputSchema); err != nil {
		return fmt.Errorf("tools: output: %w", err)
	}
	return nil
}

// output ends the loop with an answer that fits the schema, or sends it back.
func (l *loop) output(ctx context.Context, r reply) error {
	text, wrong := l.fits(r.message.Content)
	l.res.Content = text
	switch {
	case wrong == "":
		l.stop(StopAnswer, "")
	case l.repaired || r.round >= l.cfg.MaxIterations:
		l.stop(StopInvalidOutput, "")
	default:
		l.repaired = true
		l.res.Content = ""
		return l.insert(ctx, r.round, providers.Message{Role: providers.RoleUser, Content: wrong})
	}
	return nil
}

// fits returns the JSON of an answer, and what is wrong with it, for the model.
func (l *loop) fits(answer string) (text, wrong string) {
	text = unfenced(answer)
	instance, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	problem := ""
	if err != nil {
		problem = "it is not JSON: " + err.Error()
	} else if err = l.schema.Validate(instance); err != nil {
		problem = err.Error()
		if v, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
			problem = violations(l.schema, v, instance)
		}
	}
	if problem == "" {
		return text, ""
	}
	schema, err := json.Marshal(l.cfg.OutputSchema)
	if err != nil {
		schema = []byte("(the one you were given)")
	}
	return answer, "Your answer does not have the form it has to have: " + problem +
		". Answer again with nothing but one JSON value that fits this schema: " + string(schema)
}

// unfenced takes the JSON out of a block of code, which models like to put it
// in.
func unfenced(answer string) string {
	text := strings.TrimSpace(answer)
	rest, ok := strings.CutPrefix(text, "```")
	if !ok {
		return text
	}
	_, body, ok := strings.Cut(rest, "\n")
	if body, closed := strings.CutSuffix(strings.TrimSpace(body), "```"); ok && closed {
		return strings.TrimSpace(body)
	}
	return text
}
