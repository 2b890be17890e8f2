package ship

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"tributary/normalizers"
)

// After the context has ended what comes through a pipe is still read for a moment, for
// the same signal has ended the program at its other end, and sent for a little longer:
// nobody can read it a second time.
const (
	pipeLinger = time.Second
	pipeGrace  = 10 * time.Second
)

// runPipe ships what comes from the input until it ends, or ctx does. A record of a pipe
// has an identity of its own, by the pipe and the position in it, so that two pipes never
// are one, and what is sent twice is stored once. A record that names no session is of
// the pipe.
func (s *Ship) runPipe(ctx context.Context) error {
	sending, stop := outlive(ctx, pipeGrace)
	defer stop()
	if !s.config.DryRun {
		if err := s.publisher.connected(ctx); err != nil {
			return err
		}
	}
	s.tally.change(func(sum *Summary) { sum.Files++ })
	var g errgroup.Group
	g.Go(func() error {
		defer close(s.publisher.submitted)
		return s.drain(ctx, sending)
	})
	g.Go(func() error {
		s.publisher.run(sending)
		return nil
	})
	return g.Wait()
}

// outlive returns a context that ends a time after ctx.
func outlive(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel()
		case <-longer.Done():
		}
	})
	return longer, func() { stop(); cancel() }
}

// drain reads the input and ships its records as they come.
func (s *Ship) drain(ctx, sending context.Context) error {
	name := "stdin-" + rand.Text()
	framer := normalizers.NewFramer(normalizers.File{Source: s.config.Source, Name: name, Path: name, Modified: time.Now()})
	f := &file{framer: framer, piped: true}
	v := &visit{Ship: s, f: f, log: log{path: "-"}, gone: true}
	m := &marking{to: framer}
	pieces := Pieces(sending, s.config.Input)
	found, stop := s.discover(ctx)
	defer stop()
	ended, over := ctx.Done(), (<-chan time.Time)(nil)
	for !f.refused {
		var p Piece
		select {
		case p = <-pieces:
			m.write(p.Data)
			f.read += int64(len(p.Data))
		case d := <-found:
			found = nil
			m.name(d.session)
			if m.without = d.err != nil && ctx.Err() == nil; m.without {
				s.withoutSession(ctx, d.err)
			}
		case <-ended:
			ended, over = nil, time.After(pipeLinger)
		case <-over:
			p.Err = io.EOF
		}
		if p.Err != nil {
			if s.config.Discovery != nil && !m.named && !m.without {
				m.name(s.config.Discovery.look()) // the log of a short run may be younger than the last look
				if !m.named && m.text {
					s.withoutSession(ctx, fmt.Errorf("%w in %s", ErrNoSession, s.config.Discovery.Dir))
				}
			}
			m.end()
			err := v.finish(sending)
			if !errors.Is(p.Err, io.EOF) {
				err = errors.Join(fmt.Errorf("read standard input: %w", p.Err), err)
			}
			return err
		}
		if m.without {
			framer.Settle()
		}
		if err := errors.Join(v.take(sending), v.flush(sending)); err != nil {
			return err
		}
		if framer.Source() == "" && f.read > normalizers.MaxRecordBytes {
			v.refuseFile(ctx) // it would be held in memory for ever
		}
	}
	return nil
}

// withoutSession tells that what Copilot prints goes without its session, and why.
func (s *Ship) withoutSession(ctx context.Context, err error) {
	s.config.Logger.ErrorContext(ctx, "what Copilot prints is shipped without its session", "error", err)
}

// Piece is what one read of an input gave.
type Piece struct {
	Data []byte // until the next piece is taken
	Err  error  // the last piece has one: [io.EOF], or why the input cannot be read
}

// Pieces reads an input that others write to, so that who waits for it can wait for other
// things too. Its goroutine ends with the input, or with ctx unless the input never answers.
func Pieces(ctx context.Context, in io.Reader) <-chan Piece {
	pieces := make(chan Piece)
	go func() {
		var buffers [2][64 << 10]byte // one is read into while the other is in use
		for i := 0; ; i = 1 - i {
			n, err := in.Read(buffers[i][:])
			select {
			case pieces <- Piece{buffers[i][:n], err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return pieces
}

// discovered is what became of a [Discovery].
type discovered struct {
	session string
	err     error
}

// discover looks for the session in the background until stop; found is nil when it
// shall not.
func (s *Ship) discover(ctx context.Context) (found <-chan discovered, stop func()) {
	if s.config.Discovery == nil {
		return nil, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	result := make(chan discovered, 1)
	var looking sync.WaitGroup
	looking.Go(func() {
		id, err := s.config.Discovery.Find(ctx)
		result <- discovered{id, err}
	})
	return result, func() { cancel(); looking.Wait() }
}

// marking puts the line that names the session into the plain text of Copilot, between
// two lines, as soon as it is known. A log of JSON names its session itself.
type marking struct {
	to      *normalizers.Framer
	line    string // to be put in
	named   bool   // the session is known
	within  bool   // what was written last has no line end
	told    bool   // whether it is text is known
	text    bool
	without bool // the session will not be known
}

// name gives the session; empty for none.
func (m *marking) name(session string) {
	if session == "" {
		return
	}
	m.named, m.line = true, "[copilot-session] "+session+"\n"
	if !m.within {
		m.mark()
	}
}

// write passes a piece on.
func (m *marking) write(data []byte) {
	if first := bytes.TrimLeft(data, "\xef\xbb\xbf \t\r\n"); !m.told && len(first) > 0 {
		m.told, m.text = true, first[0] != '{'
		if !m.within {
			m.mark()
		}
	}
	if end := bytes.IndexByte(data, '\n') + 1; m.line != "" && end > 0 {
		m.pass(data[:end])
		m.mark()
		data = data[end:]
	}
	m.pass(data)
}

// end puts the line in behind a last one without an end.
func (m *marking) end() {
	if m.line != "" && m.within && m.text {
		m.pass([]byte("\n"))
	}
	m.mark()
}

func (m *marking) pass(data []byte) {
	if len(data) > 0 {
		m.within = data[len(data)-1] != '\n'
		_, _ = m.to.Write(data) // never fails
	}
}

// mark puts the line in, once, where there is text.
func (m *marking) mark() {
	if m.line != "" && m.text {
		_, _ = m.to.Write([]byte(m.line)) // never fails
		m.line = ""
	}
}
