package providers

import (
	"context"
	"fmt"
	"log/slog"
)

// Keys returns a provider that is the given ones, which are the same model with
// a key each: the first whose key is not refused, and has not had enough, is
// asked. What has nothing to do with the key, such as a busy service, does not
// lead to the next one. A key that failed is left alone as a model of a Chain is.
// name is the model's, for the log. At least one provider is needed.
func Keys(log *slog.Logger, name string, ps ...LLMProvider) LLMProvider {
	if len(ps) == 1 {
		return ps[0]
	}
	models := make([]Model, len(ps))
	checks := make([]Checker, 0, len(ps))
	for i, p := range ps {
		models[i] = Model{Name: fmt.Sprintf("%s (key %d of %d)", name, i+1, len(ps)), Provider: p}
		if c, ok := p.(Checker); ok {
			checks = append(checks, c)
		}
	}
	c := &chain{models: models, keys: true, log: log, state: make([]cooldown, len(models))}
	if len(checks) < len(ps) {
		return c
	}
	return checkedKeys{c, checks}
}

type checkedKeys struct {
	*chain
	checks []Checker
}

// Check implements Checker: one key that works is enough. What is wrong with
// those before it is logged.
func (k checkedKeys) Check(ctx context.Context) error {
	var first error
	for i, c := range k.checks {
		err := c.Check(ctx)
		if err == nil {
			return nil
		}
		if kind := KindOf(err); kind != KindAuth && kind != KindBilling {
			return err // it is not the key
		}
		k.log.WarnContext(ctx, "key refused", "model", k.models[i].Name, "err", err)
		if first == nil {
			first = err
		}
	}
	return first
}
