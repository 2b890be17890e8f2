package console

import (
	"strings"
	"testing"

	"golang.org/x/net/html"
)

// TestMarkdownIsHTML has what answers of models are made of.
func TestMarkdownIsHTML(t *testing.T) {
	t.Parallel()
	for markdown, want := range map[string]string{
		"# Plan\n\ntwo *lines*\nof **text**": "<h4>Plan</h4>\n<p>two <em>lines</em><br>\nof <strong>text</strong></p>\n",
		"###### Deep":                        "<h6>Deep</h6>\n",
		"- a\n- b `x<y`":                     "<ul>\n<li>a</li>\n<li>b <code>x&lt;y</code></li>\n</ul>\n",
		"3. three":                           "<ol start=\"3\">\n<li>three</li>\n</ol>\n",
		"```go\nfunc main() {}\n```":         "<pre><code>func main() {}\n</code></pre>\n",
		"~~no~~":                             "<p><del>no</del></p>\n",
		"[page](https://example.com/?a=b&c)": `<p><a href="https://example.com/?a=b&amp;c" rel="nofollow noreferrer noopener" target="_blank">page</a></p>` + "\n",
	} {
		if got := string(markdownOf(markdown)); got != want {
			t.Errorf("%q:\ngot  %q\nwant %q", markdown, got, want)
		}
	}
	if got := string(markdownOf("write to ann@example.com, see https://example.com/a?b=<c>")); !strings.Contains(got, `<a href="mailto:ann@example.com" rel="nofollow noreferrer noopener" target="_blank">ann@example.com</a>`) ||
		!strings.Contains(got, `<a href="https://example.com/a?b=" rel=`) {
		t.Errorf("addresses are %q", got)
	}
	if got := string(markdownOf("|a|b|\n|-|-:|\n|1|2|")); !strings.Contains(got, "<td>1</td>") || strings.Contains(got, "style") {
		t.Errorf("a table is %q", got)
	}
}

// TestHostileMarkdownIsText checks the elements and the attributes of the HTML of texts that try to be more.
func TestHostileMarkdownIsText(t *testing.T) {
	t.Parallel()
	for name, hostile := range map[string]string{
		"a script":                  "<script>alert(1)</script>\n\nx <script src=//evil.example/x.js></script>",
		"an event attribute":        `<img src=x onerror="alert(1)"> and <b onclick=alert(1)>text</b>`,
		"an image":                  "![pixel](https://evil.example/pixel.png \"title\")",
		"an image in a link":        "[![pixel](https://evil.example/p.png)](https://evil.example)",
		"a reference to an image":   "![a][b]\n\n[b]: https://evil.example/p.png",
		"a link with a script":      "[a](javascript:alert(1)) [b](JaVaScRiPt&#58;alert(1)) <javascript:alert(1)> [c](\"data:text/html,<script>\")",
		"a link into the console":   "[a](/tools?x=1) [b](//evil.example/x) [c](../../x) [d](?q) [e](#main)",
		"a link without a host":     "[a](https:tools) [b](http:/tools) [c](https:///tools) [d](http:\\\\tools) <https:tools> [e](mailto:)",
		"a link with references":    "[a](java&#115;cript&colon;alert&lpar;1&rpar;) [b](&#x2f;tools) [c](https&#58;//a.example/\"onclick=alert(1))",
		"a link in an address":      "[https://a.example/\"onmouseover=alert(1)](https://b.example/'\"><script>alert(1)</script>) https://a.example/\"onclick=x",
		"a link of other schemes":   "<vbscript:x> <file:///etc/passwd> <ftp://a.example/x> ftp://a.example/x [a](blob:https://a.example/x) [b](\tjavascript:alert(1)) [c](<java\nscript:alert(1)>)",
		"a title of a link":         "[a](https://a.example \"x\\\" onclick=alert(1) y\") [b]\n\n[b]: https://b.example '\"><script>alert(1)</script>'",
		"a language of code":        "```x\"onclick=alert(1)\ny\n```\n\n~~~ \"><script>alert(1)</script>\nz\n~~~",
		"a table with attributes":   "|a{onclick=x}|<script>alert(1)</script>|\n|:-:|-:|\n|`<b>`|![x](https://evil.example/p.png)|",
		"controls as references":    "a&#x202e;b&#27;[31m&#0;c &#x9b;31m `&#x202e;` [x](https://a.example/&#x202e;)\n\n    &#x202e;",
		"a style":                   "<style>*{display:none}</style><p style='position:fixed'>x</p>",
		"a frame":                   "<iframe src=https://evil.example></iframe><object data=x><embed src=x>",
		"a form":                    "<form action=/login method=post><input name=token><button>Open</button></form>",
		"a comment":                 "<!-- --><script>alert(1)</script> --> <![CDATA[<script>alert(1)</script>]]>",
		"code that ends":            "```\"><script>alert(1)</script>\nx\n```\n\n`</code><script>alert(1)</script>`",
		"a heading with attributes": "# x {#main onclick=alert(1) style=x}",
		"a meta":                    `<meta http-equiv=refresh content="0;url=https://evil.example"><base href=https://evil.example><link rel=stylesheet href=x>`,
		"a terminal escape":         "\x1b]0;title\x07\x1b[2Jx\x9b31m",
		"bidirectional controls":    "abc\u202edef\u2066ghi",
		"an invalid byte":           "a\xffb\x00c",
		"many quotes":               strings.Repeat(">", 8_000) + "x",
		"many brackets":             strings.Repeat("![", 8_000) + strings.Repeat("](x)", 4_000),
		"many marks":                strings.Repeat("*a_ ", 6_000),
		"many backticks":            strings.Repeat("`", 3_000) + " " + strings.Repeat("a`b``", 4_000),
		"a long line":               strings.Repeat("x", 24<<10),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := string(markdownOf(hostile))
			if strings.ContainsAny(got, "\x00\x07\x1b\u009b\u202e\u2066\u2067\u202d") {
				t.Errorf("control characters stay: %.300q", got)
			}
			requireHarmless(t, got, map[string]bool{"href": true, "rel": true, "target": true, "start": true})
			if strings.Contains(name, "script") && strings.Contains(hostile, "<script>alert") && !strings.Contains(got, "&lt;script&gt;") {
				t.Errorf("a reader does not see the text: %.300q", got)
			}
		})
	}
}

// requireHarmless fails if HTML has an element that is no text, another attribute, or a link that is not to another site.
func requireHarmless(t *testing.T, text string, attributes map[string]bool) {
	t.Helper()
	tokens := html.NewTokenizer(strings.NewReader(text))
	for {
		kind := tokens.Next()
		if kind == html.ErrorToken {
			return
		}
		if kind != html.StartTagToken && kind != html.SelfClosingTagToken {
			if kind == html.CommentToken {
				t.Errorf("there is a comment: %.300q", text)
			}
			continue
		}
		tag := tokens.Token()
		switch tag.Data {
		case "script", "style", "img", "iframe", "object", "embed", "form", "input", "button", "meta", "base", "link", "svg", "audio", "video":
			t.Errorf("there is a <%s>: %.300q", tag.Data, text)
		}
		for _, a := range tag.Attr {
			if !attributes[a.Key] {
				t.Errorf("there is the attribute %s=%q", a.Key, a.Val)
			}
			if a.Key != "href" {
				continue
			}
			if !strings.HasPrefix(a.Val, "https://") && !strings.HasPrefix(a.Val, "http://") && !strings.HasPrefix(a.Val, "mailto:") {
				t.Errorf("there is a link to %q", a.Val)
			}
			for _, part := range []string{"nofollow", "noreferrer", "noopener"} {
				if !strings.Contains(attribute(tag, "rel"), part) && !strings.HasPrefix(a.Val, "mailto:") {
					t.Errorf("the link to %q has the rel %q", a.Val, attribute(tag, "rel"))
				}
			}
		}
	}
}

func attribute(tag html.Token, name string) string {
	for _, a := range tag.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}
