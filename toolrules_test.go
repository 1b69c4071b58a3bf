package dragoman_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestToolRulesAreTests: docs/tool-rules.md holds every rule, in order, each
// with tests that exist; it names every test that was written for one of the
// loop's needs; and only what comes later has none.
func TestToolRulesAreTests(t *testing.T) {
	tests := readTests(t)
	rules, conflicts := 0, 0
	named := map[string]bool{}
	for _, r := range readTable(t, "docs/tool-rules.md", tests) {
		key, holds := strings.TrimSpace(r.cells[0]), strings.TrimSpace(r.cells[1])
		switch {
		case key == fmt.Sprint(rules+1):
			rules++
		case key == fmt.Sprint("C", conflicts+1):
			conflicts++
		case strings.Trim(key, "C0123456789") == "":
			t.Errorf("docs/tool-rules.md:%d: %s is not the next number", r.line, key)
		}
		if later := strings.HasPrefix(holds, "come later") || strings.HasPrefix(holds, "comes later"); (len(r.tests) == 0) != later {
			t.Errorf("docs/tool-rules.md:%d: %s has %d tests", r.line, key, len(r.tests))
		}
		for _, name := range r.tests {
			named[name] = true
		}
	}
	if rules != 85 || conflicts != 16 {
		t.Errorf("docs/tool-rules.md ends at rule %d and conflict C%d", rules, conflicts)
	}
	for folder, s := range tests {
		for name := range s.functions {
			if strings.HasPrefix(name, "TestField") && !named[folder+"."+name] {
				t.Errorf("docs/tool-rules.md does not name %s.%s", folder, name)
			}
		}
	}
}
