package browser

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

//go:embed checks.js
var checks string

// tab is a tab of the browser on one site. What goes wrong in it fails the test: a message or an exception on the
// console, a violation of the Content-Security-Policy, a request to another host, an answer of 400 or above, a dialog.
type tab struct {
	t    *testing.T
	ctx  context.Context //nolint:containedctx // it is the tab
	site string          // such as http://127.0.0.1:8080

	mu       sync.Mutex
	problems []string
	expected map[int64]bool // statuses of 400 or above
}

// open opens a tab for the pages of a site, 1280 pixels wide and light.
func open(t *testing.T, site string) *tab {
	t.Helper()
	p := &tab{t: t, site: strings.TrimSuffix(site, "/"), expected: map[int64]bool{}}
	ctx, closeTab := chromedp.NewContext(browserOf(t), chromedp.WithNewBrowserContext(), chromedp.WithListener(p.note))
	t.Cleanup(closeTab)
	// The first use of a context may not have an end of its own: the tab closes with it.
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("open a tab: %v", err)
	}
	p.ctx = ctx
	p.do("watch the page", func(ctx context.Context, s *chromedp.Target) (chromedp.Void, error) {
		if _, err := cdp.Call(ctx, s, audits.Enable, cdp.Empty{}); err != nil {
			return chromedp.Void{}, err
		}
		_, err := cdp.Call(ctx, s, network.Enable, network.EnableParams{})
		return chromedp.Void{}, err
	})
	p.look("light", 1280)
	t.Cleanup(p.finish)
	return p
}

// finish takes the last picture, and reports what went wrong.
func (p *tab) finish() {
	if p.t.Failed() {
		p.picture("failed")
	}
	p.eval("0", nil) // what the page caused has arrived before the answer
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, problem := range p.problems {
		p.t.Error(problem)
	}
}

// note keeps what goes wrong.
func (p *tab) note(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	bad := func(format string, values ...any) { p.problems = append(p.problems, fmt.Sprintf(format, values...)) }
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		var words []string
		for _, a := range e.Args {
			words = append(words, string(a.Value)+a.Description)
		}
		bad("console.%s: %s", e.Type, strings.Join(words, " "))
	case *runtime.EventExceptionThrown:
		bad("an exception that nothing catches: %s", exception(e.ExceptionDetails))
	case *log.EventEntryAdded:
		if e.Entry.Source == "network" && e.Entry.NetworkRequestID != "" {
			return // the answer itself is judged
		}
		bad("message of the browser: %s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL)
	case *audits.EventIssueAdded:
		if e.Issue.Code == "GenericIssue" || e.Issue.Code == "BounceTrackingIssue" {
			return // advice on forms, and on what a test does to the history
		}
		details, err := json.Marshal(e.Issue.Details)
		if err != nil {
			details = []byte(err.Error())
		}
		bad("issue of the browser: %s %s", e.Issue.Code, details)
	case *network.EventRequestWillBeSent:
		if !p.ours(e.Request.URL) {
			bad("a request to another host: %.200s", e.Request.URL)
		}
	case *network.EventWebSocketCreated:
		bad("a web socket: %s", e.URL)
	case *network.EventResponseReceived:
		if e.Response.Status >= 400 && !p.expected[e.Response.Status] {
			bad("%d for %s", e.Response.Status, e.Response.URL)
		}
	case *page.EventJavascriptDialogOpening:
		bad("a dialog: %s", e.Message)
		go func() { // a listener may not call the browser
			_, _ = chromedp.Call(p.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{Accept: true})
		}()
	}
}

func exception(d *runtime.ExceptionDetails) string {
	text := d.Text
	if d.Exception != nil {
		text += " " + d.Exception.Description
	}
	return text
}

// ours reports whether an address is of the site, or loads nothing.
func (p *tab) ours(address string) bool {
	return strings.HasPrefix(address, p.site+"/") || strings.HasPrefix(address, "data:image/") || address == "about:blank"
}

// expectStatus allows answers with a status of 400 or above, or forbids them again.
func (p *tab) expectStatus(status int64, allowed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expected[status] = allowed
}

// run runs an action that needs an end.
func run[T any](p *tab, what string, a chromedp.Action[T]) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, a)
	if err != nil {
		p.t.Fatalf("%s: %v", what, err)
	}
	return value
}

func (p *tab) do(what string, a chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	run(p, what, a)
}

// call sends one command of the protocol.
func call[P, R any](p *tab, command cdp.Command[P, R], params P) R {
	p.t.Helper()
	return run(p, command.Method, func(ctx context.Context, s *chromedp.Target) (R, error) { return cdp.Call(ctx, s, command, params) })
}

// visit loads the page at a path, and returns when its load event has fired.
func (p *tab) visit(path string) {
	p.t.Helper()
	p.do("open "+path, chromedp.Navigate(p.site+path))
}

// withoutScript switches JavaScript off for the pages that are loaded after that.
func (p *tab) withoutScript() {
	p.t.Helper()
	call(p, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
}

// eval evaluates an expression in the page, and decodes its value unless into is nil.
func (p *tab) eval(expression string, into any) {
	p.t.Helper()
	what := expression
	if len(what) > 200 {
		what = what[:200] + "..." // an error behind a whole script is not seen
	}
	value := run(p, "evaluate "+what, chromedp.Evaluate[json.RawMessage]("JSON.stringify("+expression+") ?? 'null'"))
	if into == nil {
		return
	}
	var text string
	if err := json.Unmarshal(value, &text); err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
}

// until waits until an expression is true in the page, which may be another one meanwhile.
func (p *tab) until(expression string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	look := time.NewTicker(30 * time.Millisecond)
	defer look.Stop()
	for {
		is, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("Boolean("+expression+")"))
		if is {
			return
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			p.t.Fatalf("it never is: %s (%v)\n%s", expression, err, short(p.text()))
		}
	}
}

// text returns the text of the page that a person sees.
func (p *tab) text() string {
	p.t.Helper()
	var text string
	p.eval("document.body.innerText", &text)
	return text
}

// shows waits until the page shows each of the texts.
func (p *tab) shows(texts ...string) {
	p.t.Helper()
	for _, text := range texts {
		p.until("document.body.innerText.includes(" + quoted(text) + ")")
	}
}

// all returns the text of the page, also what is folded.
func (p *tab) all() string {
	p.t.Helper()
	var text string
	p.eval("document.body.textContent", &text)
	return text
}

// awaitPage loads the page at a path again until it has a text: what is shipped is there in a moment.
func (p *tab) awaitPage(path, text string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	look := time.NewTicker(200 * time.Millisecond)
	defer look.Stop()
	p.expectStatus(http.StatusNotFound, true) // a session that is not there yet
	defer p.expectStatus(http.StatusNotFound, false)
	for p.visit(path); !strings.Contains(p.all(), text); p.visit(path) {
		select {
		case <-look.C:
		case <-ctx.Done():
			p.t.Fatalf("%s never has %q\n%s", path, text, short(p.text()))
		}
	}
}

// settled waits until the copy of the dead letter on the page, which was requeued just now, was read.
func (p *tab) settled() {
	p.t.Helper()
	p.shows("The record was published again: a worker appends its events")
	var letter string
	p.eval("location.pathname", &letter)
	p.awaitPage(letter, "It cannot be requeued: it is settled")
}

// unfold opens all that is folded.
func (p *tab) unfold() {
	p.t.Helper()
	p.eval("document.querySelectorAll('details').forEach((d) => { d.open = true })", nil)
}

// next returns the address of the next page of a list; empty for none.
func (p *tab) next() string {
	p.t.Helper()
	var address string
	p.eval(`(() => { const a = document.querySelector('main a[rel=next]'); return a ? a.pathname + a.search : '' })()`, &address)
	return address
}

// quoted returns a text as an expression.
func quoted(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		return fmt.Sprintf("%q", text)
	}
	return string(b)
}

// short returns the begin of a text.
func short(text string) string {
	if len(text) > 2000 {
		return text[:2000] + "..."
	}
	return text
}

// click clicks on the first element of a CSS selector, when it is visible.
func (p *tab) click(selector string) {
	p.t.Helper()
	p.do("click on "+selector, chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible))
}

// follow clicks on a link or a button, and returns when the page behind it is loaded.
func (p *tab) follow(selector string) {
	p.t.Helper()
	p.leave("follow "+selector, chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible))
}

// leave does what loads another page, and returns when that is loaded.
func (p *tab) leave(what string, a chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	run(p, what, chromedp.WaitEvent(page.LoadEventFired, nil, a))
}

// press presses keys on what has the focus.
func (p *tab) press(keys string) {
	p.t.Helper()
	p.do("press keys", chromedp.KeyEvent(keys))
}

// enter types a text into a field.
func (p *tab) enter(selector, text string) {
	p.t.Helper()
	p.do("type into "+selector, chromedp.SendKeys(chromedp.CSS(selector), text, chromedp.NodeVisible))
}

// look sets the theme, light or dark, and the width of the window.
func (p *tab) look(theme string, width int64) {
	p.t.Helper()
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: theme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
	p.do("set the width", chromedp.EmulateViewport(width, 900))
	// Colours may change by a transition.
	p.until("innerWidth === " + strconv.FormatInt(width, 10) + " && document.getAnimations().every((a) => a.playState !== 'running' || a.effect.getComputedTiming().endTime === Infinity)")
}

// picture stores a picture of the page, where SCREENSHOTS names a folder.
func (p *tab) picture(name string) {
	p.t.Helper()
	folder := os.Getenv("SCREENSHOTS")
	if folder == "" {
		return
	}
	var size struct{ Width, Height float64 }
	p.eval("({width: innerWidth, height: Math.min(3000, Math.max(innerHeight, document.documentElement.scrollHeight))})", &size)
	whole := true
	shot := call(p, page.CaptureScreenshot, page.CaptureScreenshotParams{
		Clip: &page.Viewport{Width: size.Width, Height: size.Height, Scale: 1}, CaptureBeyondViewport: &whole,
	})
	if err := os.MkdirAll(folder, 0o755); err != nil {
		p.t.Fatal(err)
	}
	file := regexp.MustCompile(`[^A-Za-z0-9]+`).ReplaceAllString(p.t.Name()+"-"+name, "-") + ".png"
	if err := os.WriteFile(filepath.Join(folder, file), shot.Data, 0o644); err != nil {
		p.t.Fatal(err)
	}
}

// require fails the test with each problem that a check of the page returns.
func (p *tab) require(check string) {
	p.t.Helper()
	for _, problem := range p.check(check) {
		p.t.Errorf("%s: %s", p.where(), problem)
	}
}

// check returns the problems that a function of checks.js finds.
func (p *tab) check(check string) []string {
	p.t.Helper()
	var problems []string
	p.eval("("+strings.TrimSpace(checks)+")."+check+"()", &problems)
	return problems
}

// where is the path of the page, with its look.
func (p *tab) where() string {
	p.t.Helper()
	var where string
	p.eval("location.pathname + location.search + ' ' + innerWidth + (matchMedia('(prefers-color-scheme: dark)').matches ? ' dark' : ' light')", &where)
	return where
}

// accessible checks the page in every look, by the keyboard, and by what a screen reader reads.
func (p *tab) accessible(name string) {
	p.t.Helper()
	p.require("structure")
	for _, problem := range p.unnamed() {
		p.t.Errorf("%s: %s", p.where(), problem)
	}
	for _, problem := range p.unreachable() {
		p.t.Errorf("%s: %s", p.where(), problem)
	}
	p.looks(name)
}

// looks checks the page in light and dark, wide and narrow.
func (p *tab) looks(name string) {
	p.t.Helper()
	p.eval("scrollTo(0, 0)", nil)
	for _, theme := range []string{"dark", "light"} {
		for _, width := range []int64{400, 1280} {
			p.look(theme, width)
			p.require("width")
			p.require("contrast")
			p.picture(fmt.Sprintf("%s-%s-%d", name, theme, width))
		}
	}
}

// unnamed returns the controls and landmarks that have no name for a screen reader.
func (p *tab) unnamed() []string {
	p.t.Helper()
	roles := []string{
		"button", "link", "textbox", "searchbox", "combobox", "checkbox", "radio", "switch", "slider", "spinbutton", "listbox", "menuitem",
		"tab", "DisclosureTriangle", "dialog", "alertdialog", "image", "img", "meter", "progressbar", "region",
	}
	text := func(v *accessibility.Value) string {
		var s string
		if v != nil {
			_ = json.Unmarshal(v.Value, &s) // other values are no texts
		}
		return s
	}
	var problems []string
	for _, n := range call(p, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{}).Nodes {
		if n.Ignored || !slices.Contains(roles, text(n.Role)) || strings.TrimSpace(text(n.Name)) != "" {
			continue
		}
		problems = append(problems, fmt.Sprintf("a %s has no name: %s", text(n.Role), p.describe(n.BackendDOMNodeID)))
	}
	return problems
}

// describe returns the begin tag of an element.
func (p *tab) describe(id cdp.BackendNodeID) string {
	p.t.Helper()
	node := call(p, dom.DescribeNode, dom.DescribeNodeParams{BackendNodeID: id}).Node
	return fmt.Sprintf("<%s %q>", node.LocalName, node.Attributes)
}

// unreachable walks through the page by the Tab key, from its begin, and returns the controls that the key does not reach or on
// which the focus is invisible.
func (p *tab) unreachable() []string {
	p.t.Helper()
	var path string
	p.eval("location.pathname + location.search", &path)
	p.visit(path) // the walk begins where the page does
	p.check("width")
	var count int
	p.eval("tabs.count()", &count)
	if count == 0 {
		return []string{"the page has no control"}
	}
	for range count + 1 {
		p.press(kb.Tab)
		p.eval("tabs.step()", nil)
	}
	var problems []string
	p.eval("tabs.problems()", &problems)
	return problems
}
