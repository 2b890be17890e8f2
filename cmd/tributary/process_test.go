package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
	"tributary/pipeline/streams"
)

// patience limits the wait for an event that must happen.
const patience = 60 * time.Second

// process is tributary as a process with an environment of its own.
type process struct {
	t      testing.TB
	cmd    *exec.Cmd
	stderr buffer
	lines  chan string // of standard output
	exit   chan error
}

// buffer can be read while it is written to.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// start starts a command whose user has the folder home, and which states no sender. The end of the test kills it.
func start(tb testing.TB, home, url string, args ...string) *process {
	tb.Helper()
	return startWith(tb, func(*exec.Cmd) {}, home, url, args...)
}

// environment is the environment of a command.
func environment(home, url string) []string {
	return []string{"HOME=" + home, "TZ=UTC", "TRIBUTARY_IDENTITY=off", "NATS_URL=" + url, seldomCollected}
}

// Settings of the garbage collector, which takes much of the time of a short process. Tests of memory add
// usuallyCollected.
const (
	seldomCollected  = "GOGC=400"
	usuallyCollected = "GOGC=100"
)

// startWith is [start] with a change to the command. With a standard output of the caller the
// process has no lines.
func startWith(tb testing.TB, setup func(*exec.Cmd), home, url string, args ...string) *process {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	p := &process{t: tb, lines: make(chan string, 1<<16), exit: make(chan error, 1)}
	p.cmd = exec.CommandContext(context.WithoutCancel(tb.Context()), self)
	p.cmd.Args = append([]string{"tributary"}, args...) // TestMain runs the program under this name
	p.cmd.Env = environment(home, url)
	p.cmd.Stderr = &p.stderr
	setup(p.cmd)
	stdout := io.NopCloser(strings.NewReader(""))
	if p.cmd.Stdout == nil {
		if stdout, err = p.cmd.StdoutPipe(); err != nil {
			tb.Fatal(err)
		}
	}
	if err := p.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	go func() {
		r := bufio.NewReader(stdout)
		for {
			line, err := r.ReadString('\n')
			if line != "" {
				p.lines <- strings.TrimSuffix(line, "\n")
			}
			if err != nil {
				break
			}
		}
		close(p.lines)
		_, _ = io.Copy(io.Discard, r)
		p.exit <- p.cmd.Wait()
	}()
	tb.Cleanup(func() {
		if p.running() {
			_ = p.cmd.Process.Kill() // fails if it has just ended
			for range p.lines {      // the reader of the pipe needs the room
			}
			<-p.exit //nolint:errcheck // it was killed
		}
	})
	return p
}

// running reports whether the process has not ended yet.
func (p *process) running() bool {
	select {
	case err := <-p.exit:
		p.exit <- err
		return false
	default:
		return true
	}
}

// kill ends the process without any chance to clean up, and waits for its end.
func (p *process) kill() {
	p.t.Helper()
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatalf("kill: %v\n%s", err, &p.stderr)
	}
	p.wait()
}

func (p *process) send(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("%v: %v\n%s", s, err, &p.stderr)
	}
}

// signal sends a signal that ends the process, and returns its exit code.
func (p *process) signal(s syscall.Signal) int {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("signal: %v\n%s", err, &p.stderr)
	}
	return p.wait()
}

// wait waits for the end and returns the exit code, -1 if it was killed. The rest of standard
// output is in lines.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case err := <-p.exit:
		p.exit <- err
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(5 * patience):
		p.t.Fatalf("%v does not end\n%s", p.cmd.Args, &p.stderr)
		return 0
	}
}

// expect reads standard output up to a line that contains text.
func (p *process) expect(text string) string {
	p.t.Helper()
	limit := time.After(patience)
	var seen []string
	for {
		select {
		case line, ok := <-p.lines:
			if strings.Contains(line, text) {
				return line
			}
			if seen = append(seen, line); ok {
				continue
			}
		case <-limit:
		}
		p.t.Fatalf("no %q in standard output:\n%s\nstandard error:\n%s", text, strings.Join(seen, "\n"), &p.stderr)
	}
}

// logged returns the line of standard error that contains text; it must exist.
func (p *process) logged(text string) string {
	p.t.Helper()
	for line := range strings.Lines(p.stderr.String()) {
		if strings.Contains(line, text) {
			return line
		}
	}
	p.t.Fatalf("no %q in standard error:\n%s", text, &p.stderr)
	return ""
}

// awaitLogged waits for a line of standard error that contains text.
func (p *process) awaitLogged(text string) {
	p.t.Helper()
	p.awaitLoggedWithin(text, patience)
}

// awaitLoggedWithin is [process.awaitLogged] with a limit of its own.
func (p *process) awaitLoggedWithin(text string, patience time.Duration) {
	p.t.Helper()
	p.awaitLogWithin(text, patience, func(log string) bool { return strings.Contains(log, text) })
}

// awaitLogWithin waits until shown holds of standard error; what names it.
func (p *process) awaitLogWithin(what string, patience time.Duration, shown func(log string) bool) {
	p.t.Helper()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	limit := time.After(patience)
	for !shown(p.stderr.String()) {
		select {
		case <-look.C:
		case <-limit:
			p.t.Fatalf("no %q in standard error:\n%s", what, &p.stderr)
		}
	}
}

// output runs a command to its end and returns its standard output.
func output(tb testing.TB, wantCode int, args ...string) []byte {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.CommandContext(tb.Context(), self)
	cmd.Args = append([]string{"tributary"}, args...)
	cmd.Env = []string{"HOME=" + tb.TempDir(), "TZ=UTC", seldomCollected}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, _ := cmd.Output()
	if code := cmd.ProcessState.ExitCode(); code != wantCode {
		tb.Fatalf("%v: exit code %d, want %d\n%s", args, code, wantCode, &stderr)
	}
	return out
}

// inProcess runs a command to its end in the process of the test, which takes a tenth of the time of a process of its
// own, and returns its exit code and what it has printed. The command gets no signal, and has no settings but the folder
// of its state and the broker.
func inProcess(tb testing.TB, home, url string, args ...string) (code int, stdout, stderr string) {
	tb.Helper()
	settings, wrong := loadConfig()
	if wrong != nil {
		tb.Fatal(wrong)
	}
	settings.XDGStateHome, settings.Identity = filepath.Join(home, ".local", "state"), "off"
	if url != "" {
		settings.NATSURL = url
	}
	var data, messages bytes.Buffer
	a := &app{config: settings, stdin: strings.NewReader(""), stdout: &data, stderr: terminal.Safe(&messages)}
	code = execute(context.WithoutCancel(tb.Context()), a, args)
	return code, data.String(), messages.String()
}

// finish is [inProcess] with standard output and error as one text.
func finish(tb testing.TB, home, url string, args ...string) (code int, out string) {
	tb.Helper()
	code, stdout, stderr := inProcess(tb, home, url, args...)
	return code, stdout + stderr
}

// succeed is [inProcess] for a command that must succeed.
func succeed(tb testing.TB, home, url string, args ...string) (stdout, stderr string) {
	tb.Helper()
	code, stdout, stderr := inProcess(tb, home, url, args...)
	if code != 0 {
		tb.Fatalf("%v: exit code %d\n%s", args, code, stderr)
	}
	return stdout, stderr
}

// arrivals counts the messages that are published on a subject, whether they are stored or not,
// and wakes the test that waits for them.
type arrivals struct {
	mu    sync.Mutex
	count int
	more  chan struct{} // closed and replaced by each message
}

func newArrivals(tb testing.TB, nc *nats.Conn, subject string) *arrivals {
	tb.Helper()
	a := &arrivals{more: make(chan struct{})}
	sub, err := nc.Subscribe(subject, func(*nats.Msg) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.count++
		close(a.more)
		a.more = make(chan struct{})
	})
	if err != nil {
		tb.Fatal(err)
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = sub.Unsubscribe() }) // the connection may be closed
	return a
}

func (a *arrivals) now() (count int, more <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.count, a.more
}

// reach waits for goal messages. It reports false if the process ends before, or after limit.
func (a *arrivals) reach(ctx context.Context, goal int, p *process, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		count, more := a.now()
		if count >= goal {
			return true
		}
		select {
		case <-more:
		case err := <-p.exit:
			p.exit <- err
			return false
		case <-timer.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// awaitStored waits until count messages are stored on a subject.
func awaitStored(ctx context.Context, js jetstream.JetStream, stream, subject string, count uint64) error {
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		stored := uint64(0)
		s, err := js.Stream(ctx, stream)
		if err == nil {
			info, err := s.Info(ctx, jetstream.WithSubjectFilter(subject))
			if err != nil {
				return err
			}
			for _, n := range info.State.Subjects {
				stored += n
			}
		}
		if stored >= count {
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d messages on %s: %w", stored, count, subject, ctx.Err())
		}
	}
}

// storedEvents returns the data of all events of a generation by session, one event per line, as
// tributary normalize prints them.
func storedEvents(tb testing.TB, js jetstream.JetStream, generation string) map[string][]byte {
	tb.Helper()
	consumer, err := js.OrderedConsumer(tb.Context(), streams.EventsStream(generation),
		jetstream.OrderedConsumerConfig{FilterSubjects: []string{"events." + generation + ".>"}})
	if err != nil {
		tb.Fatal(err)
	}
	events := map[string][]byte{}
	if consumer.CachedInfo().NumPending == 0 {
		return events
	}
	messages, err := consumer.Messages()
	if err != nil {
		tb.Fatal(err)
	}
	defer messages.Stop()
	for {
		m, err := messages.Next(jetstream.NextContext(tb.Context()))
		if err != nil {
			tb.Fatal(err)
		}
		e, _, err := envelopes.DecodeEvent(m.Headers(), m.Data())
		if err != nil {
			tb.Fatal(err)
		}
		events[e.SessionID] = append(append(events[e.SessionID], m.Data()...), '\n')
		meta, err := m.Metadata()
		if err != nil {
			tb.Fatal(err)
		}
		if meta.NumPending == 0 {
			return events
		}
	}
}
