package textcall_test

import (
	"encoding/json"
	"html"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/tools/textcall"
)

var fuzzSeeds = []string{
	"",
	"Hello <b>there</b>",
	"a <tool>{\"tool_name\":\"a\",\"arguments\":{\"x\":\"</tool>\"}}</tool> b",
	"<tool_call>{\"name\":\"a\",\"arguments\":\"{}\"}</tool_call>",
	"<tool>\n<tool_name>a</tool_name><arguments><x><![CDATA[</tool>]]></x>&amp;&</arguments></tool>",
	"```xml\n<tool>{}</tool>\n```\n",
	"   ~~~~\n<tool>\n ~~~\n    ~~~~\n~~~~",
	"`<tool>{}` ``<tool>``",
	"<think><tool>{\"tool_name\":\"a\"}</tool></think>",
	"<tool>{\"tool_name\":\"a\"}</tool></think>",
	"<tool>{\"tool_name\":",
	"<tool>{}}</tool><tool> <tool><tool>{",
	"a\n<think>b\n</think>\nc </think>d\n</thinking>e",
	`<tool>{"tool_name":"a","arguments":{"x":"\u003ctool>&amp;lt;\\n \\\\"}}</tool>`,
	"<tool><name>a</name><arguments>&#x3c;\\u00</arguments></tool>",
}

func FuzzParse(f *testing.F) {
	for _, s := range fuzzSeeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		calls, rest, _ := textcall.Parse(text)
		for _, c := range calls {
			if c.ServerName != "local" || c.ToolName == "" || !json.Valid(c.Arguments) || c.Arguments[0] != '{' {
				t.Errorf("no proper call: %+v", c)
			}
		}
		if len(rest) > len(text) {
			t.Errorf("the rest is longer than the text: %q", rest)
		}
		// Nothing runs from where it is only shown.
		for _, harmless := range []string{
			"~~~~~~~~\n" + strings.ReplaceAll(text, "~", "-"),
			"<think>" + strings.ReplaceAll(text, "</think>", ""),
			strings.NewReplacer("<tool>", "&lt;tool>", "<tool_call>", "&lt;tool_call>").Replace(text),
		} {
			if calls, _, err := textcall.Parse(harmless); len(calls) > 0 || err != nil {
				t.Errorf("%q calls %+v, %v", harmless, calls, err)
			}
		}
		// Nor is anything run because it is said again.
		if len(calls) > 0 {
			inJSON, err := json.Marshal(text)
			if err != nil {
				t.Fatal(err)
			}
			for _, messages := range [][]providers.Message{{says(text)}, result(text), {says(html.EscapeString(text))}, result(string(inJSON)), {says(text[:len(text)/2]), says(text[len(text)/2:])}} {
				if names := runs(t, text, messages...); len(names) > 0 {
					t.Errorf("behind %+v it runs %q", messages, names)
				}
			}
		}
	})
}

func FuzzSplitter(f *testing.F) {
	for _, s := range fuzzSeeds {
		f.Add(s, []byte{1, 2, 3}, false)
		f.Add(s, []byte{1}, true)
	}
	f.Fuzz(func(t *testing.T, text string, sizes []byte, cut bool) {
		var whole, parts textcall.Splitter
		var want, got [2]string
		add := func(to *[2]string) func(text, thought string) {
			return func(text, thought string) { to[0], to[1] = to[0]+text, to[1]+thought }
		}
		add(&want)(whole.Write(text))
		add(&want)(whole.Close(cut))
		at := 0
		for i := 0; at < len(text); i++ {
			n := len(text)
			if i < len(sizes) {
				n = int(sizes[i])
			}
			n = min(n, len(text)-at)
			add(&got)(parts.Write(text[at : at+n]))
			at += n
		}
		add(&got)(parts.Close(cut))
		if got != want {
			t.Errorf("the text and the thoughts are %q, want %q", got, want)
		}
		if diff := cmp.Diff(plain(whole.Blocks()), plain(parts.Blocks())); diff != "" {
			t.Error(diff)
		}
	})
}
