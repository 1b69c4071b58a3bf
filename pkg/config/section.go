package config

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"gopkg.in/yaml.v3"
)

// Section is a part of the configuration that only its reader understands, such
// as a channel's. The zero value is an empty section without a name.
type Section struct {
	name string
	kind string
	path string
	doc  *document
	node *yaml.Node // a mapping without the key "type"
}

// ParseSection reads a section from YAML text, as if it stood under
// channels.<name> in a file. It is for tests and for programs that bring their
// own configuration; there is no environment.
func ParseSection(name, text string) (Section, error) {
	doc := &document{file: name, dir: ".", env: func(string) string { return "" }}
	root, err := doc.parse([]byte(text))
	if err != nil {
		return Section{}, err
	}
	d := decoder{doc: doc, problems: doc.problems}
	s := doc.section(name)
	if root != nil {
		s = d.section(root, join("channels", name))
	}
	return s, d.err()
}

// Name returns the section's key: for a channel, the name of the instance.
func (s Section) Name() string { return s.name }

// Type returns the section's "type", or its name if it has none.
func (s Section) Type() string { return s.kind }

// Decode fills the struct into points to. Keys that are absent leave what is
// there, so into comes with its defaults. The rules are those of the whole
// file: unknown keys and values of the wrong kind are an *Error with file and
// line. Supported are structs with yaml tags (",inline" included), maps with
// text keys, lists, text, numbers, booleans, Secret, time.Duration and
// encoding.TextUnmarshaler. More tags say what is asked of a field: enum:"a,b"
// (one of these texts), minimum:"0", and required:"why" for one that must not
// be left empty, with the words for whoever forgot it. If the struct is a
// Validator it is asked as well, once everything has the right kind. Not for
// concurrent use with other sections of the same configuration.
func (s Section) Decode(into any) error {
	v := reflect.ValueOf(into)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return errors.New("config: decode a section into a pointer to a struct")
	}
	if s.doc == nil {
		return nil
	}
	d := decoder{doc: s.doc}
	d.decode(s.node, s.path, into)
	if v, ok := into.(Validator); ok && len(d.problems) == 0 {
		v.Validate(s.name, func(key, format string, args ...any) {
			d.problems = append(d.problems, s.problem(key, format, args...))
		})
	}
	return d.err()
}

// Validator is a struct that checks what its tags cannot say.
type Validator interface {
	// Validate is called after decoding. name is the section's; wrong reports a
	// mistake in the value of a key, in words that repeat no secret.
	Validate(name string, wrong func(key, format string, args ...any))
}

// Errorf returns an *Error about a key of the section ("" for the section
// itself), with the place where it stands. What it says about a value must not
// repeat a secret.
func (s Section) Errorf(key, format string, args ...any) error {
	if s.doc == nil {
		return newError("%s: %s", key, fmt.Sprintf(format, args...))
	}
	d := decoder{doc: s.doc, problems: []problem{s.problem(key, format, args...)}}
	return d.err()
}

func (s Section) problem(key, format string, args ...any) problem {
	path := s.path
	if key != "" {
		path = join(path, key)
	}
	if _, ok := s.doc.places[path]; !ok { // absent: name it, but point at the section
		if s.doc.places == nil {
			s.doc.places = map[string]place{}
		}
		s.doc.places[path] = s.doc.places[s.path]
	}
	d := decoder{doc: s.doc}
	d.add(path, format, args...)
	return d.problems[0]
}

// section returns an empty section of the type it is named after.
func (doc *document) section(name string) Section {
	return Section{name: name, kind: name, path: join("channels", name), doc: doc, node: &yaml.Node{Kind: yaml.MappingNode}}
}

// section takes n apart into its type and the rest.
func (d *decoder) section(n *yaml.Node, path string) Section {
	name := path[strings.LastIndexByte(path, '.')+1:]
	s := Section{name: name, kind: name, path: path, doc: d.doc, node: &yaml.Node{Kind: yaml.MappingNode, Line: n.Line}}
	d.note(n, path)
	if isNull(n) {
		return s
	}
	if n.Kind != yaml.MappingNode {
		d.expected(n, path, "keys and values")
		return s
	}
	if v := d.doc.varOf[n]; v != "" {
		d.doc.varOf[s.node] = v
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value != "type" {
			s.node.Content = append(s.node.Content, n.Content[i], n.Content[i+1])
			continue
		}
		d.note(n.Content[i+1], join(path, "type"))
		if text, ok := d.text(n.Content[i+1], join(path, "type")); ok && text != "" {
			s.kind = text
		}
	}
	return s
}
