package dragoman_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A named test of docs/cases.md: the package, the function, and perhaps what is
// behind a slash.
var namedTest = regexp.MustCompile("`([a-z/]+)\\.(Test[A-Za-z0-9]+)(?:/([^`]+))?`")

// testSources is what the tests of a package hold.
type testSources struct {
	functions map[string]bool
	literals  map[string]bool
}

// readTests reads the test files of all packages by their folder, and the kits,
// whose rules are subtests, under "".
func readTests(t *testing.T) map[string]testSources {
	t.Helper()
	all := map[string]testSources{"": {map[string]bool{}, map[string]bool{}}}
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		folder := path.Dir(filepath.ToSlash(name))
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && name != "."):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go"):
			return nil
		case !strings.HasSuffix(name, "_test.go"):
			if !isKit(folder) {
				return nil
			}
			folder = ""
		}
		if _, ok := all[folder]; !ok {
			all[folder] = testSources{map[string]bool{}, map[string]bool{}}
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		all[folder].add(file)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func (s testSources) add(file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			s.functions[n.Name.Name] = n.Recv == nil
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
				s.literals[text] = true
			}
		}
		return true
	})
}

// TestCasesAreTests: docs/cases.md names only tests that exist, each of its cases
// has one, and every test that was written for a case is named there.
func TestCasesAreTests(t *testing.T) {
	text, err := os.ReadFile("docs/cases.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := readTests(t)
	named, cases := map[string]bool{}, 0
	for i, line := range strings.Split(string(text), "\n") {
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") || strings.HasPrefix(line, "| case |") {
			continue
		}
		cases++
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if len(cells) != 3 {
			t.Errorf("docs/cases.md:%d: %d cells, want the case, what Dragoman does, and the tests", i+1, len(cells))
			continue
		}
		found := namedTest.FindAllStringSubmatch(cells[2], -1)
		if len(found) == 0 || len(found) != strings.Count(cells[2], "`")/2 {
			t.Errorf("docs/cases.md:%d: write each test as `folder.TestName` or `folder.TestName/rule`", i+1)
		}
		for _, f := range found {
			folder, name, rule := f[1], f[2], f[3]
			named[folder+"."+name] = true
			if !tests[folder].functions[name] {
				t.Errorf("docs/cases.md:%d: there is no %s in %s", i+1, name, folder)
			}
			if rule != "" && !tests[folder].literals[rule] && !tests[""].literals[rule] {
				t.Errorf("docs/cases.md:%d: nothing in %s or in the kits is called %q", i+1, folder, rule)
			}
		}
	}
	if cases < 40 {
		t.Errorf("docs/cases.md holds only %d cases", cases)
	}
	for folder, s := range tests {
		for name := range s.functions {
			if strings.HasPrefix(name, "TestCase") && name != "TestCasesAreTests" && !named[folder+"."+name] {
				t.Errorf("docs/cases.md does not name %s.%s", folder, name)
			}
		}
	}
}
