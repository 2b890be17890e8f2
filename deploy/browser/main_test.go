// Package browser tests the console in a real browser. The program runs as a process, and Chromium is driven over
// its debugging protocol. It is a module of its own, so that the program depends on no driver of a browser.
//
// CHROME names a Chromium that is not at a usual place; where there is none, the tests are skipped. SCREENSHOTS
// names a folder for the pictures that the tests take.
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

// chromium is the one browser of all tests, each of which has a tab with cookies and a cache of its own.
var chromium struct {
	once sync.Once
	ctx  context.Context //nolint:containedctx // it is the browser
	stop func()
	err  error
}

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

// startChromium starts the browser, which knows no host but this machine.
func startChromium() (context.Context, func(), error) {
	path, err := findChromium()
	if err != nil {
		return nil, func() {}, err
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
		return nil, func() {}, fmt.Errorf("start %s: %w", path, err)
	}
	return ctx, stop, nil
}

// browserOf returns the browser, and skips the test where there is none.
func browserOf(t *testing.T) context.Context {
	t.Helper()
	chromium.once.Do(func() { chromium.ctx, chromium.stop, chromium.err = startChromium() })
	if errors.Is(chromium.err, errNoBrowser) {
		t.Skip(chromium.err)
	}
	if chromium.err != nil {
		t.Fatal(chromium.err)
	}
	return chromium.ctx
}

func TestMain(m *testing.M) {
	code := m.Run()
	if chromium.stop != nil {
		chromium.stop()
	}
	for _, do := range endings.list {
		do()
	}
	os.Exit(code)
}
