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

// Program runs in a [Process]. It gets the arguments of the process as JSON, and a context that ends when it should
// shut down. It calls ready once it has started.
type Program func(ctx context.Context, arguments []byte, ready func()) error

// The environment of a process names its program and the arguments.
const (
	programVariable   = "PIPELINETEST_PROGRAM"
	argumentsVariable = "PIPELINETEST_ARGUMENTS"
)

// readyLine is what a process writes when it is ready.
const readyLine = "ready\n"

// RunProgram runs the program of this process, one of programs, a node of a [Cluster] or a [Worker], and returns its
// exit code; is is false in other processes. A test binary that starts processes calls it first in its TestMain. The
// program ends with standard input, so that a process does not outlive its test.
func RunProgram(programs map[string]Program) (code int, is bool) {
	name := os.Getenv(programVariable) //nolint:forbidigo // a test binary that runs as a process gets its program by the environment
	if name == "" {
		return 0, false
	}
	program := programs[name]
	switch name {
	case nodeProgram:
		program = runNode
	case workerProgram:
		program = runWorker
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

// Process is a [Program] that runs this test binary as another process. It ends with the test at the latest.
type Process struct {
	tb     testing.TB
	name   string
	cmd    *exec.Cmd
	stdin  io.Closer
	output *output
	ended  chan struct{} // closed when the process has ended
}

// patience bounds the wait for a process.
const patience = 2 * time.Minute

// StartProcess starts a program with arguments, encoded as JSON. It does not wait until the program is ready, see
// [Process.AwaitReady]. In short mode it skips the test.
func StartProcess(tb testing.TB, program string, arguments any) *Process {
	tb.Helper()
	return startProcess(tb, "", program, arguments)
}

// startProcess is [StartProcess] for a test binary, empty for this one.
func startProcess(tb testing.TB, binary, program string, arguments any) *Process {
	tb.Helper()
	if testing.Short() {
		tb.Skip("needs processes of their own, of which the race detector sees nothing")
	}
	if binary == "" {
		self, err := os.Executable()
		if err != nil {
			tb.Fatal(err)
		}
		binary = self
	}
	data, err := json.Marshal(arguments)
	if err != nil {
		tb.Fatal(err)
	}
	p := &Process{tb: tb, name: program, output: newOutput(), ended: make(chan struct{})}
	p.cmd = exec.CommandContext(context.WithoutCancel(tb.Context()), binary)
	p.cmd.Env = []string{programVariable + "=" + program, argumentsVariable + "=" + string(data), "TZ=UTC"}
	p.cmd.SysProcAttr = ownGroup()
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		tb.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // the exit code has the result
		close(p.ended)
	}()
	tb.Cleanup(func() {
		_ = p.cmd.Process.Kill() // fails if it has ended
		<-p.ended
	})
	return p
}

// AwaitReady waits until the program is ready. It fails the test if the program ends first.
func (p *Process) AwaitReady() {
	p.tb.Helper()
	p.AwaitOutput(readyLine)
}

// AwaitOutput waits until the process has written text. It fails the test if the process ends first.
func (p *Process) AwaitOutput(text string) {
	p.tb.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		all, more := p.output.now()
		if strings.Contains(all, text) {
			return
		}
		select {
		case <-more:
		case <-p.ended:
			if all, _ = p.output.now(); !strings.Contains(all, text) {
				p.tb.Fatalf("%s ended before it wrote %q:\n%s", p.name, text, all)
			}
		case <-limit.C:
			p.tb.Fatalf("%s does not write %q:\n%s", p.name, text, all)
		}
	}
}

// Output returns everything that the process has written to standard output and standard error.
func (p *Process) Output() string {
	all, _ := p.output.now()
	return all
}

// running reports whether the process is running.
func (p *Process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Kill sends SIGKILL and waits until the process has ended.
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

// ProcessorTime returns how long the process, which has ended, had a processor.
func (p *Process) ProcessorTime() time.Duration {
	p.tb.Helper()
	<-p.ended
	return p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
}

// Stop makes the process shut down, and returns its exit code.
func (p *Process) Stop() int {
	p.tb.Helper()
	_ = p.stdin.Close()
	return p.AwaitEnd()
}

// AwaitEnd waits until the process has ended and returns its exit code, -1 after a signal.
func (p *Process) AwaitEnd() int {
	p.tb.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.tb.Fatalf("%s does not end:\n%s", p.name, p.Output())
	}
	return p.cmd.ProcessState.ExitCode()
}

// output collects the output of a process, which can be read meanwhile.
type output struct {
	mu   sync.Mutex
	b    bytes.Buffer
	more chan struct{} // closed and replaced by each write
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

// now returns what was written, and a channel that the next write closes.
func (o *output) now() (string, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String(), o.more
}

// LogText is a log that can be read while it is written. The zero value is empty.
type LogText struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements [io.Writer].
func (l *LogText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String returns everything that was written.
func (l *LogText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
