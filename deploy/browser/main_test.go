// Package browser tests the console in a real browser. The program runs as a process, and Chromium is driven over
// its debugging protocol. It is a module of its own, so that the program depends on no driver of a browser.
//
// CHROME names a Chromium that is not at a usual place; where there is none, the tests are skipped. SCREENSHOTS
// names a folder for the pictures that the tests take: look at them when you change a view.
//
//	SCREENSHOTS=/tmp/console go -C deploy/browser test ./... -run Samples -count 1
//
// Every test fails (page_test.go) on a message on the console, an exception that nothing catches, a violation of the
// Content-Security-Policy, a request to another host, an answer of 400 or above, a dialog. checks.js has what every view
// must have. Two processes serve all tests (server_test.go): up --samples, which only reads, and up with a folder. Tests
// wait for a state of the page, never for a time.
//
// A new view gets its address in TestSamplesInEveryView, and what it does in views_test.go; then break the view, and see
// the test fail.
package browser

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// patience limits the wait for an event that must happen.
const patience = 60 * time.Second

// errNoBrowser says that this machine has no Chromium.
var errNoBrowser = errors.New("no Chromium on this machine: install it (apt-get install chromium), or name it by CHROME")

// findChromium returns the path of the browser.
func findChromium() (string, error) {
	if path := os.Getenv("CHROME"); path != "" {
		return exec.LookPath(path)
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errNoBrowser
}

// chromium is the one browser of all tests, each of which has a tab with cookies and a cache of its own. It knows no host but
// this machine.
var chromium = sync.OnceValues(func() (context.Context, error) {
	path, err := findChromium()
	if err != nil {
		return nil, err
	}
	options := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path), chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck,
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("force-color-profile", "srgb"), chromedp.Flag("hide-scrollbars", true),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"), chromedp.Flag("lang", "en-US"),
	}
	for _, off := range []string{
		"quic", "background-networking", "component-update", "sync", "extensions", "breakpad", "default-apps", "domain-reliability",
		"background-timer-throttling", "backgrounding-occluded-windows", "renderer-backgrounding", "client-side-phishing-detection",
	} {
		options = append(options, chromedp.Flag("disable-"+off, true))
	}
	allocator, stopAllocator := chromedp.NewExecAllocator(context.Background(), options...) // its folder is new and temporary
	ctx, stopBrowser := chromedp.NewContext(allocator)
	stop := func() {
		stopBrowser()
		stopAllocator()
	}
	if err := chromedp.Do(ctx); err != nil {
		stop()
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	atEnd(stop)
	return ctx, nil
})

// browserOf returns the browser, and skips the test where there is none.
func browserOf(t *testing.T) context.Context {
	t.Helper()
	ctx, err := chromium()
	if errors.Is(err, errNoBrowser) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return ctx
}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, do := range endings.list {
		do()
	}
	os.Exit(code)
}
