package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// document is a configuration as it was written: a tree in which anchors,
// merges and ${NAME} are resolved, and every value knows where it stands.
type document struct {
	path string // as given, "" without a file
	file string // its last part, for messages
	dir  string // what relative "file:" values start from
	only string // the type of the one channel there is, "" if the file says
	env  func(string) string

	root     *yaml.Node            // a mapping, or nil if nothing was written
	places   map[string]place      // by key path
	varOf    map[*yaml.Node]string // values that stand in an environment variable
	expanded map[*yaml.Node]bool   // values that hold something of the environment: never shown
	problems []problem             // what was wrong already when it was parsed
	secrets  []string
	onSecret func(string)
}

// place is where a value stands: a line of the file, or an environment
// variable. The zero place is a default.
type place struct {
	line     int
	variable string
}

// placed returns the line of p and how a message about it begins.
func (doc *document) placed(p place) (int, string) {
	switch {
	case p.variable != "":
		return 0, "environment variable " + p.variable + ": "
	case p.line > 0:
		return p.line, fmt.Sprintf("%s:%d: ", doc.file, p.line)
	case doc.file != "":
		return 0, doc.file + ": "
	}
	return 0, "config: "
}

func (doc *document) placeOf(n *yaml.Node) place {
	if v := doc.varOf[n]; v != "" {
		return place{variable: v}
	}
	return place{line: n.Line}
}

// parse reads the text of the file and returns the resolved tree.
func (doc *document) parse(text []byte) (*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var node yaml.Node
	if err := dec.Decode(&node); errors.Is(err, io.EOF) {
		return nil, nil //nolint:nilnil // an empty file is a file that says nothing
	} else if err != nil {
		return nil, doc.syntaxError(text, err)
	}
	var second yaml.Node
	if err := dec.Decode(&second); err == nil {
		return nil, newError("%s:%d: only one document is read: remove the line \"---\" and what follows, or join them", doc.file, second.Line)
	} else if !errors.Is(err, io.EOF) {
		return nil, doc.syntaxError(text, err)
	}
	if doc.only != "" && node.Content[0].Kind == yaml.MappingNode {
		remove(node.Content[0], "channels") // what only they need may be missing
	}
	r := resolver{decoder: decoder{doc: doc}, nodes: maxNodes}
	root := r.resolve(node.Content[0], "", 0)
	if r.tooMuch {
		return nil, newError("%s: the file is nested too deeply or its aliases unfold to too much", doc.file)
	}
	doc.problems = r.problems
	if isNull(root) {
		return nil, nil //nolint:nilnil // as above
	}
	if root.Kind != yaml.MappingNode {
		return nil, newError("%s:%d: expected keys and values, found %s", doc.file, root.Line, r.found(root))
	}
	return root, nil
}

// syntaxError turns yaml's own message into one of ours, with the right line.
func (doc *document) syntaxError(text []byte, err error) error {
	msg := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 1
	if rest, ok := strings.CutPrefix(msg, "line "); ok {
		if num, after, ok := strings.Cut(rest, ": "); ok {
			if n, err := strconv.Atoi(num); err == nil {
				line, msg = n, after
				if strings.HasPrefix(msg, "did not find expected") {
					line++ // yaml's parser counts from 0, its scanner from 1
				}
			}
		}
	}
	switch {
	case msg == "did not find expected key":
		msg = "this line, or one of the block that begins here, is indented wrongly or is no \"key: value\""
	case strings.Contains(msg, "did not find expected ',' or"):
		msg = "a { or [ that begins here is not closed where expected; inside of them ${NAME} needs quotes, \"${NAME}\""
	case strings.Contains(msg, "cannot start any token"):
		if n := tabbed(text); n > 0 {
			line, msg = n, "the line begins with a tab: indent with spaces"
		}
	}
	_, prefix := doc.placed(place{line: line})
	return newError("%s%s", prefix, msg)
}

// tabbed returns the number of the first line indented with a tab, or 0.
func tabbed(text []byte) int {
	for i, l := range bytes.Split(text, []byte("\n")) {
		if indent := l[:len(l)-len(bytes.TrimLeft(l, " \t"))]; bytes.ContainsRune(indent, '\t') {
			return i + 1
		}
	}
	return 0
}

// Bounds of what aliases may unfold to and how deep a file may nest.
const (
	maxNodes = 50_000
	maxDepth = 50
)

// resolver copies a parsed tree and resolves what stands for something else.
type resolver struct {
	decoder
	nodes   int
	tooMuch bool // one of the bounds was met, so the tree is not whole
}

func (r *resolver) resolve(n *yaml.Node, path string, depth int) *yaml.Node {
	r.nodes--
	if r.nodes < 0 || depth > maxDepth {
		r.tooMuch = true
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Line: n.Line}
	}
	switch n.Kind {
	case yaml.AliasNode:
		return r.resolve(n.Alias, path, depth+1)
	case yaml.SequenceNode:
		out := &yaml.Node{Kind: n.Kind, Tag: n.Tag, Line: n.Line}
		for i, c := range n.Content {
			out.Content = append(out.Content, r.resolve(c, fmt.Sprintf("%s[%d]", path, i), depth+1))
		}
		return out
	case yaml.MappingNode:
		return r.mapping(n, path, depth)
	default:
		out := &yaml.Node{Kind: yaml.ScalarNode, Tag: n.ShortTag(), Value: n.Value, Line: n.Line}
		text, changed, ok := r.expand(n, path)
		if !ok {
			out.Value, out.Tag = "", "!!null" // so that only the expansion is reported
		} else if changed {
			out.Value, out.Tag = text, "!!str"
			if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0 {
				out.Tag = (&yaml.Node{Kind: yaml.ScalarNode, Value: text}).ShortTag()
			}
			r.doc.hide(out)
		}
		return out
	}
}

// mapping resolves the keys and values of n. A key of its own wins over a
// merged one, whatever their order.
func (r *resolver) mapping(n *yaml.Node, path string, depth int) *yaml.Node {
	out := &yaml.Node{Kind: n.Kind, Tag: n.Tag, Line: n.Line}
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, val := n.Content[i], n.Content[i+1]
		for key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		if key.Kind != yaml.ScalarNode {
			r.report(n.Content[i], "a key must be a word, found "+r.found(key))
			continue
		}
		if key.Tag == "!!merge" {
			merged = append(merged, r.resolve(val, path, depth+1))
			continue
		}
		if old := lookup(out, key.Value); old != nil {
			r.report(n.Content[i], fmt.Sprintf("the key %q stands twice, first in line %d", join(path, key.Value), old.Line))
			continue
		}
		out.Content = append(out.Content,
			&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key.Value, Line: key.Line},
			r.resolve(val, join(path, key.Value), depth+1))
	}
	for _, m := range merged {
		r.merge(out, m)
	}
	return out
}

// merge adds the keys of from, a mapping or a list of them, that into lacks.
func (r *resolver) merge(into, from *yaml.Node) {
	switch from.Kind {
	case yaml.SequenceNode:
		for _, c := range from.Content {
			r.merge(into, c)
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(from.Content); i += 2 {
			if lookup(into, from.Content[i].Value) == nil {
				into.Content = append(into.Content, from.Content[i], from.Content[i+1])
			}
		}
	default:
		r.report(from, "\"<<\" takes a block of keys, or a list of them")
	}
}

func (r *resolver) report(n *yaml.Node, text string) {
	line, prefix := r.doc.placed(r.doc.placeOf(n))
	r.problems = append(r.problems, problem{line, prefix + text})
}

// expand replaces ${NAME} and ${NAME:-default} in a scalar; $${ stands for a
// plain ${. changed tells whether there was anything to replace, ok whether that
// was possible.
func (r *resolver) expand(n *yaml.Node, path string) (text string, changed, ok bool) {
	if !strings.Contains(n.Value, "${") {
		return n.Value, false, true
	}
	var out strings.Builder
	rest := n.Value
	for {
		before, after, ok := strings.Cut(rest, "${")
		if !ok {
			out.WriteString(rest)
			return out.String(), true, true
		}
		if plain, ok := strings.CutSuffix(before, "$"); ok {
			out.WriteString(plain + "${")
			rest = after
			continue
		}
		out.WriteString(before)
		inner, tail, closed := strings.Cut(after, "}")
		name, fallback, hasFallback := strings.Cut(inner, ":-")
		if !closed || !isVariable(name) {
			r.report(n, path+": expected ${NAME} or ${NAME:-default}; for a plain \"${\" write \"$${\"")
			return "", true, false
		}
		value := r.doc.env(name)
		switch {
		case value == "" && !hasFallback:
			r.report(n, fmt.Sprintf("%s: the environment variable %s is not set (if it may be empty, write ${%s:-})", path, name, name))
			return "", true, false
		case value == "":
			value = fallback
		}
		out.WriteString(value)
		rest = tail
	}
}

// isVariable reports whether s can name an environment variable.
func isVariable(s string) bool {
	for i, c := range []byte(s) {
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// hide keeps the text of n out of messages.
func (doc *document) hide(n *yaml.Node) {
	if doc.expanded == nil {
		doc.expanded = map[*yaml.Node]bool{}
	}
	doc.expanded[n] = true
}

// addSecret remembers a secret and tells who listens.
func (doc *document) addSecret(s string) {
	if s == "" || slices.Contains(doc.secrets, s) {
		return
	}
	doc.secrets = append(doc.secrets, s)
	if doc.onSecret != nil {
		doc.onSecret(s)
	}
}

// lookup returns the value of key in a mapping, or nil.
func lookup(mapping *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	return nil
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
