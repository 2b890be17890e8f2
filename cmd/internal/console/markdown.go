package console

import (
	"bytes"
	"html/template"
	"net/url"
	"slices"
	"sync"

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

// markdownOf returns the HTML of Markdown from a log. HTML in the Markdown becomes text, an image becomes its name and
// address as text, and a link leads to another site or nowhere: nothing is loaded, and no link leads into the console.
func markdownOf(source string) template.HTML {
	source = terminal.Printable(source)
	var b bytes.Buffer
	if err := newMarkdown().Convert([]byte(source), &b); err != nil { // a buffer takes everything
		return template.HTML("<pre>" + template.HTMLEscapeString(source) + "</pre>") //nolint:gosec // escaped
	}
	// The conversion has replaced references such as &#x202e; by their characters.
	return template.HTML(terminal.Printable(b.String())) //nolint:gosec // goldmark and harmless write no script and load nothing
}

// newMarkdown makes the parser and the renderer once, when the first session is opened.
var newMarkdown = sync.OnceValue(func() goldmark.Markdown {
	return goldmark.New(
		goldmark.WithParser(parser.NewParser(
			parser.WithBlockParsers(without(parser.DefaultBlockParsers(), parser.NewHTMLBlockParser())...),
			parser.WithInlineParsers(without(parser.DefaultInlineParsers(), parser.NewRawHTMLParser())...),
			parser.WithParagraphTransformers(parser.DefaultParagraphTransformers()...),
			parser.WithASTTransformers(util.Prioritized(lowerHeadings{}, 500)),
		)),
		goldmark.WithExtensions(extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignNone)), extension.Strikethrough, extension.Linkify),
		goldmark.WithRendererOptions(html.WithHardWraps(), renderer.WithNodeRenderers(util.Prioritized(harmless{}, 100))),
	)
})

// without removes a parser from a list.
func without(list []util.PrioritizedValue, parser any) []util.PrioritizedValue {
	return slices.DeleteFunc(list, func(v util.PrioritizedValue) bool { return v.Value == parser })
}

// lowerHeadings lowers the levels of headings below those of the page.
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

// harmless replaces the renderers of goldmark for images, links and code, which load something, lead somewhere or
// write attributes from the text.
type harmless struct{}

// RegisterFuncs implements [renderer.NodeRenderer].
func (harmless) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindImage, renderImage)
	r.Register(ast.KindLink, renderLink)
	r.Register(ast.KindAutoLink, renderAutoLink)
	r.Register(ast.KindFencedCodeBlock, renderCode)
}

// renderImage writes an image as text.
func renderImage(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		_, err := w.WriteString("[image: ")
		return ast.WalkContinue, err
	}
	destination := n.(*ast.Image).Destination
	_, err := w.WriteString(" <code>" + template.HTMLEscapeString(string(destination)) + "</code>]")
	return ast.WalkContinue, err
}

// renderLink writes a link that [linkTo] allows, and only the text of any other.
func renderLink(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	begin, end := linkTo(util.URLEscape(n.(*ast.Link).Destination, true))
	if entering {
		_, err := w.WriteString(begin)
		return ast.WalkContinue, err
	}
	_, err := w.WriteString(end)
	return ast.WalkContinue, err
}

// renderAutoLink writes an address without link syntax, as a link if [linkTo] allows it.
func renderAutoLink(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	n := node.(*ast.AutoLink)
	address := util.URLEscape(n.URL(source), false)
	if n.AutoLinkType == ast.AutoLinkEmail && !bytes.HasPrefix(address, []byte("mailto:")) {
		address = append([]byte("mailto:"), address...)
	}
	begin, end := linkTo(address)
	_, err := w.WriteString(begin + template.HTMLEscapeString(string(n.Label(source))) + end)
	return ast.WalkContinue, err
}

// linkTo returns the tags of a link to another site or to a mail address, empty for other addresses.
func linkTo(address []byte) (begin, end string) {
	u, err := url.Parse(string(address))
	if err != nil || (u.Scheme != "http" && u.Scheme != "https" || u.Host == "") && u.Scheme != "mailto" {
		return "", ""
	}
	return `<a href="` + template.HTMLEscapeString(u.String()) + `" rel="nofollow noreferrer noopener" target="_blank">`, "</a>"
}

// renderCode writes a block of code without the name of its language.
func renderCode(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	_, err := w.WriteString("<pre><code>" + template.HTMLEscapeString(string(n.Lines().Value(source))) + "</code></pre>\n")
	return ast.WalkContinue, err
}
