package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestReaderThatGoesAwayEndsTheCommand closes the pipe of standard output after some lines, as
// head does: the command cleans up and ends without a word, as a program that SIGPIPE ends.
func TestReaderThatGoesAwayEndsTheCommand(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "0b6a7f58.jsonl")
	var text strings.Builder
	for i := range 2000 { // more than a pipe holds
		text.WriteString(strings.Replace(hello, "u1", "u"+strconv.Itoa(i), 1))
	}
	write(t, log, text.String())
	for name, args := range map[string][]string{
		"up":        {"up", "--samples", "--once", "--listen", ""},
		"up serves": {"up", "--samples", "--listen", ""},
		"normalize": {"normalize", log},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			temp := t.TempDir()
			out, in, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			if _, err := unix.FcntlInt(in.Fd(), unix.F_SETPIPE_SZ, 4096); err != nil { // less than the output
				t.Fatal(err)
			}
			p := startWith(t, func(c *exec.Cmd) {
				c.Stdout = in
				c.Env = append(c.Env, "TMPDIR="+temp)
			}, t.TempDir(), "", args...)
			in.Close()
			lines := bufio.NewReader(out)
			for range 3 {
				if line, err := lines.ReadString('\n'); err != nil {
					t.Fatalf("%q, %v\n%s", line, err, &p.stderr)
				}
			}
			out.Close()
			if code := p.wait(); code != exitPipe {
				t.Errorf("exit code %d, want %d\n%s", code, exitPipe, &p.stderr)
			}
			if strings.Contains(p.stderr.String(), "tributary:") {
				t.Errorf("an error is printed:\n%s", &p.stderr)
			}
			if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

// TestHangupRemovesTheSamples closes the terminal of a running up.
func TestHangupRemovesTheSamples(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	near, far := openTerminal(t)
	// A process inherits that SIGHUP is ignored, as it is below nohup, but not that it is caught.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP)
	defer signal.Stop(caught)
	p := startWith(t, func(c *exec.Cmd) {
		c.Stdout = far
		c.Env = append(c.Env, "TMPDIR="+temp)
	}, t.TempDir(), "", "up", "--samples", "--listen", "")
	far.Close()
	var shown buffer
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = io.Copy(&shown, near) // ends with an error when the process does
	}()
	p.awaitLogged("the server runs until Ctrl-C")
	if code := p.signal(syscall.SIGHUP); code != 0 {
		t.Errorf("exit code %d after SIGHUP\n%s", code, &p.stderr)
	}
	<-over
	if !strings.Contains(shown.String(), "TOKENS") {
		t.Errorf("no table of the sessions:\n%s", &shown)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
