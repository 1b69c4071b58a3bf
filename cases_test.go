package dragoman_test

import (
	"cmp"
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

// A named test of a table: the package unless it is the one at the top, the
// function, and perhaps what is behind a slash.
var namedTest = regexp.MustCompile("`(?:([a-z/]+)\\.)?((?:Test|Fuzz|Example|Benchmark)[A-Za-z0-9_]+)(?:/([^`]+))?`")

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

// row is one of a table that tells which tests hold something.
type row struct {
	line  int
	cells []string
	tests []string // folder.TestName
}

// readTable returns the rows of all tables of a document, each with three cells
// of which the last one names tests, and complains of tests that do not exist.
func readTable(t *testing.T, name string, tests map[string]testSources) (rows []row) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		isTitle := i+1 < len(lines) && strings.HasPrefix(lines[i+1], "|---")
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") || isTitle {
			continue
		}
		r := row{line: i + 1, cells: strings.Split(strings.Trim(line, "|"), "|")}
		if len(r.cells) != 3 {
			t.Errorf("%s:%d: %d cells, want three, with the tests in the last one", name, r.line, len(r.cells))
			continue
		}
		found := namedTest.FindAllStringSubmatch(r.cells[2], -1)
		if len(found) != strings.Count(r.cells[2], "`")/2 {
			t.Errorf("%s:%d: write each test as `folder.TestName` or `folder.TestName/rule`", name, r.line)
		}
		for _, f := range found {
			folder, function, rule := cmp.Or(f[1], "."), f[2], f[3]
			r.tests = append(r.tests, folder+"."+function)
			if !tests[folder].functions[function] {
				t.Errorf("%s:%d: there is no %s in %s", name, r.line, function, folder)
			}
			if rule != "" && !tests[folder].literals[rule] && !tests[""].literals[rule] {
				t.Errorf("%s:%d: nothing in %s or in the kits is called %q", name, r.line, folder, rule)
			}
		}
		rows = append(rows, r)
	}
	return rows
}

// TestCasesAreTests: docs/cases.md names only tests that exist, each of its cases
// has one, and every test that was written for a case is named there.
func TestCasesAreTests(t *testing.T) {
	tests := readTests(t)
	rows := readTable(t, "docs/cases.md", tests)
	named := map[string]bool{}
	for _, r := range rows {
		if len(r.tests) == 0 {
			t.Errorf("docs/cases.md:%d: the case has no test", r.line)
		}
		for _, name := range r.tests {
			named[name] = true
		}
	}
	if len(rows) < 40 {
		t.Errorf("docs/cases.md holds only %d cases", len(rows))
	}
	for folder, s := range tests {
		for name := range s.functions {
			if strings.HasPrefix(name, "TestCase") && name != "TestCasesAreTests" && !named[folder+"."+name] {
				t.Errorf("docs/cases.md does not name %s.%s", folder, name)
			}
		}
	}
}
