package webchat

import (
	"bytes"
	"html"
	"regexp"
	"strings"
	"sync"

	"github.com/microcosm-cc/bluemonday"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/renderer"
	goldhtml "github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// markdown turns Markdown into HTML that is safe to show. It has two walls: the
// renderer passes no HTML of the text on, and the sanitiser lets only the
// elements below through, whatever the renderer did. It is built when the
// first answer is shown. Safe for concurrent use.
type markdown struct {
	once   sync.Once
	md     goldmark.Markdown
	policy *bluemonday.Policy
}

func (m *markdown) html(source string) string {
	m.once.Do(m.build)
	var buf bytes.Buffer
	if err := m.md.Convert([]byte(source), &buf); err != nil {
		return "<p>" + html.EscapeString(source) + "</p>"
	}
	return m.policy.SanitizeReader(&buf).String()
}

func (m *markdown) build() {
	m.md = goldmark.New(
		goldmark.WithExtensions(
			extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute)),
			extension.Strikethrough,
			extension.Linkify,
		),
		goldmark.WithRendererOptions(
			goldhtml.WithHardWraps(), // people and models break lines where they mean it
			renderer.WithNodeRenderers(util.Prioritized(plain{}, 100)),
		),
	)
	p := bluemonday.NewPolicy()
	p.AllowElements("p", "br", "hr", "strong", "em", "del", "blockquote", "pre", "ul", "li",
		"h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr")
	p.AllowAttrs("start").Matching(bluemonday.Integer).OnElements("ol")
	p.AllowElements("ol")
	p.AllowAttrs("class").Matching(regexp.MustCompile(`^language-[A-Za-z0-9_+#.-]{1,32}$`)).OnElements("code")
	p.AllowElements("code")
	p.AllowAttrs("align").Matching(regexp.MustCompile(`^(left|right|center)$`)).OnElements("th", "td")
	p.AllowElements("th", "td")
	p.AllowAttrs("href").OnElements("a")
	p.AllowURLSchemes("http", "https", "mailto")
	p.RequireParseableURLs(true)
	p.RequireNoFollowOnLinks(true)
	p.RequireNoReferrerOnLinks(true)
	p.AddTargetBlankToFullyQualifiedLinks(true) // and with it rel="noopener"
	m.policy = p
}

// plain renders what the page shows in its own way, so that no word is lost
// and nothing is loaded from elsewhere: an image is a link to it (a page that
// loads pictures tells strangers when and where it is read), a link that leads
// nowhere a browser should go shows its target as text, and so does HTML.
type plain struct{}

// RegisterFuncs tells goldmark what plain renders.
func (p plain) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindLink, p.link)
	r.Register(ast.KindImage, p.image)
	r.Register(ast.KindRawHTML, p.rawHTML)
	r.Register(ast.KindHTMLBlock, p.htmlBlock)
}

func (plain) link(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	writeLink(w, n.(*ast.Link).Destination, entering)
	return ast.WalkContinue, nil
}

func (plain) image(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	dest := n.(*ast.Image).Destination
	switch {
	case insideLink(n): // the description stands for it
	case n.FirstChild() == nil && entering:
		writeLink(w, dest, true)
		_, _ = w.Write(util.EscapeHTML(dest))
	default:
		writeLink(w, dest, entering)
	}
	return ast.WalkContinue, nil
}

// writeLink writes the start or the end of a link. A BufWriter keeps its first
// error until it is flushed.
func writeLink(w util.BufWriter, dest []byte, start bool) {
	safe := leadsOut(dest)
	switch {
	case safe && start:
		_, _ = w.WriteString(`<a href="`)
		_, _ = w.Write(util.EscapeHTML(util.URLEscape(dest, true)))
		_, _ = w.WriteString(`">`)
	case safe:
		_, _ = w.WriteString("</a>")
	case !start && len(dest) > 0:
		_, _ = w.WriteString(" (")
		_, _ = w.Write(util.EscapeHTML(dest))
		_, _ = w.WriteString(")")
	}
}

// leadsOut reports whether dest is an address a browser may be sent to.
func leadsOut(dest []byte) bool {
	scheme, _, ok := bytes.Cut(dest, []byte(":"))
	if !ok {
		return false
	}
	switch strings.ToLower(string(scheme)) {
	case "http", "https", "mailto":
		return true
	}
	return false
}

func insideLink(n ast.Node) bool {
	for p := n.Parent(); p != nil; p = p.Parent() {
		if p.Kind() == ast.KindLink {
			return true
		}
	}
	return false
}

func (plain) rawHTML(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		writeEscaped(w, source, n.(*ast.RawHTML).Segments)
	}
	return ast.WalkSkipChildren, nil
}

func (plain) htmlBlock(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	block := n.(*ast.HTMLBlock)
	_, _ = w.WriteString("<pre><code>")
	writeEscaped(w, source, block.Lines())
	if block.HasClosure() {
		_, _ = w.Write(util.EscapeHTML(block.ClosureLine.Value(source)))
	}
	_, _ = w.WriteString("</code></pre>\n")
	return ast.WalkContinue, nil
}

func writeEscaped(w util.BufWriter, source []byte, segments *text.Segments) {
	for _, s := range segments.Sliced(0, segments.Len()) {
		_, _ = w.Write(util.EscapeHTML(s.Value(source)))
	}
}
