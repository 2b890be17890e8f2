package pipelinetest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
)

// Program is what runs in a [Process]: the arguments that it was started with, as JSON,
// and a context that ends when it shall end well. It calls ready when it does its work.
type Program func(ctx context.Context, arguments []byte, ready func()) error

// The environment of a process says which program it runs, and on what.
const (
	programVariable   = "PIPELINETEST_PROGRAM"
	argumentsVariable = "PIPELINETEST_ARGUMENTS"
)

// readyLine is what a process writes when it is ready.
const readyLine = "ready\n"

// RunProgram runs the program that this process was started for, one of programs or a
// node of a [Cluster], and returns its exit code; false when this is no such process.
// A test binary that starts processes calls it first in its TestMain. The end of standard
// input is the end of the program: a process does not outlive the test that started it.
func RunProgram(programs map[string]Program) (code int, is bool) {
	name := os.Getenv(programVariable) //nolint:forbidigo // a test binary that is run again has no other way to know
	if name == "" {
		return 0, false
	}
	program := programs[name]
	if name == nodeProgram {
		program = runNode
	}
	if program == nil {
		fmt.Fprintf(os.Stderr, "no program %q\n", name)
		return 2, true
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	arguments := os.Getenv(argumentsVariable) //nolint:forbidigo // as above
	if err := program(ctx, []byte(arguments), func() { _, _ = os.Stdout.WriteString(readyLine) }); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1, true
	}
	return 0, true
}

// Process is a [Program] in a process of its own: this test binary, run again. The test
// ends it at the latest.
type Process struct {
	tb    testing.TB
	name  string
	cmd   *exec.Cmd
	stdin io.Closer
	said  *output
	ended chan struct{} // closed when it has
}

// patience is how long a process may take for what has to happen.
const patience = 2 * time.Minute

// StartProcess starts a program with arguments, which are marshaled as JSON.
// It does not wait for anything; see [Process.AwaitReady].
func StartProcess(tb testing.TB, program string, arguments any) *Process {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	data, err := json.Marshal(arguments)
	if err != nil {
		tb.Fatal(err)
	}
	p := &Process{tb: tb, name: program, said: newOutput(), ended: make(chan struct{})}
	p.cmd = exec.CommandContext(context.WithoutCancel(tb.Context()), self)
	p.cmd.Env = []string{programVariable + "=" + program, argumentsVariable + "=" + string(data), "TZ=UTC"}
	p.cmd.SysProcAttr = ownGroup()
	p.cmd.Stdout, p.cmd.Stderr = p.said, p.said
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		tb.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // the exit code says it
		close(p.ended)
	}()
	tb.Cleanup(func() {
		_ = p.cmd.Process.Kill() // fails when it has ended
		<-p.ended
	})
	return p
}

// AwaitReady waits until the program says that it is ready, and fails the test when it
// ends before.
func (p *Process) AwaitReady() {
	p.tb.Helper()
	p.AwaitOutput(readyLine)
}

// AwaitOutput waits until the process has written text, and fails the test when it ends
// before.
func (p *Process) AwaitOutput(text string) {
	p.tb.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		all, more := p.said.now()
		if strings.Contains(all, text) {
			return
		}
		select {
		case <-more:
		case <-p.ended:
			if all, _ = p.said.now(); !strings.Contains(all, text) {
				p.tb.Fatalf("%s ended before it said %q:\n%s", p.name, text, all)
			}
		case <-limit.C:
			p.tb.Fatalf("%s does not say %q:\n%s", p.name, text, all)
		}
	}
}

// Output is what the process has written so far, to standard output and standard error.
func (p *Process) Output() string {
	all, _ := p.said.now()
	return all
}

// Running reports whether the process has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// PID is the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Kill ends the process by SIGKILL, in the middle of whatever it does, and waits for its
// end.
func (p *Process) Kill() {
	p.tb.Helper()
	p.signal(syscall.SIGKILL)
	<-p.ended
}

func (p *Process) signal(s syscall.Signal) {
	p.tb.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.tb.Fatalf("%v to %s: %v\n%s", s, p.name, err, p.Output())
	}
}

// Stop tells the process to end well, and returns its exit code.
func (p *Process) Stop() int {
	p.tb.Helper()
	_ = p.stdin.Close()
	return p.AwaitEnd()
}

// AwaitEnd waits until the process has ended, by itself or by a signal, and returns its
// exit code, -1 after a signal.
func (p *Process) AwaitEnd() int {
	p.tb.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.tb.Fatalf("%s does not end:\n%s", p.name, p.Output())
	}
	return p.cmd.ProcessState.ExitCode()
}

// output is what a process writes. It can be read while it is written.
type output struct {
	mu   sync.Mutex
	b    bytes.Buffer
	more chan struct{} // closed and made anew with each write
}

func newOutput() *output { return &output{more: make(chan struct{})} }

// Write never fails.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.more)
	o.more = make(chan struct{})
	return o.b.Write(p)
}

// now returns what was written, and a channel that is closed when there is more.
func (o *output) now() (string, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String(), o.more
}
