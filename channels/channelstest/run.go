package channelstest

import (
	"testing"
	"testing/synctest"
)

// rule is one sentence of the contract.
type rule struct {
	name  string
	needs func(p *Platform) bool // nil: nothing that could be missing
	check func(r *rig)
}

// Run holds an adapter to every rule. newPlatform returns a fresh platform and
// leaves cleaning up to t.Cleanup.
func Run(t *testing.T, newPlatform func(t *testing.T) *Platform) {
	t.Helper()
	run(t, newPlatform, func(t *testing.T, f func(t *testing.T)) { t.Helper(); f(t) })
}

// RunInBubble is Run with each rule in a synctest bubble. The platform has to
// live in memory, and everything it starts has to end with the test.
func RunInBubble(t *testing.T, newPlatform func(t *testing.T) *Platform) {
	t.Helper()
	run(t, newPlatform, synctest.Test)
}

func run(t *testing.T, newPlatform func(t *testing.T) *Platform, in func(*testing.T, func(*testing.T))) {
	t.Helper()
	known := make(map[string]bool)
	var without map[string]string
	for _, rule := range rules() {
		if known[rule.name] {
			t.Fatalf("two rules are called %q", rule.name)
		}
		known[rule.name] = true
		t.Run(rule.name, func(t *testing.T) {
			var skip string
			in(t, func(t *testing.T) {
				t.Helper()
				p := newPlatform(t)
				without = p.Without
				if skip = p.Without[rule.name]; skip != "" {
					return
				}
				if rule.needs != nil && !rule.needs(p) {
					t.Fatalf("the platform lacks what this rule needs; give it, or say why not in Without[%q]", rule.name)
				}
				rule.check(newRig(t, p))
			})
			if skip != "" {
				t.Skip(skip)
			}
		})
	}
	for name := range without {
		if !known[name] {
			t.Errorf("Without names %q, which is no rule", name)
		}
	}
}

// rules lists every rule. Their names are what Platform.Without goes by.
func rules() []rule {
	return append(append(receiveRules(), sendRules()...), lifeRules()...)
}

func needsGroups(p *Platform) bool  { return len(p.Groups) > 1 }
func needsTopics(p *Platform) bool  { return len(p.Topics) > 1 && len(p.Groups) > 1 }
func needsRestart(p *Platform) bool { return p.Confirmed != nil }
