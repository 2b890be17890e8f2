package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"

	"tributary/cmd/internal/terminal"
)

// pager returns a writer to the pager of the user, and a function that waits until the user has left the pager. The
// writer is standard output if that is no terminal, or if there is no pager.
func pager(ctx context.Context, a *app) (w io.Writer, wait func() error) {
	direct := func() error { return nil }
	if !terminal.IsTerminal(a.stdout) {
		return a.stdout, direct
	}
	args := []string{"less"}
	if a.config.Pager != "" {
		args = []string{"sh", "-c", a.config.Pager}
		if runtime.GOOS == "windows" {
			args = strings.Fields(a.config.Pager)
		}
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = a.stdout, os.Stderr
	cmd.Env = append(cmd.Environ(), "LESS="+a.config.Less)
	in, err := cmd.StdinPipe()
	if err != nil {
		return a.stdout, direct
	}
	if err := cmd.Start(); err != nil {
		if a.config.Pager != "" {
			fmt.Fprintf(a.stderr, "shown without a pager: %v\n", err)
		}
		return a.stdout, direct
	}
	signal.Ignore(os.Interrupt) // it belongs to the pager now
	buffered := bufio.NewWriter(in)
	return buffered, func() error {
		_ = buffered.Flush() // fails if the user has left the pager
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("the pager %s: %w: name another one in PAGER", strings.Join(args, " "), err)
		}
		return nil
	}
}
