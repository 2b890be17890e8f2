package browser

import (
	"testing"

	"github.com/chromedp/chromedp/kb"
)

// TestKeysOfEveryPage goes through the views by the keys that each page takes.
func TestKeysOfEveryPage(t *testing.T) {
	t.Parallel()
	p := openSamples(t)
	p.visit("/")
	p.press(kb.Tab)
	p.until("document.activeElement.innerText === 'Skip to content'")
	p.press(kb.Enter)
	p.until("document.activeElement.localName === 'main'")
	for _, view := range []struct{ key, path string }{{"s", "/sessions"}, {"t", "/tools"}, {"p", "/pipeline"}, {"o", "/"}} {
		p.press("g")
		p.press(view.key)
		p.until("location.pathname === " + quoted(view.path) + " && document.readyState === 'complete'")
		p.until("document.querySelector('header nav [aria-current=page]').pathname === " + quoted(view.path))
	}
	p.press("?")
	p.shows("search or filter")
}

// TestEveryViewWithoutAScript opens the views where the browser runs no script.
func TestEveryViewWithoutAScript(t *testing.T) {
	t.Parallel()
	p := openSamples(t)
	p.withoutScript()
	p.visit("/")
	for _, view := range []string{"/sessions", "/search", "/tools", "/pipeline", "/"} {
		p.follow("header nav a[href=\"" + view + "\"]")
		p.until("location.pathname === " + quoted(view))
		p.require("structure")
	}
}
