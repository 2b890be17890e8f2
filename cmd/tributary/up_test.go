package main

import (
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// TestSamplesTakeAFreePort has a program at the port that the broker listens at unless a setting names another.
func TestSamplesTakeAFreePort(t *testing.T) {
	t.Parallel()
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", defaultListen)
	if err != nil {
		t.Skip(err)
	}
	defer taken.Close()
	code, out := ended(start(t, t.TempDir(), "", "up", "--samples", "--quiet"))
	if code != 0 || !strings.Contains(out, "broker at nats://127.0.0.1:") || !strings.Contains(out, ", for 127.0.0.1:4222 is in use, data in ") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	code, out = ended(start(t, t.TempDir(), "", "up", "--once"))
	if code != exitFailure || !strings.Contains(out, "pass --listen 127.0.0.1:0 for any free port") {
		t.Errorf("without samples: exit code %d\n%s", code, out)
	}
}

// TestSamplesKeepANamedConsoleWithoutATerminal has a standard output that is no terminal: samples end by themselves then, unless
// the address of the console is named.
func TestSamplesKeepANamedConsoleWithoutATerminal(t *testing.T) {
	t.Parallel()
	p := start(t, t.TempDir(), "", "up", "--samples", "--listen", "", "--console", "127.0.0.1:0")
	p.awaitLogged("the server runs until Ctrl-C")
	if response, text := page(t, browser(nil), http.MethodGet, consoleOf(p).String()+"sessions"); response.StatusCode != http.StatusOK {
		t.Errorf("status %d: %s", response.StatusCode, text)
	}
	if code := p.signal(syscall.SIGTERM); code != 0 || strings.Contains(p.stderr.String(), "no page is served") {
		t.Errorf("exit code %d\n%s", code, &p.stderr)
	}
}

// TestUpMakesEventsOfAnOlderProgramAgain has the data folder of a program of revision 5: up names the command that goes on with
// it, and that makes the same events once more. It may be repeated.
func TestUpMakesEventsOfAnOlderProgramAgain(t *testing.T) {
	t.Parallel()
	home, dir := t.TempDir(), t.TempDir()
	unpack(t, filepath.Join("testdata", "store-revision-5.tar.gz"), dir)
	log := filepath.Join(home, "log.jsonl")
	write(t, log, hello)
	up := func(want int, args ...string) string {
		t.Helper()
		code, out := ended(start(t, home, "", append([]string{"up", "--once", "--listen", "", "--data", filepath.Join(dir, "store"), log}, args...)...))
		if code != want {
			t.Fatalf("%v: exit code %d, want %d\n%s", args, code, want, out)
		}
		return out
	}
	contains(t, up(exitFailure), "are of revision 5, this program makes those of revision ", "tributary up --replay builds them again")
	out := up(0, "--replay")
	contains(t, out, "building the events of v1 again", "as generation v2", "v2 is live", "tributary replay drop v1", "user_message       hello", "shipped 1 record ")
	if strings.Contains(out, "TestTransfer") {
		t.Errorf("events that are made again are printed:\n%s", out)
	}
	write(t, log, again)
	contains(t, up(0), "user_message       again")
	if out := up(0, "--replay"); strings.Contains(out, "making") {
		t.Errorf("events of this revision are made again:\n%s", out)
	}
}

// TestUpOfMuchEndsWithASummary has more events than a person reads: those of the first records are printed, and at the
// end there are what all sum up to, and what to do next.
func TestUpOfMuchEndsWithASummary(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	var records strings.Builder
	const sessions, each = 40, 15
	for s := range sessions {
		for i := range each {
			fmt.Fprintf(&records, `{"type":"user","uuid":"%d-%d","timestamp":"2026-03-09T09:%02d:%02dZ","sessionId":"s%02d","version":"2.1.1","message":{"role":"user","content":"prompt"}}`+"\n", s, i, s, i, s)
		}
	}
	log := filepath.Join(home, "log.jsonl")
	write(t, log, records.String())
	for _, test := range []struct {
		args          []string
		prints, shown int
	}{{nil, printedAtMost, rowsAtMost}, {[]string{"--all"}, sessions * each, sessions}} {
		code, out := ended(start(t, home, "", append([]string{"up", "--once", "--listen", "", "--data", t.TempDir(), log}, test.args...)...))
		printed, rows := strings.Count(out, " user_message  "), len(regexp.MustCompile(`(?m)^s\d\d +claude_code +\w+ +2026`).FindAllString(out, -1))
		if code != 0 || printed != test.prints || rows != test.shown || !regexp.MustCompile(`(?m)^events +600: user_message 600$`).MatchString(out) {
			t.Errorf("%v: exit code %d, %d events and %d sessions are printed\n%s", test.args, code, printed, rows, out)
		}
		if cut := test.args == nil; strings.Contains(out, "tributary stats --by day,model") != cut || strings.Contains(out, "40: the last 20 are shown") != cut {
			t.Errorf("%v: the end is\n%s", test.args, out[max(0, len(out)-1000):])
		}
	}
}
