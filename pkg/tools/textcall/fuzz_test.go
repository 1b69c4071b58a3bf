package textcall_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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
	})
}

func FuzzSplitter(f *testing.F) {
	for _, s := range fuzzSeeds {
		f.Add(s, []byte{1, 2, 3}, false)
		f.Add(s, []byte{1}, true)
	}
	f.Fuzz(func(t *testing.T, text string, sizes []byte, cut bool) {
		var whole, parts textcall.Splitter
		want := whole.Write(text) + whole.Close(cut)
		got, at := "", 0
		for i := 0; at < len(text); i++ {
			n := len(text)
			if i < len(sizes) {
				n = int(sizes[i])
			}
			n = min(n, len(text)-at)
			got += parts.Write(text[at : at+n])
			at += n
		}
		got += parts.Close(cut)
		if got != want {
			t.Errorf("the text is %q, want %q", got, want)
		}
		if diff := cmp.Diff(plain(whole.Blocks()), plain(parts.Blocks())); diff != "" {
			t.Error(diff)
		}
	})
}
