package browser

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
)

// hostile are texts that try to become something else in a page, in a terminal or in the eye of a reader. Each sets pwned, or
// asks another host.
var hostile = []string{
	`<script>window.pwned = 1</script>`,
	`<img src="/none" onerror="window.pwned = 1">`,
	`"><svg onload="window.pwned = 1"></svg>`,
	`' autofocus onfocus='window.pwned = 1`,
	`</pre></code></textarea></title></template></details><script>window.pwned = 1</script>`,
	`<iframe srcdoc="<script>parent.pwned = 1</script>"></iframe><object data="http://elsewhere.example/"></object>`,
	`<style>* { display: none !important }</style><link rel="stylesheet" href="http://elsewhere.example/a.css">`,
	`<meta http-equiv="refresh" content="0;url=http://elsewhere.example/"><base href="http://elsewhere.example/">`,
	`<form action="http://elsewhere.example/"><button>give</button></form>`,
	`<a href="javascript:window.pwned = 1">inner</a>`,
	`[go](javascript:window.pwned=1) [go](JaVaScRiPt&#58;window.pwned=1) [go](<java` + "\t" + `script:window.pwned=1>)`,
	`[go](data:text/html,<script>opener.pwned=1</script>) [go](vbscript:pwned) <javascript:window.pwned=1>`,
	`![pixel](http://elsewhere.example/pixel.png) ![ref][p]` + "\n\n[p]: http://elsewhere.example/ref.png",
	"![pixel](//elsewhere.example/pixel.png \"title\" onerror=\"pwned\")",
	"red \x1b[31mred\x1b[0m \x1b]8;;http://elsewhere.example/\x07link\x1b]8;;\x07 \x1b]0;title\x07 \u009b31m bell\x07",
	"bidi \u202egnp.exe\u202c \u2066a\u2069 \u200fb \u061c",
	"null \x00 \ufffd \ufeff \u2028 \u2029 \r\b",
	`{{.Title}} ${window.pwned = 1} <%= 1 %> {% raw %}`,
	"```html\n<script>window.pwned = 1</script>\n```\n<!-- comment -->\n| a | b |\n|--|--|\n| <script>window.pwned = 1</script> | `<b>` |",
}

// marked returns hostile texts, each behind a word of its own.
func marked(prefix string) (texts, words []string) {
	for i, h := range hostile {
		word := fmt.Sprintf("%s%dq", prefix, i)
		texts, words = append(texts, word+" "+h), append(words, word)
	}
	return texts, words
}

// harmless checks that what a log says is text in the page and nothing else.
func harmless(p *tab) {
	p.t.Helper()
	var found []string
	p.eval(`(() => {
		const found = []
		if (window.pwned !== undefined) found.push('a script of a log has run')
		for (const e of document.body.querySelectorAll('script, iframe, object, embed, base, meta, style, link, frame, portal')) found.push('an element of a log: ' + e.outerHTML.slice(0, 200))
		for (const e of document.querySelectorAll('*')) {
			for (const a of e.attributes) {
				if (a.name.startsWith('on') || a.name === 'style' && e.localName !== 'svg' && !e.closest('.uplot')) found.push('an attribute: ' + e.outerHTML.slice(0, 200))
				if (/^(href|src|action|formaction|data|srcset|poster|background|ping|cite|xlink:href)$/.test(a.name) && !/^(https?|mailto):$/.test(new URL(a.value, location).protocol)) found.push('an address: ' + a.value.slice(0, 200))
			}
		}
		for (const e of document.querySelectorAll('img, source, video, audio, form')) {
			const at = e.src || e.action
			if (at && new URL(at, location).origin !== location.origin) found.push('it would be loaded from elsewhere: ' + at)
		}
		for (const e of document.querySelectorAll('a[href]:not(svg *)')) {
			if (e.origin !== location.origin && !/noreferrer/.test(e.rel)) found.push('a link to elsewhere that says from where: ' + e.outerHTML.slice(0, 200))
		}
		const control = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/
		const walker = document.createTreeWalker(document.documentElement, NodeFilter.SHOW_TEXT)
		for (let n = walker.nextNode(); n; n = walker.nextNode()) {
			const at = n.data.search(control)
			if (at >= 0) found.push('a control character U+' + n.data.charCodeAt(at).toString(16) + ' in ' + n.parentElement.outerHTML.slice(0, 200))
		}
		for (const e of document.querySelectorAll('[title], [aria-label], [value], [alt], [placeholder]')) {
			for (const name of ['title', 'aria-label', 'value', 'alt', 'placeholder']) {
				if (control.test(e.getAttribute(name) ?? '')) found.push('a control character in ' + name + ' of ' + e.outerHTML.slice(0, 200))
			}
		}
		return found.slice(0, 20)
	})()`, &found)
	for _, f := range found {
		p.t.Errorf("%s: %s", p.where(), f)
	}
}

// TestHostileSessionsAreText has hostile texts in every place of a log that a page shows.
func TestHostileSessionsAreText(t *testing.T) {
	t.Parallel()
	p, s := openLogs(t)
	for i, h := range hostile { // lists and figures name folders, branches and models
		place := s.newLog(t, fmt.Sprintf("place-%d", i))
		place.folder, place.branch, place.model = "/home/"+h, h, h
		place.write(place.prompt(h), place.call(h, h, true))
	}
	log := s.newLog(t, "hostile-1")
	prompts, words := marked("prompt")
	for _, text := range prompts {
		log.write(log.prompt(text))
	}
	for _, kind := range []string{"answer", "thought", "command", "result", "failure", "file", "name"} {
		texts, more := marked(kind)
		words = append(words, more...)
		for _, text := range texts {
			switch kind {
			case "answer":
				log.write(log.answer(text))
			case "thought":
				log.write(log.record("assistant", []any{map[string]any{"type": "thinking", "thinking": text}}))
			case "command":
				log.write(log.call(text, "done", false))
			case "result", "failure":
				log.write(log.call("true", text, kind == "failure"))
			case "file":
				log.write(log.use("Edit", map[string]any{"file_path": "/home/ada/" + text, "old_string": "old " + text, "new_string": "new " + text}, "ok"))
			case "name":
				log.write(log.use(text, map[string]any{text: text}, text))
			}
		}
	}
	log.write(log.prompt("the last prompt"))

	p.awaitPage(log.page(), "the last prompt")
	for _, script := range []bool{true, false} {
		if !script {
			p.withoutScript()
		}
		left := map[string]bool{}
		for _, w := range words {
			left[w] = true
		}
		for address, pages := log.page(), 0; address != ""; pages++ {
			if pages > 30 {
				t.Fatal("the pages of the session do not end")
			}
			p.visit(address)
			p.unfold()
			harmless(p)
			text := p.all()
			for w := range left {
				if strings.Contains(text, w) {
					delete(left, w)
				}
			}
			address = p.next()
		}
		for w := range left {
			t.Errorf("%s is not in the pages of the session", w)
		}
	}
	p.picture("session")
	for _, path := range []string{"/", "/?by=project", "/?by=branch", "/sessions", "/tools", "/pipeline", "/pipeline/letters", "/search?q=" + url.QueryEscape("window.pwned"), "/search?q=" + url.QueryEscape(hostile[0])} {
		p.visit(path)
		p.unfold()
		harmless(p)
	}
}

// TestSessionIDOfAnyBytes follows the links to a session whose id tries to be an address, a tag and a path.
func TestSessionIDOfAnyBytes(t *testing.T) {
	t.Parallel()
	p, s := openLogs(t)
	log := s.newLog(t, "any-bytes")
	log.session = `../../x?y=1&z#f%2e%2f;a b'"<b>` + "\u202e\t:\\~"
	log.write(log.prompt("find me by an id of any bytes"), log.answer("found"))
	p.awaitPage("/sessions", "find me by an id of any bytes")
	harmless(p)
	p.choose("table.sessions th a", "find me by an id of any bytes")
	p.until("location.pathname.startsWith('/sessions/claude_code/~')")
	p.shows("found")
	harmless(p)
	p.withoutScript() // the link leads to a page of its own then
	p.follow("#turns article a[href*='/events/']")
	p.shows("Raw record")
	harmless(p)
}

// TestALineOf10MBIsCut has a prompt and an output of a command of that size.
func TestALineOf10MBIsCut(t *testing.T) {
	t.Parallel()
	p, s := openLogs(t)
	log := s.newLog(t, "large-1")
	large := "the begin " + strings.Repeat("<b>0123456789\u202e</b>", 500_000) + " the end"
	log.write(log.prompt(large), log.call("cat large", large, false), log.prompt("behind the large line"))
	p.awaitPage(log.page(), "behind the large line")
	p.shows("the begin <b>0123456789")
	p.bounded()
	harmless(p)
	p.looks("large")
	for _, page := range []string{"/", "/sessions", "/search?q=0123456789", "/tools"} {
		p.visit(page)
		p.bounded()
		harmless(p)
	}
	p.visit(log.page())
	p.withoutScript()
	p.follow("#turns article a[href*='/events/']")
	p.shows("the begin <b>0123456789")
	p.bounded()
	harmless(p)
}
