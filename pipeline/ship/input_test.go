package ship_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tributary/envelopes"
	"tributary/pipeline/ship"
)

// inputShip is a Ship that runs beside the test, and the pipe that is its input.
type inputShip struct {
	*following

	t   testing.TB
	in  *io.PipeWriter
	log *logged
}

// logged is the text of a log.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// input starts a Ship of plain text of Copilot CLI, with the given discovery.
func (e *edge) input(d *ship.Discovery) *inputShip {
	e.t.Helper()
	r, w := io.Pipe()
	p := &inputShip{t: e.t, in: w, log: &logged{}}
	p.following = e.follow(func(c *ship.Config) {
		c.Input, c.Source, c.Discovery = r, envelopes.Copilot, d
		c.Logger = slog.New(slog.NewTextHandler(p.log, nil))
	})
	return p
}

// write writes to the input and returns when the text was read.
func (p *inputShip) write(text string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, text); err != nil {
		p.t.Fatal(err)
	}
}

const markerLine = "[copilot-session] " + discoveredSession + "\n"

// Text that comes before the session is known waits, so that no record lacks its session.
func textWaitsForTheSession(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	raw := e.tap()
	dir := t.TempDir()
	p := e.input(&ship.Discovery{Source: envelopes.Copilot, Dir: dir, Poll: time.Millisecond})
	p.write("Starting up\n")
	p.write("\n")
	if n := e.count(); n > 0 {
		t.Errorf("%d records are sent before their session is known", n)
	}
	touch(t, dir, discoveredSession+".log")
	got := raw.expect("Starting up\n", "\n", markerLine)
	p.write("All is well.\nThe")
	got = append(got, raw.expect("All is well.\n")...)
	p.write(" end")
	if err := p.in.Close(); err != nil {
		t.Fatal(err)
	}
	got = append(got, raw.expect("The end", "end of "+discoveredSession)...)
	for _, r := range got {
		if r.Session != discoveredSession || r.Source != envelopes.Copilot {
			t.Errorf("%q is of %s of %s", r.Data, r.Session, r.Source)
		}
	}
}

// TestLogThatBeginsWithADamagedLineGetsNoMarker: the session is known before the input begins,
// and is that of another run.
func TestLogThatBeginsWithADamagedLineGetsNoMarker(t *testing.T) {
	t.Parallel()
	record := func(id, kind string) string {
		return fmt.Sprintf(`{"type":%q,"data":{"sessionId":"s","content":"hello"},"id":%q,"timestamp":"2026-03-09T09:00:00Z","parentId":null}`, kind, id)
	}
	lines := []string{`ssion.start","data":{"sessionId":"s"}}`, record("e1", "session.start"), record("e2", "user.message")}
	for _, chunk := range []int{1, 7, 1 << 20} {
		e := newEdge(t)
		raw := e.tap()
		dir := t.TempDir()
		touch(t, dir, discoveredSession+".log")
		p := e.input(&ship.Discovery{Source: envelopes.Copilot, Dir: dir, Poll: time.Millisecond})
		for part := range slices.Chunk([]byte(strings.Join(lines, "\n")+"\n"), chunk) {
			p.write(string(part))
		}
		if err := p.in.Close(); err != nil {
			t.Fatal(err)
		}
		for i, want := range lines {
			if r := raw.next(1)[0]; string(bytes.TrimSuffix(r.Data, []byte("\n"))) != want || i > 0 && r.Session != "s" {
				t.Errorf("chunks of %d: line %d is %q of %s", chunk, i+1, r.Data, r.Session)
			}
		}
		p.stop()
	}
}

// The line that names the session stands between two lines, whenever the session is found,
// and no byte of the text is changed.
func markerStandsBetweenTwoLines(t *testing.T) {
	t.Parallel()
	const text = "One line,\nanother one,\n\nand a last one without end"
	for _, at := range []int{0, 1, 9, 10, 23, 24, 25, len(text) - 1} {
		e := newEdge(t)
		raw := e.tap()
		dir := t.TempDir()
		p := e.input(&ship.Discovery{Source: envelopes.Copilot, Dir: dir, Poll: time.Millisecond})
		if at > 0 {
			p.write(text[:at])
		}
		touch(t, dir, discoveredSession+".log")
		for i := range text[at:] { // the session is found somewhere among them
			p.write(text[at+i : at+i+1])
		}
		if err := p.in.Close(); err != nil {
			t.Fatal(err)
		}
		var shipped strings.Builder
		marked := false
		for {
			r := raw.next(1)[0]
			if r.Origin.End {
				break
			}
			if string(r.Data) == markerLine {
				if before := shipped.String(); marked || before != "" && !strings.HasSuffix(before, "\n") {
					t.Errorf("found at %d: the marker stands within a line, or twice, after %q", at, before)
				}
				marked = true
				continue
			}
			shipped.Write(r.Data)
		}
		if got := shipped.String(); !marked || got != text && got != text+"\n" {
			t.Errorf("found at %d: marked %t, the text is %q", at, marked, got)
		}
		p.stop()
	}
}

// Without a log the text is shipped without its session, and that is logged.
func textWithoutALogIsShipped(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	raw := e.tap()
	p := e.input(&ship.Discovery{Source: envelopes.Copilot, Dir: t.TempDir(), Poll: time.Millisecond, Timeout: 5 * time.Millisecond})
	p.write("Starting up\n")
	got := raw.expect("Starting up\n")
	if !strings.Contains(p.log.String(), "level=ERROR") {
		t.Errorf("no error is logged: %s", p.log)
	}
	p.write("and on\n")
	got = append(got, raw.expect("and on\n")...)
	for _, r := range got {
		if !strings.HasPrefix(r.Session, "stdin-") {
			t.Errorf("%q is of %s", r.Data, r.Session)
		}
	}
	if err := p.in.Close(); err != nil {
		t.Fatal(err)
	}
	raw.expect("end of " + got[0].Session)
}

// The session is found, too, if the run is over before the next look.
func TestInputOfAShortRunGetsItsSession(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	dir := t.TempDir()
	s, err := ship.New(e.js.Conn(), ship.Config{
		Input: inputThat(func() { touch(t, dir, discoveredSession+".log") }, "Done."), Source: envelopes.Copilot,
		Discovery: &ship.Discovery{Source: envelopes.Copilot, Dir: dir, Poll: time.Hour},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, r := range e.wantStored("Done.\n", markerLine, "end of "+discoveredSession) {
		if r.Session != discoveredSession {
			t.Errorf("%q is of %s", r.Data, r.Session)
		}
	}
	if sum := s.Summary(); sum.Records != 2 || sum.Files != 1 || sum.Sessions != 1 {
		t.Errorf("shipped %+v", sum)
	}
}

// inputThat returns an input of one text, which calls before when the text was read.
func inputThat(before func(), text string) io.Reader {
	return io.MultiReader(strings.NewReader(text), readerFunc(func([]byte) (int, error) {
		before()
		return 0, io.EOF
	}))
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// The same text on two inputs is stored twice, each record of each input once.
func TestEqualInputsAreDifferentFiles(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	text := strings.Repeat("the same\n", 2000)
	sessions := make(map[string]int)
	for range 2 {
		s, err := ship.New(e.js.Conn(), ship.Config{Input: strings.NewReader(text), Source: envelopes.Copilot})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if sum := s.Summary(); sum.Records != 2000 || sum.Duplicates != 0 {
			t.Errorf("shipped %+v", sum)
		}
	}
	for _, r := range recordsOf(e.all()) {
		sessions[r.Session]++
	}
	if len(sessions) != 2 {
		t.Errorf("%d sessions", len(sessions))
	}
	for session, n := range sessions {
		if n != 2000 {
			t.Errorf("%d records of %s", n, session)
		}
	}
}

// The agent of an input is detected by its content, and JSON names its session itself.
func TestInputOfJSONGetsNoMarker(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	dir := t.TempDir()
	touch(t, dir, discoveredSession+".log")
	for _, d := range []*ship.Discovery{nil, {Source: envelopes.Copilot, Dir: dir}} {
		s, err := ship.New(e.js.Conn(), ship.Config{Input: strings.NewReader(lines(prompts("one", 1, 3)...)), Discovery: d})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	all := e.wantStored(append(prompts("one", 1, 3), append(append([]string{"end of one"}, prompts("one", 1, 3)...), "end of one")...)...)
	if r := all[0]; r.Source != envelopes.ClaudeCode || r.Session != "one" {
		t.Errorf("session %s of %s", r.Session, r.Source)
	}
}

func TestInputOfAnUnknownAgentIsRefused(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	s, err := ship.New(e.js.Conn(), ship.Config{Input: strings.NewReader("hello\n")})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if sum := s.Summary(); sum.Refused[ship.ReasonUnknownSource] != 1 || e.count() != 0 {
		t.Errorf("%+v, %d records", sum, e.count())
	}
}

// What was read of an input is sent although the context has ended, because it cannot be
// read again.
func TestInterruptedInputIsShippedAsFarAsItWasRead(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	raw := e.tap()
	p := e.input(&ship.Discovery{Source: envelopes.Copilot, Dir: t.TempDir()})
	p.write("One line,\nand a half")
	stopped := make(chan struct{})
	go func() { p.stop(); close(stopped) }()
	p.write(", and another")
	if err := p.in.Close(); err != nil {
		t.Fatal(err)
	}
	<-stopped
	got := raw.next(3)
	if string(got[0].Data) != "One line,\n" || string(got[1].Data) != "and a half, and another" || !got[2].Origin.End {
		t.Errorf("raw stream is %q", brief(got))
	}
}

func TestInputOfADryRunIsNotSent(t *testing.T) {
	t.Parallel()
	s, err := ship.New(nil, ship.Config{Input: strings.NewReader("a\n\nb\n"), Source: envelopes.Copilot, DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.Run(ctx); err != nil || s.Summary().Records != 3 {
		t.Errorf("%v, %+v", err, s.Summary())
	}
}
