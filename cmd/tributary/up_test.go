package main

import (
	"net"
	"path/filepath"
	"strings"
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
