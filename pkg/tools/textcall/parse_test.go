package textcall_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/dragoman-chat/dragoman/pkg/tools/textcall"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func call(name, arguments string) textcall.ToolCall {
	return textcall.ToolCall{ServerName: "local", ToolName: name, Arguments: json.RawMessage(arguments)}
}

func TestParse(t *testing.T) {
	fence := "```"
	for name, tc := range map[string]struct {
		text string
		want []textcall.ToolCall
		rest string
		err  string // part of it
	}{
		"plain text":        {text: " 2 < 3, and <b>bold</b> ", rest: "2 < 3, and <b>bold</b>"},
		"the form":          {text: "<tool>\n{\n  \"server_name\": \"local\",\n  \"tool_name\": \"calculator\",\n  \"arguments\": {\"a\": 15}\n}\n</tool>", want: []textcall.ToolCall{call("calculator", `{"a": 15}`)}},
		"between prose":     {text: "Let me see.<tool>{\"tool_name\":\"a\"}</tool> Wait.", want: []textcall.ToolCall{call("a", "{}")}, rest: "Let me see. Wait."},
		"several":           {text: "<tool>{\"tool_name\":\"a\"}</tool>\n<tool>{\"tool_name\":\"b\"}</tool><tool_call>{\"name\":\"c\"}</tool_call>", want: []textcall.ToolCall{call("a", "{}"), call("b", "{}"), call("c", "{}")}},
		"null arguments":    {text: `<tool>{"tool_name":"a","arguments":null}</tool>`, want: []textcall.ToolCall{call("a", "{}")}},
		"arguments in text": {text: `<tool_call>{"name":"a","arguments":"{\"x\":1}"}</tool_call>`, want: []textcall.ToolCall{call("a", `{"x":1}`)}},
		"tag in a string":   {text: `<tool>{"tool_name":"a","arguments":{"x":"</tool>","y":"</tool></tool>"}}</tool>!`, want: []textcall.ToolCall{call("a", `{"x":"</tool>","y":"</tool></tool>"}`)}, rest: "!"},
		"opening in string": {text: `<tool>{"tool_name":"a","arguments":{"x":"<tool>{}"}}</tool>`, want: []textcall.ToolCall{call("a", `{"x":"<tool>{}"}`)}},
		"large number":      {text: `<tool>{"tool_name":"a","arguments":{"b":12345678901234567890,"a":1.10}}</tool>`, want: []textcall.ToolCall{call("a", `{"b":12345678901234567890,"a":1.10}`)}},
		"not closed":        {text: `Now: <tool>{"tool_name":"a"}`, want: []textcall.ToolCall{call("a", "{}")}, rest: "Now:"},
		"half closed":       {text: "<tool>{\"tool_name\":\"a\"}\n</too", want: []textcall.ToolCall{call("a", "{}")}},
		"closed otherwise":  {text: `<tool>{"tool_name":"a"}</tool_call> then <tool>{"tool_name":"b"}</tool>`, err: "something stands behind"},

		"xml":               {text: "<tool>\n<server_name>local</server_name>\n<tool_name>write</tool_name>\n<arguments><path>a&amp;b &lt;c&gt; & d</path><mode/></arguments>\n</tool>", want: []textcall.ToolCall{call("write", `{"mode":"","path":"a\u0026b \u003cc\u003e \u0026 d"}`)}},
		"xml cdata":         {text: "<tool><tool_name>write</tool_name><arguments><text><![CDATA[a </tool> <b> & ]] c]]></text></arguments></tool>.", want: []textcall.ToolCall{call("write", `{"text":"a \u003c/tool\u003e \u003cb\u003e \u0026 ]] c"}`)}, rest: "."},
		"xml nested":        {text: "<tool><tool_name>a</tool_name><arguments><o><x>1</x></o><l>1</l><l>2</l><l>3</l></arguments></tool>", want: []textcall.ToolCall{call("a", `{"l":["1","2","3"],"o":{"x":"1"}}`)}},
		"xml with json":     {text: "<tool><tool_name>a</tool_name><arguments>{\"x\": 1}</arguments></tool>", want: []textcall.ToolCall{call("a", `{"x": 1}`)}},
		"xml, no arguments": {text: "<tool_call><name>a</name></tool_call>", want: []textcall.ToolCall{call("a", "{}")}},

		"bad json":         {text: `<tool>{"tool_name": "a", "arguments": {x: 1}}</tool> and <tool>{"tool_name":"b"}</tool>`, want: []textcall.ToolCall{call("b", "{}")}, rest: "and", err: "invalid JSON"},
		"a brace missing":  {text: `<tool>{"tool_name":"a","arguments":{}</tool> <tool>{"tool_name":"b"}</tool>`, want: []textcall.ToolCall{call("b", "{}")}, err: "invalid JSON"},
		"a brace too many": {text: `<tool>{"tool_name":"a"}}</tool>x`, rest: "x", err: "invalid JSON"},
		"name of no type":  {text: `<tool>{"tool_name": 5}</tool>`, err: "invalid JSON"},
		"no name":          {text: `<tool>{"arguments":{}}</tool>`, err: "no tool_name"},
		"other server":     {text: `<tool>{"server_name":"mcp","tool_name":"a"}</tool>`, err: `server_name "mcp" is not supported, only "local" is`},
		"list":             {text: `<tool>{"tool_name":"a","arguments":[1]}</tool>`, err: "not a JSON object"},
		"text":             {text: `<tool>{"tool_name":"a","arguments":"x"}</tool>`, err: "not a JSON object"},
		"cut json":         {text: `<tool>{"tool_name":"a","arguments":{"x":"`, err: "not complete"},
		"prose behind":     {text: `<tool>{"tool_name":"a"} Now I wait.`, err: "not closed"},
		"cut xml":          {text: `<tool><tool_name>a</tool_name>`, err: "not closed"},
		"broken xml":       {text: `<tool><tool_name>a</tool_name><arguments><x>1 < 2</x></arguments></tool>`, err: "invalid XML"},
		"deep xml":         {text: "<tool><arguments>" + strings.Repeat("<a>", 50) + "</tool>", err: "elements within each other"},
		"too long":         {text: `<tool>{"tool_name":"a","arguments":{"x":"` + strings.Repeat("x", 300<<10) + `"}}</tool> behind`, err: "longer than 256 KiB"},

		"no block":          {text: "The <tool> tag, <tool>x</tool> and <tool> <b>", rest: "The <tool> tag, <tool>x</tool> and <tool> <b>"},
		"at the end":        {text: "Use <tool>", rest: "Use <tool>"},
		"half a tag":        {text: "Use <too", rest: "Use <too"},
		"in a fence":        {text: "So:\n" + fence + "xml\n<tool>{\"tool_name\":\"a\"}</tool>\n" + fence + "\n<tool>{\"tool_name\":\"b\"}</tool>", want: []textcall.ToolCall{call("b", "{}")}, rest: "So:\n" + fence + "xml\n<tool>{\"tool_name\":\"a\"}</tool>\n" + fence},
		"in a long fence":   {text: "   ~~~~\n~~~\n<tool>{\"tool_name\":\"a\"}</tool>\n~~~~~\n", rest: "~~~~\n~~~\n<tool>{\"tool_name\":\"a\"}</tool>\n~~~~~"},
		"in an open fence":  {text: fence + "\n<tool>{\"tool_name\":\"a\"}</tool>", rest: fence + "\n<tool>{\"tool_name\":\"a\"}</tool>"},
		"in inline code":    {text: "Write `<tool>{\"tool_name\":\"a\"}</tool>` or ``x <tool>{\"tool_name\":\"a\"}</tool>``", rest: "Write `<tool>{\"tool_name\":\"a\"}</tool>` or ``x <tool>{\"tool_name\":\"a\"}</tool>``"},
		"behind inline":     {text: "Use `x`: <tool>{\"tool_name\":\"a\"}</tool>", want: []textcall.ToolCall{call("a", "{}")}, rest: "Use `x`:"},
		"in thoughts":       {text: "<think>I could <tool>{\"tool_name\":\"a\"}</tool></think><tool>{\"tool_name\":\"b\"}</tool>", want: []textcall.ToolCall{call("b", "{}")}},
		"around thoughts":   {text: "First.\n<think>Hm.</think>\nThen.", rest: "First.\n\nThen."},
		"about thoughts":    {text: "The <think> tag: <tool>{\"tool_name\":\"a\"}</tool></think> so", rest: "The <think> tag: <tool>{\"tool_name\":\"a\"}</tool></think> so"},
		"in open thoughts":  {text: "<thinking><tool>{\"tool_name\":\"a\"}</tool></think>"},
		"in early thoughts": {text: "I could\n<tool>{\"tool_name\":\"a\"}</tool>\n</think>\n\nDone.", rest: "Done."},
		"a tag in a line":   {text: "<tool>{\"tool_name\":\"a\"}</tool></think> Done.", rest: "</think> Done."},
		"repeated words":    {text: "You wrote &lt;tool>{\"tool_name\":\"a\"}&lt;/tool>.", rest: "You wrote &lt;tool>{\"tool_name\":\"a\"}&lt;/tool>."},
		"other case":        {text: "<TOOL>{\"tool_name\":\"a\"}</TOOL>", rest: "<TOOL>{\"tool_name\":\"a\"}</TOOL>"},
	} {
		t.Run(name, func(t *testing.T) {
			calls, rest, err := textcall.Parse(tc.text)
			if diff := cmp.Diff(tc.want, calls); diff != "" {
				t.Error(diff)
			}
			if rest != tc.rest {
				t.Errorf("the rest is %q, want %q", rest, tc.rest)
			}
			if (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("the error is %v, want %q in it", err, tc.err)
			}
			inChunks(t, tc.text, 1, false)
			inChunks(t, tc.text, 7, true)
		})
	}
}

// inChunks fails t if a reply in chunks of n bytes comes to something else than
// the whole one.
func inChunks(t *testing.T, text string, n int, cut bool) {
	t.Helper()
	var whole, parts textcall.Splitter
	var want, got [2]string
	add := func(to *[2]string) func(text, thought string) {
		return func(text, thought string) { to[0], to[1] = to[0]+text, to[1]+thought }
	}
	add(&want)(whole.Write(text))
	add(&want)(whole.Close(cut))
	for rest := text; rest != ""; {
		k := min(n, len(rest))
		add(&got)(parts.Write(rest[:k]))
		rest = rest[k:]
	}
	add(&got)(parts.Close(cut))
	if got != want {
		t.Errorf("in chunks of %d the text and the thoughts are %q, want %q", n, got, want)
	}
	if diff := cmp.Diff(plain(whole.Blocks()), plain(parts.Blocks())); diff != "" {
		t.Errorf("in chunks of %d: %s", n, diff)
	}
}

// plain makes blocks comparable.
func plain(blocks []textcall.Block) []string {
	var list []string
	for _, b := range blocks {
		text := b.Call.ServerName + " " + b.Call.ToolName + " " + string(b.Call.Arguments)
		if b.Err != nil {
			text += " " + b.Err.Error()
		}
		list = append(list, text)
	}
	return list
}

// What may be shown is shown at once, and a block never.
func TestSplitterHoldsBackWhatMayBeABlock(t *testing.T) {
	var s textcall.Splitter
	for _, step := range []struct{ chunk, want string }{
		{"Let me ", "Let me "},
		{"see <", "see "},
		{"b> <to", "<b> "},
		{"ol", ""},
		{">\n", ""},
		{`{"tool_name":"a","arguments":{"x":"</tool>`, ""},
		{`"}}</tool> and now`, " and now"},
		{" <tool>", " "},
		{" ", ""},
		{"is a tag\n``", "<tool> is a tag\n"},
		{"`\n<tool>{}</tool>\n``", "```\n<tool>{}</tool>\n"},
		{"`", ""},
		{"\n", "```\n"},
		{"<th", ""},
		{"ink>is <tool>{} </thin", "(is <tool>{} )"},
		{"g></think>end", "end(</thing>)"},
		{"</th", ""},
		{"is", "</this"},
	} {
		got, thought := s.Write(step.chunk)
		if thought != "" {
			got += "(" + thought + ")"
		}
		if got != step.want {
			t.Errorf("behind %q the text is %q, want %q", step.chunk, got, step.want)
		}
	}
	if text, thought := s.Close(false); text != "" || thought != "" {
		t.Errorf("at the end there is %q, %q", text, thought)
	}
	if got := plain(s.Blocks()); !cmp.Equal(got, []string{`local a {"x":"</tool>"}`}) {
		t.Errorf("the blocks are %q", got)
	}
}

func TestSplitterTakesNoPartOfACutReply(t *testing.T) {
	for _, text := range []string{`<tool>{"tool_name":"a"}`, `<tool>{"tool_name":"a"}</too`, `<tool>{"tool_na`, `<tool>  `, `<tool><tool_n`} {
		var s textcall.Splitter
		first, _ := s.Write(text)
		if last, _ := s.Close(true); first+last != "" {
			t.Errorf("%s leaves %q", text, first+last)
		}
		if b := s.Blocks(); len(b) != 1 || b[0].Err == nil {
			t.Errorf("%s gives %q", text, plain(b))
		}
	}
	var s textcall.Splitter
	s.Write(`<tool>{"tool_name":"a"}</tool> and th`)
	s.Close(true)
	if b := s.Blocks(); len(b) != 1 || b[0].Err != nil {
		t.Errorf("a whole block gives %q", plain(b))
	}
}

// A long block that comes in small pieces, full of closing tags, is no work.
func TestSplitterIsNotSlow(t *testing.T) {
	var s textcall.Splitter
	s.Write(`<tool>{"tool_name":"a","arguments":{"x":"`)
	for range 20_000 {
		s.Write("</tool>")
	}
	s.Write(`"}}</tool>`)
	s.Close(false)
	if b := s.Blocks(); len(b) != 1 || b[0].Err != nil {
		t.Errorf("got %d blocks", len(b))
	}
}
