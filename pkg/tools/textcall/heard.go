package textcall

import (
	"bytes"
	"encoding/json"
	"html"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// heardCalls returns the meanings of the blocks in a text that others wrote,
// whatever is around them, a fence too. Each level of disguise is read, since what
// is an escape at one is the end of a string at the next.
func heardCalls(text string, tools []providers.ToolDefinition) map[string]bool {
	calls := make(map[string]bool)
	var undo func(text string, left int)
	undo = func(text string, left int) {
		readCalls(calls, text, tools)
		if left == 0 {
			return
		}
		if plain := html.UnescapeString(text); plain != text {
			undo(plain, left-1)
		}
		if plain := unescaped(text); plain != text {
			undo(plain, left-1)
		}
	}
	undo(strings.ToLower(text), levels)
	return calls
}

var (
	looseTag   = regexp.MustCompile(`<\s*(/?)\s*(\w+)\s*(/?)\s*>`)
	lineMarks  = regexp.MustCompile(`(?m)^[ \t>|]*(?:\d+[ \t]*[:|\t])?[ \t]*`) // of quotations and listings
	looseCDATA = regexp.MustCompile(`(?s)<\s*!\s*\[\s*cdata\s*\[(.*?)\]\s*\]\s*>`)
	opening    = regexp.MustCompile(`<tool(?:_call)?>\s*`)
	closing    = regexp.MustCompile(`</tool(?:_call)?>`)
	inLine     = strings.NewReplacer("\n", " ", "\r", " ", "\t", " ", `\\`, `\\`, `\_`, `_`, `\*`, `*`, `\<`, `<`, `\>`, `>`, `\{`, `{`, `\}`, `}`, `\[`, `[`, `\]`, `]`)
)

// longestField is enough of a block to tell its form.
const longestField = len("<server_name>")

// readCalls adds the blocks of one level, in small letters.
func readCalls(calls map[string]bool, text string, tools []providers.ToolDefinition) {
	if strings.ContainsFunc(text, func(r rune) bool { return r > unicode.MaxASCII }) {
		text = strings.Map(visible, text)
	}
	if !strings.Contains(text, "tool") || !strings.Contains(text, "<") {
		return
	}
	text = looseTag.ReplaceAllString(text, "<$1$2$3>")
	if !opening.MatchString(text) {
		return
	}
	text = looseCDATA.ReplaceAllStringFunc(text, func(s string) string {
		return html.EscapeString(looseCDATA.FindStringSubmatch(s)[1])
	})
	buf := []byte(inLine.Replace(lineMarks.ReplaceAllString(text, "")))
	ends := closing.FindAllIndex(buf, -1)
	for _, at := range opening.FindAllIndex(buf, -1) {
		for len(ends) > 0 && ends[0][0] < at[1] {
			ends = ends[1:]
		}
		body := buf[at[1]:]
		var b Block
		switch new(scan).form(body[:min(len(body), longestField)]) {
		case formJSON:
			raw, end, err := value(body)
			if err != nil || end == 0 {
				continue
			}
			b = fromJSON(raw)
		case formXML:
			if len(ends) > 0 {
				body = buf[at[1]:ends[0][0]]
			}
			b = fromXML(body)
		case formNone, formUnknown:
			continue
		}
		// One for a server that does not exist counts: it may be left out.
		if m, ok := meaning(b.Call, tools); ok {
			calls[m] = true
		}
	}
}

// visible drops what cannot be seen.
func visible(r rune) rune {
	if unicode.In(r, unicode.Cf, unicode.Mn, unicode.Me) {
		return -1
	}
	return r
}

// meaning is the same for calls that do the same, in whatever form they were
// written. Arguments that are empty, or what the tool's schema has as default, are
// as good as none.
func meaning(c ToolCall, tools []providers.ToolDefinition) (string, bool) {
	var arguments map[string]interface{}
	if c.ToolName == "" || decode(c.Arguments, &arguments) != nil {
		return "", false
	}
	name := bare(c.ToolName)
	for i := range tools {
		if bare(tools[i].Function.Name) == name {
			dropDefaults(arguments, tools[i].Function.Parameters)
		}
	}
	return name + " " + canonical(arguments), true
}

func dropDefaults(arguments, schema map[string]interface{}) {
	properties, _ := schema["properties"].(map[string]interface{})
	for key, v := range properties {
		property, _ := v.(map[string]interface{})
		preset, ok := property["default"]
		if !ok {
			continue
		}
		for given, v := range arguments {
			if bare(given) == bare(key) && canonical(v) == canonical(preset) {
				delete(arguments, given)
			}
		}
	}
}

// canonical is the value of an argument without its form: the keys sorted,
// numbers in one notation, and a list of one, or JSON in a text, as what it holds,
// since the XML form knows neither lists nor types.
func canonical(v interface{}) string {
	switch v := v.(type) {
	case nil:
		return ""
	case map[string]interface{}:
		var fields []string
		for key, field := range v {
			if text := canonical(field); text != "" {
				fields = append(fields, bare(key)+":"+text)
			}
		}
		if len(fields) == 0 {
			return ""
		}
		slices.Sort(fields)
		return "{" + strings.Join(fields, ",") + "}"
	case []interface{}:
		items := make([]string, len(v))
		for i := range v {
			items[i] = canonical(v[i])
		}
		return strings.Join(items, ",")
	case string:
		return canonicalText(v)
	}
	return canonicalText(compact(v))
}

func canonicalText(text string) string {
	text = trim(text)
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		return strconv.FormatFloat(n, 'g', -1, 64)
	}
	if strings.HasPrefix(text, "{") || strings.HasPrefix(text, "[") {
		var inner interface{}
		if decode([]byte(text), &inner) == nil {
			return canonical(inner)
		}
	}
	return bare(text)
}

// decode is json.Unmarshal, but keeps numbers that are large.
func decode(data []byte, v interface{}) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return d.Decode(v)
}
