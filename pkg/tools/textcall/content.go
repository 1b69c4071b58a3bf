package textcall

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
)

// local is the only server there is.
const local = "local"

var (
	errNoName    = errors.New("the tool block has no tool_name")
	errArguments = errors.New("the arguments are not a JSON object")
)

// quoted adds to an error how the block begins, so that the model knows which
// one is meant.
func quoted(err error, body []byte) error {
	const enough = 60
	head := strings.ToValidUTF8(string(body[:min(len(body), enough)]), "")
	return fmt.Errorf("%w; the block begins with %q", err, trim(head))
}

func trim(s string) string { return strings.TrimSpace(s) }

// fromJSON reads the content of a block, a JSON object. The name is accepted
// under both keys that models know.
func fromJSON(body json.RawMessage) Block {
	var in struct {
		ServerName string          `json:"server_name"`
		ToolName   string          `json:"tool_name"`
		Name       string          `json:"name"`
		Arguments  json.RawMessage `json:"arguments"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return Block{Err: quoted(fmt.Errorf("invalid JSON: %w", err), body)}
	}
	name := in.ToolName
	if name == "" {
		name = in.Name
	}
	return newBlock(in.ServerName, name, in.Arguments, body)
}

func newBlock(server, name string, arguments json.RawMessage, body []byte) Block {
	b := Block{Call: ToolCall{ServerName: local, ToolName: name}, body: string(body)}
	var ok bool
	switch b.Call.Arguments, ok = object(arguments); {
	case name == "":
		b.Err = quoted(errNoName, body)
	case server != "" && server != local:
		b.Err = quoted(fmt.Errorf("server_name %q is not supported, only %q is", server, local), body)
	case !ok:
		b.Err = quoted(errArguments, body)
	}
	return b
}

// object returns arguments as a JSON object: nothing is an empty one, and a text
// that holds one is what it holds.
func object(arguments json.RawMessage) (json.RawMessage, bool) {
	arguments = bytes.TrimSpace(arguments)
	if len(arguments) == 0 || string(arguments) == "null" {
		return json.RawMessage("{}"), true
	}
	if arguments[0] == '"' {
		var inner string
		if json.Unmarshal(arguments, &inner) != nil {
			return nil, false
		}
		arguments = bytes.TrimSpace([]byte(inner))
	}
	return arguments, len(arguments) > 0 && arguments[0] == '{' && json.Valid(arguments)
}

// fromXML reads a block in which elements stand in place of the keys. Every
// value is a text there, or an object if it has elements itself.
func fromXML(body []byte) Block {
	d := xml.NewDecoder(io.MultiReader(strings.NewReader("<tool>"), bytes.NewReader(body), strings.NewReader("</tool>")))
	d.Strict = false // a bare "&" is one
	if _, err := d.Token(); err != nil {
		return Block{Err: quoted(fmt.Errorf("invalid XML: %w", err), body)}
	}
	v, err := element(d, 0)
	fields, _ := v.(map[string]interface{})
	if err != nil {
		return Block{Err: quoted(fmt.Errorf("invalid XML: %w", err), body)}
	}
	name := textField(fields, "tool_name")
	if name == "" {
		name = textField(fields, "name")
	}
	arguments := json.RawMessage(textField(fields, "arguments")) // JSON, perhaps
	if m, ok := fields["arguments"].(map[string]interface{}); ok {
		if arguments, err = json.Marshal(m); err != nil {
			return Block{Err: quoted(err, body)}
		}
	}
	return newBlock(textField(fields, "server_name"), name, arguments, body)
}

func textField(fields map[string]interface{}, key string) string {
	text, _ := fields[key].(string)
	return trim(text)
}

// maxDepth bounds elements within elements.
const maxDepth = 32

// element reads up to the end of an element whose beginning has been read. Of
// elements of the same name there is a list.
func element(d *xml.Decoder, depth int) (interface{}, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("more than %d elements within each other", maxDepth)
	}
	var text strings.Builder
	var fields map[string]interface{}
	for {
		token, err := d.Token()
		if err != nil {
			return nil, err
		}
		switch t := token.(type) {
		case xml.CharData:
			text.Write(t)
		case xml.StartElement:
			v, err := element(d, depth+1)
			if err != nil {
				return nil, err
			}
			if fields == nil {
				fields = make(map[string]interface{})
			}
			put(fields, t.Name.Local, v)
		case xml.EndElement:
			if fields != nil {
				return fields, nil
			}
			return text.String(), nil
		}
	}
}

func put(fields map[string]interface{}, name string, v interface{}) {
	switch old := fields[name].(type) {
	case nil:
		fields[name] = v
	case []interface{}:
		fields[name] = append(old, v)
	default:
		fields[name] = []interface{}{old, v}
	}
}
