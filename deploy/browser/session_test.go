package browser

import (
	"testing"

	"github.com/chromedp/chromedp/kb"
)

// TestSessionByTheKeys jumps to what failed and to edits, and looks at the raw record beside an event.
func TestSessionByTheKeys(t *testing.T) {
	t.Parallel()
	p := openSamples(t)
	p.visit(ledgerSession)
	p.press("x")
	p.until("document.activeElement.matches('article.failed')")
	p.press("o")
	p.until("!document.activeElement.querySelector('details').open")
	p.press("e")
	p.until("document.activeElement.matches('article.edit')")
	p.eval("window.before = document.activeElement.id", nil)
	p.press("e")
	p.until("document.activeElement.matches('article.edit') && document.activeElement.id !== window.before")
	p.press("E")
	p.until("document.activeElement.id === window.before")
	p.press("r")
	p.until("document.activeElement.matches('#beside .close')")
	p.shows("Raw record", "Its bytes")
	p.require("structure")
	p.press(kb.Escape)
	p.until("document.getElementById('beside').hidden && document.activeElement.matches('a[data-beside]')")
	p.press("t")
	p.until("document.activeElement.matches('section.turn')")
}

// TestAddressOfAnEventOpensIt has the address of the result of a call, which is folded.
func TestAddressOfAnEventOpensIt(t *testing.T) {
	t.Parallel()
	p := openSamples(t)
	p.visit(ledgerSession + "?at=14")
	p.until("location.hash === '#e14' && document.getElementById('e14').closest('article').querySelector('details').open")
	p.click("#turns article.prompt a[data-beside]")
	p.until("!document.getElementById('beside').hidden")
	p.shows("Raw record")
}

// TestPagesOfASessionInEveryLook opens the outline of a session and the page of an event.
func TestPagesOfASessionInEveryLook(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"outline": ledgerSession + "/timeline", "event": ledgerSession + "/events/26c35b33-f0d6-42fd-a4db-921e71a8273a"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := openSamples(t)
			p.visit(path)
			p.accessible("session-" + name)
		})
	}
}

// TestOutlineLeadsIntoTheConversation goes from the outline of a session to an edit and to a turn, without a script too.
func TestOutlineLeadsIntoTheConversation(t *testing.T) {
	t.Parallel()
	for _, script := range []bool{true, false} {
		p := openSamples(t)
		if !script {
			p.withoutScript()
		}
		p.visit(ledgerSession + "/timeline")
		p.shows("Errors", "Edits", "Turns", "TestTransfer fails since the last commit")
		p.until("document.querySelectorAll('ul.marks a.bad').length > 0")
		p.follow("ul.marks a:not(.bad)")
		p.until("document.querySelector('article.edit' + location.hash + ', article.edit:has(' + location.hash + ')') !== null")
		p.visit(ledgerSession + "/timeline")
		p.follow("td.main a")
		p.until("document.querySelector(location.hash).closest('section.turn') !== null")
	}
}
