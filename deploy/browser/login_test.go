package browser

import (
	"testing"

	"github.com/chromedp/chromedp/kb"
)

// TestLoginAsksForTheToken has a wrong token refused, and with the right one opens the page that was asked for.
func TestLoginAsksForTheToken(t *testing.T) {
	t.Parallel()
	browserOf(t)
	const token = "0123456789abcdef"
	s, err := startServer(nil, []string{"TRIBUTARY_CONSOLE_TOKEN=" + token}, "up", "--quiet", "--listen", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := open(t, s.site)
	p.expectStatus(401, true)
	p.visit("/tools")
	p.shows("This console asks for its token")
	p.accessible("login")
	p.enter("#token", "not the token"+kb.Enter)
	p.shows("this is not the token")
	p.require("structure")
	p.expectStatus(401, false)
	p.enter("#token", token+kb.Enter)
	p.until("location.pathname === '/tools' && document.querySelector('#token') === null")
	p.shows("Tools")
}
