package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// sound is a page without a fault.
const sound = `<!doctype html><html lang="en"><head><title>sound</title><link rel="icon" href="data:,">
<link rel="stylesheet" href="/style.css"></head><body>
<nav><a href="/">home</a></nav>
<main><h1>One</h1><h2>Two</h2>
<form><label>name <input name="name" placeholder="any"></label><button>go</button></form>
<details><summary>more</summary><a href="/more">inner</a></details>
<p>3 of 5 wait <meter max="5" value="3" aria-hidden="true"></meter></p>
<p class="muted">text</p></main></body></html>`

const style = `:root { color-scheme: light dark } body { background: light-dark(#fff, #111); color: light-dark(#111, #eee) }
a { color: light-dark(#00c, #9cf) } .muted { color: light-dark(#595959, #aaa) } ::placeholder { color: light-dark(#595959, #aaa) }`

// siteOf serves one page at every path, with a policy like that of the console.
func siteOf(t *testing.T, html, css string) *tab {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:")
		switch r.URL.Path {
		case "/style.css":
			w.Header().Set("Content-Type", "text/css")
			fmt.Fprint(w, css)
		case "/missing":
			http.NotFound(w, r)
		case "/throw.js":
			w.Header().Set("Content-Type", "text/javascript")
			fmt.Fprint(w, `throw new Error("thrown")`)
		case "/log.js":
			w.Header().Set("Content-Type", "text/javascript")
			fmt.Fprint(w, `console.warn("logged"); alert("asked")`)
		default:
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, html)
		}
	}))
	t.Cleanup(server.Close)
	p := open(t, server.URL)
	p.visit("/")
	return p
}

// TestASoundPagePasses lets a page without a fault pass every check.
func TestASoundPagePasses(t *testing.T) {
	t.Parallel()
	p := siteOf(t, sound, style)
	p.accessible("sound")
	p.shows("text")
	p.withoutScript()
	p.visit("/")
	p.shows("text")
}

// TestEachFaultIsFound puts one fault into the page at a time.
func TestEachFaultIsFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change []string // of the page: old and new texts
		style  string   // added
		find   func(p *tab) []string
		want   string
	}{
		"no main":            {change: []string{"<main>", "<div>", "</main>", "</div>"}, find: structure, want: "0 main landmarks"},
		"no navigation":      {change: []string{"<nav>", "<div>", "</nav>", "</div>"}, find: structure, want: "no navigation"},
		"a jump of headings": {change: []string{"h2", "h4"}, find: structure, want: "a heading of level 4 follows one of level 1"},
		"no label":           {change: []string{"<label>name ", "name ", "</label>", ""}, find: structure, want: "no label"},
		"no label of a bar":  {change: []string{` aria-hidden="true"`, ""}, find: structure, want: "no label: body > main > p > meter"},
		"no title":           {change: []string{"sound</title>", "</title>"}, find: structure, want: "no title"},
		"an id twice":        {change: []string{"<h2>", `<p id="a"></p><p id="a"></p><h2>`}, find: structure, want: "2 elements have the id a"},
		"a button of no name": {
			change: []string{"<button>go", "<button>"}, find: func(p *tab) []string { p.t.Helper(); return p.unnamed() },
			want: "a button has no name",
		},
		"pale text":        {style: ".muted { color: #aaa }", find: contrast, want: "of text rgb(170, 170, 170) on #ffffff"},
		"transparent text": {style: ".muted { opacity: 0.5 }", find: contrast, want: "of text"},
		"a pale hint":      {style: "::placeholder { color: #ccc }", find: contrast, want: "of the placeholder"},
		"pale in the dark": {
			style: "@media (prefers-color-scheme: dark) { .muted { color: #444 } }", want: "on #111111",
			find: func(p *tab) []string { p.t.Helper(); p.look("dark", 1280); return contrast(p) },
		},
		"wide": {
			style: ".muted { width: 600px }", want: "wide in a window of 400",
			find: func(p *tab) []string { p.t.Helper(); p.look("light", 400); return p.check("width") },
		},
		"an invisible focus": {style: ":focus { outline: none }", find: keyboard, want: "the focus cannot be seen"},
		"a focus outside the window": {
			change: []string{"<h2>", `<a href="/first" tabindex="1">first</a><h2>`}, style: "nav { position: absolute; top: -900px }",
			find: keyboard, want: "the focus is outside the window",
		},
		"an inline script": {change: []string{"<h2>", `<script>let a</script><h2>`}, find: noted, want: "issue of the browser: ContentSecurityPolicyIssue"},
		"an inline style":  {change: []string{"<h2>", `<h2 style="color: red">`}, find: noted, want: "issue of the browser: ContentSecurityPolicyIssue"},
		"a remote image":   {change: []string{"<h2>", `<img src="http://elsewhere.example/a.png" alt=""><h2>`}, find: noted, want: "Content"},
		"an exception":     {change: []string{"<h2>", `<script src="/throw.js"></script><h2>`}, find: noted, want: "an exception that nothing catches: Uncaught Error: thrown"},
		"a message":        {change: []string{"<h2>", `<script src="/log.js"></script><h2>`}, find: noted, want: `console.warning: "logged"`},
		"a dialog":         {change: []string{"<h2>", `<script src="/log.js"></script><h2>`}, find: noted, want: `a dialog: asked`},
		"a missing file":   {change: []string{"<h2>", `<img src="/missing" alt=""><h2>`}, find: noted, want: "404 for "},
		"a form of another host": {
			change: []string{"<h2>", `<form action="http://elsewhere.example/"><button>leave</button></form><h2>`},
			find: func(p *tab) []string {
				p.t.Helper()
				p.eval("document.forms[0].submit()", nil)
				return noted(p)
			}, want: "a request to another host: http://elsewhere.example/",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			html := strings.NewReplacer(c.change...).Replace(sound)
			if html == sound && c.style == "" {
				t.Fatal("the page has no fault")
			}
			p := siteOf(t, html, style+c.style)
			found := c.find(p)
			p.mu.Lock()
			p.problems = nil // they are expected
			p.mu.Unlock()
			if !strings.Contains(strings.Join(found, "\n"), c.want) {
				t.Errorf("%q is not found, but %q", c.want, found)
			}
		})
	}
}

func structure(p *tab) []string { p.t.Helper(); return p.check("structure") }
func contrast(p *tab) []string  { p.t.Helper(); return p.check("contrast") }
func keyboard(p *tab) []string  { p.t.Helper(); return p.unreachable() }

// noted waits for what the tab notes by itself.
func noted(p *tab) []string {
	p.t.Helper()
	p.eval("0", nil)
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string{}, p.problems...)
}
