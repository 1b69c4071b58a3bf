package config

import (
	"encoding"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// decoder fills Go values from a resolved tree and collects what is wrong. It
// knows structs (yaml tags, ",inline"), maps with text keys, lists, scalars,
// Secret, Section, time.Duration and encoding.TextUnmarshaler. A key that is
// absent or empty leaves the value that was there.
type decoder struct {
	doc      *document
	problems []problem
}

// defaulter is an element of a map that starts from something else than zero.
type defaulter interface{ setDefaults() }

// decode fills into, a pointer, from n.
func (d *decoder) decode(n *yaml.Node, path string, into any) {
	d.value(n, path, reflect.ValueOf(into).Elem())
}

func (d *decoder) value(n *yaml.Node, path string, out reflect.Value) {
	d.note(n, path)
	switch into := out.Addr().Interface().(type) {
	case *Section:
		*into = d.section(n, path)
		return
	case defaulter:
		into.setDefaults()
	}
	if isNull(n) {
		return
	}
	switch into := out.Addr().Interface().(type) {
	case *Secret:
		d.secret(n, path, into)
		return
	case *time.Duration:
		d.duration(n, path, into)
		return
	case encoding.TextUnmarshaler:
		if text, ok := d.text(n, path); ok {
			if err := into.UnmarshalText([]byte(text)); err != nil {
				d.expected(n, path, err.Error())
			}
		}
		return
	}
	switch out.Kind() {
	case reflect.Struct:
		d.structure(n, path, out)
	case reflect.Map:
		d.mapping(n, path, out)
	case reflect.Slice:
		d.list(n, path, out)
	case reflect.Pointer:
		out.Set(reflect.New(out.Type().Elem()))
		d.value(n, path, out.Elem())
	case reflect.Interface:
		if err := n.Decode(out.Addr().Interface()); err != nil {
			d.expected(n, path, "a value")
		}
	default:
		d.scalar(n, path, out)
	}
}

// note remembers where the value at path stands.
func (d *decoder) note(n *yaml.Node, path string) {
	if d.doc.places == nil {
		d.doc.places = map[string]place{}
	}
	d.doc.places[path] = d.doc.placeOf(n)
}

// expected reports that n is not what belongs there.
func (d *decoder) expected(n *yaml.Node, path, what string) {
	d.note(n, path)
	d.add(path, "expected %s, found %s", what, d.found(n))
}

// found says what n is, without giving away what came from the environment.
func (d *decoder) found(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "keys and values"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "nothing"
	case d.doc.expanded[n]:
		return "something else"
	}
	text := []rune(n.Value)
	if len(text) > 40 {
		text = append(text[:40], '…')
	}
	return strconv.Quote(string(text))
}

// field is one key a struct understands, and what its tags ask of the value.
type field struct {
	name  string
	index []int
	tag   reflect.StructTag
}

// fieldsOf lists the keys of a struct type, those of inlined structs included.
func fieldsOf(t reflect.Type) []field {
	var out []field
	for f := range t.Fields() {
		name, opts, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case name == "-" || !f.IsExported() && !f.Anonymous:
			continue
		case opts == "inline" && f.Type.Kind() == reflect.Struct:
			for _, in := range fieldsOf(f.Type) {
				out = append(out, field{in.name, append([]int{f.Index[0]}, in.index...), in.tag})
			}
			continue
		case name == "":
			name = strings.ToLower(f.Name)
		}
		out = append(out, field{name, f.Index, f.Tag})
	}
	return out
}

func (d *decoder) structure(n *yaml.Node, path string, out reflect.Value) {
	if n.Kind != yaml.MappingNode {
		d.expected(n, path, "keys and values")
		return
	}
	known := fieldsOf(out.Type())
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, val := n.Content[i], n.Content[i+1]
		at := -1
		for j, f := range known {
			if f.name == key.Value {
				at = j
			}
		}
		if at < 0 {
			d.unknownKey(key, path, known)
			continue
		}
		before := len(d.problems)
		d.value(val, join(path, key.Value), out.FieldByIndex(known[at].index))
		if len(d.problems) == before && !isNull(val) {
			d.tags(known[at], val, join(path, key.Value), out.FieldByIndex(known[at].index))
		}
	}
	for _, f := range known {
		if what := f.tag.Get("required"); what != "" && out.FieldByIndex(f.index).IsZero() {
			d.missing(path, f.name, what)
		}
	}
}

// tags checks a value against the tags enum and minimum of its field.
func (d *decoder) tags(f field, n *yaml.Node, path string, v reflect.Value) {
	if list := f.tag.Get("enum"); list != "" && v.Kind() == reflect.String {
		if words := strings.Split(list, ","); !slices.Contains(words, v.String()) {
			d.expected(n, path, strings.Join(words, " or "))
		}
	}
	low, err := strconv.ParseFloat(f.tag.Get("minimum"), 64)
	if err != nil {
		return
	}
	if v.CanInt() && float64(v.Int()) < low || v.CanFloat() && v.Float() < low {
		d.expected(n, path, fmt.Sprintf("a value of at least %v", low))
	}
}

// missing reports that the struct at path lacks a key it cannot do without, at
// the place of the struct if the key is nowhere.
func (d *decoder) missing(path, key, what string) {
	at := join(path, key)
	if _, ok := d.doc.places[at]; !ok {
		d.doc.places[at] = d.doc.places[path]
	}
	d.add(at, "is missing: %s", what)
}

func (d *decoder) unknownKey(key *yaml.Node, path string, known []field) {
	names := make([]string, len(known))
	for i, f := range known {
		names[i] = f.name
	}
	line, prefix := d.doc.placed(d.doc.placeOf(key))
	text := fmt.Sprintf("%sunknown key %q", prefix, key.Value)
	if path != "" {
		text += " in " + path
	}
	if n := nearest(key.Value, names); n != "" {
		text += fmt.Sprintf(": did you mean %q?", n)
	} else {
		text += ": known here are " + strings.Join(names, ", ")
	}
	d.problems = append(d.problems, problem{line, text})
}

func (d *decoder) mapping(n *yaml.Node, path string, out reflect.Value) {
	if n.Kind != yaml.MappingNode {
		d.expected(n, path, "keys and values")
		return
	}
	if out.IsNil() {
		out.Set(reflect.MakeMap(out.Type()))
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i].Value
		val := reflect.New(out.Type().Elem()).Elem()
		d.value(n.Content[i+1], join(path, key), val)
		out.SetMapIndex(reflect.ValueOf(key).Convert(out.Type().Key()), val)
	}
}

// list fills a slice. A list of texts may also be one text with commas, which
// is how an environment variable writes it.
func (d *decoder) list(n *yaml.Node, path string, out reflect.Value) {
	items := n.Content
	switch {
	case n.Kind == yaml.ScalarNode && out.Type().Elem().Kind() == reflect.String:
		items = nil
		for part := range strings.SplitSeq(n.Value, ",") {
			if part = strings.TrimSpace(part); part != "" {
				item := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: part, Line: n.Line}
				if d.doc.expanded[n] {
					d.doc.hide(item)
				}
				if v := d.doc.varOf[n]; v != "" {
					d.doc.varOf[item] = v
				}
				items = append(items, item)
			}
		}
	case n.Kind != yaml.SequenceNode:
		d.expected(n, path, "a list")
		return
	}
	list := reflect.MakeSlice(out.Type(), len(items), len(items))
	for i, item := range items {
		at := fmt.Sprintf("%s[%d]", path, i)
		if isNull(item) {
			d.expected(item, at, "a value")
			continue
		}
		d.value(item, at, list.Index(i))
	}
	out.Set(list)
}

// text returns the text of a scalar, as it is written.
func (d *decoder) text(n *yaml.Node, path string) (string, bool) {
	if n.Kind != yaml.ScalarNode {
		d.expected(n, path, "text")
		return "", false
	}
	return n.Value, true
}

func (d *decoder) scalar(n *yaml.Node, path string, out reflect.Value) {
	what, err := "", error(nil)
	text := n.Value
	if n.Kind != yaml.ScalarNode {
		text = ""
	}
	switch out.Kind() {
	case reflect.String:
		if text, ok := d.text(n, path); ok {
			out.SetString(text)
		}
		return
	case reflect.Bool:
		what = "true or false"
		var v bool
		v, err = parseBool(text)
		out.SetBool(v)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		what = "a whole number"
		var v int64
		v, err = strconv.ParseInt(text, 10, out.Type().Bits())
		out.SetInt(v)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		what = "a whole number, 0 or more"
		var v uint64
		v, err = strconv.ParseUint(text, 10, out.Type().Bits())
		out.SetUint(v)
	case reflect.Float32, reflect.Float64:
		what = "a number"
		var v float64
		v, err = strconv.ParseFloat(text, out.Type().Bits())
		if math.IsNaN(v) || math.IsInf(v, 0) {
			err = strconv.ErrRange
		}
		out.SetFloat(v)
	default:
		d.add(path, "cannot be set from a file")
	}
	if err != nil {
		d.expected(n, path, what)
	}
}

// parseBool reads the words YAML knows for true and false.
func parseBool(text string) (bool, error) {
	switch strings.ToLower(text) {
	case "true", "yes", "on":
		return true, nil
	case "false", "no", "off":
		return false, nil
	}
	return false, strconv.ErrSyntax
}

func (d *decoder) duration(n *yaml.Node, path string, into *time.Duration) {
	v, err := parseDuration(n.Value)
	if err != nil || n.Kind != yaml.ScalarNode {
		d.expected(n, path, "a time with its unit, such as 90s, 1h30m or 7d")
		return
	}
	*into = v
}

// parseDuration reads what time.ParseDuration does, and whole days.
func parseDuration(text string) (time.Duration, error) {
	count, isDays := strings.CutSuffix(text, "d")
	if !isDays {
		return time.ParseDuration(text)
	}
	const most = 100 * 365 // a time.Duration ends at 292 years
	n, err := strconv.Atoi(count)
	if err != nil || n < -most || n > most {
		return 0, strconv.ErrSyntax
	}
	return time.Duration(n) * 24 * time.Hour, nil
}

// maxSecretFile bounds the file a "file:" value names.
const maxSecretFile = 64 << 10

// secret reads a secret, from the file it names if it begins with "file:".
func (d *decoder) secret(n *yaml.Node, path string, into *Secret) {
	if n.Kind == yaml.ScalarNode {
		d.doc.hide(n)
	}
	text, ok := d.text(n, path)
	if !ok {
		return
	}
	if name, ok := strings.CutPrefix(text, "file:"); ok {
		if text, ok = d.secretFile(name, path); !ok {
			return
		}
	}
	// A line break that came along with the variable or the file is not part
	// of the secret.
	text = strings.TrimSpace(text)
	*into = Secret(text)
	d.doc.addSecret(text)
}

func (d *decoder) secretFile(name, path string) (string, bool) {
	name, err := expandHome(name, d.doc.env)
	if err != nil {
		d.add(path, "%v", err)
		return "", false
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(d.doc.dir, name)
	}
	info, err := os.Stat(name)
	var text []byte
	if err == nil && info.Mode().IsRegular() && info.Size() <= maxSecretFile {
		text, err = os.ReadFile(name)
	}
	switch {
	case os.IsNotExist(err):
		d.add(path, "there is no file %s", name)
	case err != nil:
		d.add(path, "the file %s cannot be read", name)
	case len(strings.TrimSpace(string(text))) == 0:
		d.add(path, "the file %s holds no secret: it is empty, too large or not a plain file", name)
	default:
		return string(text), true
	}
	return "", false
}
