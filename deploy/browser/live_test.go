package browser

import (
	"fmt"
	"testing"
)

// stays fails the test if the page was loaded again after a call of [tab.stay].
func (p *tab) stay() { p.t.Helper(); p.eval("window.stayed = true", nil) }

func (p *tab) stays() {
	p.t.Helper()
	var stayed bool
	if p.eval("window.stayed === true", &stayed); !stayed {
		p.t.Error("the page was loaded again")
	}
}

// TestWhatIsShippedAppearsInOpenPages has a session and the list open while records arrive.
func TestWhatIsShippedAppearsInOpenPages(t *testing.T) {
	t.Parallel()
	session, s := openLogs(t)
	log := s.newLog(t, "live-1")
	log.write(log.prompt("begin the live session"), log.answer("it has begun"))
	session.awaitPage(log.page(), "it has begun")
	session.stay()

	list := open(t, s.site)
	list.awaitPage("/sessions", "begin the live session")
	list.until("document.readyState === 'complete'")
	list.stay()
	const failures = "[...document.querySelectorAll('table.sessions tbody tr')].find((r) => r.innerText.includes('begin the live session')).querySelector('[data-label=Failed]').innerText"
	list.until(failures + " === '0'")

	log.write(log.call("make live-build", "live-build is done", false), log.answer("a second **live** answer"))
	session.shows("make live-build", "a second live answer")
	session.stays()

	log.write(log.call("make live-failure", "it has failed", true))
	list.until(failures + " === '1'")
	other := s.newLog(t, "live-2")
	other.write(other.prompt("another live session"))
	list.until("document.getElementById('changed').checkVisibility()")
	list.stays()
	list.follow("#changed a")
	list.shows("another live session")
	harmless(session)
	harmless(list)
	session.accessible("live-session")
}

// TestASessionOf10000Events opens a long session, which is paged.
func TestASessionOf10000Events(t *testing.T) {
	t.Parallel()
	p, s := openLogs(t)
	log := s.newLog(t, "long-1")
	const rounds = 2500 // of four events
	var lines [][]byte
	for n := range rounds {
		lines = append(lines, log.prompt(fmt.Sprintf("prompt number %d.", n)), log.answer(fmt.Sprintf("answer number %d.", n)),
			log.call(fmt.Sprintf("echo %d", n), fmt.Sprintf("output number %d.", n), n%100 == 99))
	}
	log.write(lines...)
	p.awaitPage(log.page()+"?from=last", fmt.Sprintf("output number %d.", rounds-1))

	p.visit(log.page())
	p.shows("prompt number 0.", "10,000 events")
	p.bounded()
	p.looks("first")
	p.follow("a[rel=next]")
	p.shows("prompt number 75.")
	p.follow("a[rel=prev]")
	p.shows("prompt number 0.")
	p.press("n")
	p.until("location.search !== '' && document.readyState === 'complete'")
	p.visit(log.page() + "/timeline")
	p.bounded()
	p.looks("timeline")
}

// bounded checks that a page has no more than a browser shows at once.
func (p *tab) bounded() {
	p.t.Helper()
	var elements, bytes int
	p.eval("document.querySelectorAll('*').length", &elements)
	p.eval("performance.getEntriesByType('navigation')[0].decodedBodySize", &bytes)
	if elements > 30_000 || bytes > 4<<20 {
		p.t.Errorf("%s: %d elements in %d bytes", p.where(), elements, bytes)
	}
}
