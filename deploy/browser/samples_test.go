package browser

import (
	"net/http"
	"testing"
)

// TestSamplesInEveryView opens each view of the samples in every look.
func TestSamplesInEveryView(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{
		"overview": "/", "sessions": "/sessions", "search": "/search?q=TestTransfer", "tools": "/tools", "pipeline": "/pipeline",
		"session": ledgerSession,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := openSamples(t)
			p.visit(path)
			p.accessible(name)
		})
	}
}

// ledgerSession is the address of the longest session of the samples.
const ledgerSession = "/sessions/claude_code/6a1f2c9e-3b5d-4e70-9c84-1d2f6b8a7e53"

// TestAnAddressOfNothingIsAPage opens addresses that name nothing.
func TestAnAddressOfNothingIsAPage(t *testing.T) {
	t.Parallel()
	p := openSamples(t)
	p.expectStatus(http.StatusNotFound, true)
	for path, says := range map[string]string{
		"/nothing": "there is no such page", "/sessions/claude_code/nothing": "there is no such session", "/sessions/claude_code/nothing/events/none": "there is no such",
		ledgerSession + "/events/none": "there is no such event", "/static/0/app.css": "there is no such file",
	} {
		p.visit(path)
		p.shows("Not Found", says)
		p.require("structure")
		p.require("contrast")
	}
	p.picture("not-found")
}
