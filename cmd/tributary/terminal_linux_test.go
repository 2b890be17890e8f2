package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tributary/cmd/internal/terminal"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/streams"
)

// TestShipShowsOnATerminalThatTheBrokerIsAway starts ship on a terminal while the broker is away: one
// line shows it, and is cleared in the end.
func TestShipShowsOnATerminalThatTheBrokerIsAway(t *testing.T) {
	t.Parallel()
	near, far := openTerminal(t)
	server := pipelinetest.NewServer(t)
	server.Provision(streams.DefaultTopology())
	server.Stop()
	home := t.TempDir()
	write(t, filepath.Join(home, ".claude", "projects", "app", "0b6a7f58.jsonl"), hello)

	edge := startWith(t, func(c *exec.Cmd) { c.Stderr = far }, home, server.URL(), "ship", "--once")
	far.Close()
	var shown buffer
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = io.Copy(&shown, near) // ends with an error when the process does
	}()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	limit := time.After(patience)
	for !strings.Contains(shown.String(), terminal.ClearLine+"waiting for the broker for 2s") {
		select {
		case <-look.C:
		case <-limit:
			t.Fatalf("the terminal does not show that the broker is away: %q", &shown)
		}
	}
	server.Start()
	if code := edge.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	<-over
	var left []string
	for line := range strings.Lines(shown.String()) {
		if at := strings.LastIndex(line, terminal.ClearLine); at >= 0 {
			line = line[at+len(terminal.ClearLine):]
		}
		left = append(left, strings.TrimSpace(line))
	}
	for i, want := range []string{"broker takes no records", "broker takes records again", "shipped 1 record (", ""} {
		if i >= len(left) && want != "" || i < len(left) && !strings.Contains(left[i], want) {
			t.Errorf("line %d of the terminal is not %q: %q", i, want, left)
		}
	}
	if n := len(left); n > 0 && strings.Contains(strings.Join(left, "\n"), "for 2s") {
		t.Errorf("progress is left: %q", left)
	}
}

// openTerminal opens a terminal: near reads the output of a process that writes to far.
func openTerminal(t *testing.T) (near, far *os.File) {
	t.Helper()
	near, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { near.Close() })
	if err := unix.IoctlSetPointerInt(int(near.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Skip(err)
	}
	n, err := unix.IoctlGetInt(int(near.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Skip(err)
	}
	far, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { far.Close() })
	return near, far
}
