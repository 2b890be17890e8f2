package browser

import (
	"context"
	"strconv"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// choose clicks on the first element of a selector with a text, and returns when the page behind it is loaded.
func (p *tab) choose(selector, text string) {
	p.t.Helper()
	found := "[...document.querySelectorAll(" + quoted(selector) + ")].find((e) => e.checkVisibility() && e.innerText.trim() === " + quoted(text) + ")"
	p.until(found)
	p.leave("choose "+text, func(ctx context.Context, s *chromedp.Target) (chromedp.Void, error) {
		_, err := chromedp.Evaluate[bool](found+".click() ?? true")(ctx, s)
		return chromedp.Void{}, err
	})
}

// rowsOfSessions is how many sessions the list shows.
const rowsOfSessions = "document.querySelectorAll('table.sessions tbody tr').length"

// TestOverviewOfSamples chooses other bars and one model, by links that change the address.
func TestOverviewOfSamples(t *testing.T) {
	t.Parallel()
	for _, script := range []bool{true, false} {
		p := openSamples(t)
		if !script {
			p.withoutScript()
		}
		p.visit("/?since=2026-03-01&until=2026-03-15&tz=UTC")
		p.until("document.getElementById('bars').innerText.startsWith('Cost by ')")
		p.shows("claude-opus-4-5-20251101", "$0.55+")
		p.until("(document.querySelector('#chart canvas') !== null) === " + strconv.FormatBool(script))
		p.until("document.getElementById('chart-table').checkVisibility() === " + strconv.FormatBool(!script))
		p.choose("nav[aria-label=Figure] a", "Tokens")
		p.until("document.getElementById('bars').innerText.startsWith('Tokens by ')")
		p.choose("nav[aria-label='Divided by'] a", "Agent")
		p.until("document.getElementById('values').innerText.toLowerCase() === 'by agent'")
		p.choose("#values-table tbody a", "codex")
		p.until("new URL(location).searchParams.get('source') === 'codex' && new URL(location).searchParams.get('since') === '2026-03-01'")
		p.until("document.querySelectorAll('#values-table tbody tr').length === 1 && document.querySelector('.chips').innerText.includes('codex')")
	}
}

// TestListOfSamples sorts and filters the list, and opens a session by the keyboard.
func TestListOfSamples(t *testing.T) {
	t.Parallel()
	for _, script := range []bool{true, false} {
		p := openSamples(t)
		if !script {
			p.withoutScript()
		}
		p.visit("/sessions")
		p.until(rowsOfSessions + " === 26")
		p.shows("Fix Transfer crediting the wrong account")
		const costs = "[...document.querySelectorAll('table.sessions td[data-label=Cost]')].map((td) => +(/[\\d.]+/.exec(td.innerText) ?? 0))"
		p.choose("table.sessions thead a", "Cost")
		p.until("document.querySelector('th[aria-sort=descending]')?.innerText === 'Cost' && " + costs + ".every((c, i, all) => i === 0 || c <= all[i - 1])")
		p.visit("/sessions?source=codex")
		p.until(rowsOfSessions + " > 0 && [...document.querySelectorAll('table.sessions tbody tr')].every((r) => r.innerText.includes('codex'))")
		p.visit("/sessions?title=Transfer+crediting")
		p.until(rowsOfSessions + " === 1")
		p.eval("document.querySelector('table.sessions tbody a').focus()", nil)
		p.leave("open the session", chromedp.KeyEvent(kb.Enter))
		p.until("location.pathname === " + quoted(ledgerSession))
		p.shows("TestTransfer fails since the last commit")
	}
}

// TestSearchOfSamples finds a text, and follows a hit to its event.
func TestSearchOfSamples(t *testing.T) {
	t.Parallel()
	for _, script := range []bool{true, false} {
		p := openSamples(t)
		if !script {
			p.withoutScript()
		}
		p.visit("/search")
		p.enter("#q", "ErrInsufficient"+kb.Enter)
		p.until("location.search.includes('q=ErrInsufficient') && document.querySelectorAll('#hits li').length > 0")
		p.until("[...document.querySelectorAll('#hits mark')].every((m) => m.innerText === 'ErrInsufficient')")
		p.shows("Everything was searched")
		p.follow("#hits li a")
		p.until("location.pathname.startsWith('/sessions/') && location.pathname.includes('/events/')")
		p.shows("Raw record")
		p.visit("/search?q=thereisnosuchword")
		p.shows("0 hits", "Everything was searched")
	}
}

// TestSearchGoesOn finds more than a page shows: the rest comes by a live stream, or with the next pages without a script.
func TestSearchGoesOn(t *testing.T) {
	t.Parallel()
	// A search finds parts of words, so neither name is in the other.
	for name, script := range map[string]bool{"live": true, "paged": false} {
		p, s := openLogs(t)
		if !script {
			p.withoutScript()
		}
		log := s.newLog(t, "found-"+name)
		const prompts = 120
		for n := range prompts {
			log.write(log.prompt("hippopotamus" + name + " number " + strconv.Itoa(n)))
		}
		p.awaitPage(log.page()+"?from=last", "hippopotamus"+name+" number "+strconv.Itoa(prompts-1))
		p.visit("/search?q=hippopotamus" + name)
		const hits = "document.querySelectorAll('#hits li').length"
		p.until(hits + " === 50")
		p.accessible("search-" + name)
		if !script {
			p.follow("#more")
			p.until(hits + " === 50")
			p.follow("#more")
			p.until(hits + " === " + strconv.Itoa(prompts-100))
			p.shows("Everything was searched")
			continue
		}
		p.stay()
		p.click("#more")
		p.until(hits + " === 100 && document.querySelector('#more')?.checkVisibility()")
		p.click("#more")
		p.until(hits + " === " + strconv.Itoa(prompts))
		p.shows("Everything was searched")
		p.stays()
		harmless(p)
	}
}

// TestTitleAndPinAreSet renames a session and pins it, where the console may change things, without a script too.
func TestTitleAndPinAreSet(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]bool{"with": true, "without": false} {
		p, s := openLogs(t)
		if !script {
			p.withoutScript()
		}
		log := s.newLog(t, "named-"+name)
		log.write(log.prompt("a session to name " + name + " a script"))
		list := "/sessions?title=" + name + "+a+script"
		p.awaitPage(list, "a session to name "+name)
		p.follow("table.sessions a.rename")
		p.accessible("title-" + name)
		p.eval("document.querySelector('main form input:not([type=hidden])').value = ''", nil)
		p.leave("name it", chromedp.SendKeys(chromedp.CSS("main form input:not([type=hidden])"), "Named "+name+" a script"+kb.Enter))
		p.awaitPage(list, "Named "+name+" a script")
		p.follow("table.sessions form.pin button")
		p.awaitPage(list, "★")
	}
}

// TestPipelineFollows has the pipeline open while a record arrives, and one that cannot be read, which is requeued.
func TestPipelineFollows(t *testing.T) {
	t.Parallel()
	p, s := openLogs(t)
	log := s.newLog(t, "pipeline-1")
	log.write(log.prompt("before"))
	p.awaitPage(log.page(), "before")
	p.visit("/pipeline")
	p.stay()
	p.eval("window.seen = document.querySelector('[data-section=generations] [data-label=Events]').innerText", nil)
	log.write(log.prompt("after"))
	p.until("document.querySelector('[data-section=generations] [data-label=Events]').innerText !== window.seen")
	p.stays()
	p.accessible("pipeline")

	log.write([]byte(`{"type":"user","sessionId":"pipeline-1",oops <script>window.pwned = 1</script>`+"\n"), log.prompt("behind it"))
	p.awaitPage("/pipeline/letters", "malformed")
	harmless(p)
	p.accessible("letters")
	p.follow("main th a")
	p.shows("oops <script>window.pwned = 1</script>")
	harmless(p)
	p.accessible("letter")
	p.follow("main a.primary")
	p.accessible("confirm")
	p.follow("form.confirm button")
	p.settled()
}

// TestToolsOfSamples follows a tool to the search and a failing command to its event.
func TestToolsOfSamples(t *testing.T) {
	t.Parallel()
	for _, script := range []bool{true, false} {
		p := openSamples(t)
		if !script {
			p.withoutScript()
		}
		p.visit("/tools")
		p.until("+document.querySelector('#tools tr[data-row=Bash] td').innerText > 0")
		p.until("document.querySelector('[aria-labelledby=commands]').innerText.includes('go test ./...')")
		p.until("document.querySelector('[aria-labelledby=files]').innerText.includes('ledger.go')")
		p.follow("[aria-labelledby=commands] td a")
		p.shows("Raw record")
		p.visit("/tools?source=codex")
		p.until("document.querySelector('#tools tr[data-row=Bash]') === null && document.querySelectorAll('#tools tbody tr').length > 0")
		p.follow("#tools tbody a")
		p.until("location.pathname === '/search' && new URL(location).searchParams.get('source') === 'codex'")
	}
}
