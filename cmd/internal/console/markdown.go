package console

import (
	"bytes"
	"html/template"
	"slices"
	"sync"

	"github.com/microcosm-cc/bluemonday"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"tributary/cmd/internal/terminal"
)

// markdown makes HTML of Markdown of a log. HTML in the Markdown is text, an image is its name and address as text, and a
// link leads to another site or nowhere: nothing is loaded, and nothing leads into the console.
type markdown struct {
	parser goldmark.Markdown
	policy *bluemonday.Policy
}

// markdownOf returns the HTML of a text in Markdown.
func markdownOf(source string) template.HTML {
	m := newMarkdown()
	source = terminal.Printable(source)
	var b bytes.Buffer
	if err := m.parser.Convert([]byte(source), &b); err != nil { // a buffer takes everything
		return template.HTML("<pre>" + template.HTMLEscapeString(source) + "</pre>") //nolint:gosec // escaped
	}
	return template.HTML(m.policy.SanitizeBytes(b.Bytes())) //nolint:gosec // sanitized
}

// newMarkdown makes the parser and the policy once, when the first session is opened.
var newMarkdown = sync.OnceValue(func() *markdown {
	return &markdown{
		parser: goldmark.New(
			goldmark.WithParser(parser.NewParser(
				parser.WithBlockParsers(without(parser.DefaultBlockParsers(), parser.NewHTMLBlockParser())...),
				parser.WithInlineParsers(without(parser.DefaultInlineParsers(), parser.NewRawHTMLParser())...),
				parser.WithParagraphTransformers(parser.DefaultParagraphTransformers()...),
				parser.WithASTTransformers(util.Prioritized(lowerHeadings{}, 500)),
			)),
			goldmark.WithExtensions(extension.Table, extension.Strikethrough, extension.Linkify),
			goldmark.WithRendererOptions(html.WithHardWraps(), renderer.WithNodeRenderers(util.Prioritized(imageText{}, 100))),
		),
		policy: newPolicy(),
	}
})

// newPolicy returns what of HTML may stay.
func newPolicy() *bluemonday.Policy {
	p := bluemonday.NewPolicy()
	p.AllowElements("p", "br", "hr", "em", "strong", "del", "code", "pre", "ul", "ol", "li", "blockquote", "h4", "h5", "h6",
		"table", "thead", "tbody", "tr", "th", "td")
	p.AllowAttrs("start").Matching(bluemonday.Integer).OnElements("ol")
	p.AllowAttrs("href").OnElements("a")
	p.AllowURLSchemes("http", "https", "mailto")
	p.RequireParseableURLs(true)
	p.AllowRelativeURLs(false)
	p.RequireNoFollowOnLinks(true)
	p.RequireNoReferrerOnLinks(true)
	p.AddTargetBlankToFullyQualifiedLinks(true) // and rel=noopener
	return p
}

// without returns a list of parsers without one.
func without(list []util.PrioritizedValue, parser any) []util.PrioritizedValue {
	return slices.DeleteFunc(list, func(v util.PrioritizedValue) bool { return v.Value == parser })
}

// lowerHeadings puts the headings of a text below those of the page.
type lowerHeadings struct{}

// Transform implements [parser.ASTTransformer].
func (lowerHeadings) Transform(doc *ast.Document, _ text.Reader, _ parser.Context) {
	_ = ast.Walk(doc, func(n ast.Node, _ bool) (ast.WalkStatus, error) { // the function returns no error
		if h, ok := n.(*ast.Heading); ok && h.Level < 4 {
			h.Level = min(h.Level+3, 6)
			return ast.WalkSkipChildren, nil
		}
		return ast.WalkContinue, nil
	})
}

// imageText writes an image as text, because the page of a log loads nothing.
type imageText struct{}

// RegisterFuncs implements [renderer.NodeRenderer].
func (imageText) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindImage, func(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering {
			_, err := w.WriteString("[image: ")
			return ast.WalkContinue, err
		}
		destination := n.(*ast.Image).Destination
		_, err := w.WriteString(" <code>" + template.HTMLEscapeString(string(destination)) + "</code>]")
		return ast.WalkContinue, err
	})
}
