package webchat

import (
	"bytes"
	"html"
	"regexp"
	"sync"

	"github.com/microcosm-cc/bluemonday"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/renderer"
	goldhtml "github.com/yuin/goldmark/renderer/html"
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

func (m *markdown) html(text string) string {
	m.once.Do(m.build)
	var buf bytes.Buffer
	if err := m.md.Convert([]byte(text), &buf); err != nil {
		return "<p>" + html.EscapeString(text) + "</p>"
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
			renderer.WithNodeRenderers(util.Prioritized(imageLinks{}, 100)),
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

// imageLinks shows an image as a link to it: a page that loaded pictures from
// anywhere would tell strangers when and where it is read.
type imageLinks struct{}

// RegisterFuncs tells goldmark that imageLinks renders images.
func (l imageLinks) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindImage, l.render)
}

func (imageLinks) render(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	image := n.(*ast.Image)
	if insideLink(n) || goldhtml.IsDangerousURL(image.Destination) {
		return ast.WalkContinue, nil // its description alone
	}
	if !entering {
		_, err := w.WriteString("</a>")
		return ast.WalkContinue, err
	}
	_, _ = w.WriteString(`<a href="`) // a BufWriter keeps its first error
	_, _ = w.Write(util.EscapeHTML(util.URLEscape(image.Destination, true)))
	_, err := w.WriteString(`">`)
	if n.FirstChild() == nil && err == nil {
		_, err = w.Write(util.EscapeHTML(image.Destination))
	}
	return ast.WalkContinue, err
}

func insideLink(n ast.Node) bool {
	for p := n.Parent(); p != nil; p = p.Parent() {
		if p.Kind() == ast.KindLink {
			return true
		}
	}
	return false
}
