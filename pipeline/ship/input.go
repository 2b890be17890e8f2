package ship

import (
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

// After the context has ended, the input is read a little longer, because the same signal ended the program that
// writes it. Sending what was read may take longer still: it cannot be read again.
const (
	inputLinger = time.Second
	inputGrace  = 10 * time.Second
)

// runInput ships the input until it ends or ctx does. Each run is a file of its own with a random name: two inputs
// with the same content differ, yet a record that is sent twice is stored once. A record that names no session
// belongs to a session of that name.
func (s *Ship) runInput(ctx context.Context) error {
	sending, stop := outlive(ctx, inputGrace)
	defer stop()
	if err := s.connect(ctx); err != nil {
		return err
	}
	s.attached.Store(true)
	s.tally.change(func(sum *Summary) { sum.Files++ })
	var g errgroup.Group
	g.Go(func() error {
		defer close(s.publisher.submitted)
		return newInput(s).run(ctx, sending)
	})
	g.Go(func() error {
		s.publisher.run(sending, func(error) {})
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

// input is the visit of the input, which lasts until the input ends.
type input struct {
	*visit
	marker marker
}

func newInput(s *Ship) *input {
	name := "stdin-" + rand.Text()
	framer := normalizers.NewFramer(normalizers.File{Source: s.config.Source, Name: name, Path: name, Modified: time.Now(), FirstLine: s.redactLine})
	in := &input{
		visit:  &visit{Ship: s, f: &file{framer: framer, piped: true}, log: log{path: "-"}, gone: true},
		marker: marker{to: framer},
	}
	if d := s.config.Discovery; d != nil {
		in.marker.lineOf = d.plainText().Line
	}
	return in
}

// run reads the input and ships its records as they come. ctx ends the reading, sending ends the shipping.
func (in *input) run(ctx, sending context.Context) error {
	chunks := Chunks(sending, in.config.Input)
	found, stop := in.config.Discovery.start(ctx)
	defer stop()
	ended, timeout := ctx.Done(), (<-chan time.Time)(nil)
	for !in.f.refused {
		select {
		case c := <-chunks:
			in.write(c.Data)
			if c.Err != nil {
				return in.finish(ctx, sending, c.Err)
			}
		case d := <-found:
			found = nil
			in.discovered(ctx, d)
		case <-ended:
			ended, timeout = nil, time.After(inputLinger)
		case <-timeout:
			return in.finish(ctx, sending, io.EOF)
		}
		if err := in.ship(ctx, sending); err != nil {
			return err
		}
	}
	return nil
}

// write passes the bytes read to the framer.
func (in *input) write(data []byte) {
	in.marker.write(data)
	in.f.read += int64(len(data))
}

// discovered applies the result of the Discovery.
func (in *input) discovered(ctx context.Context, d discovered) {
	in.marker.name(d.session)
	if d.err != nil && ctx.Err() == nil {
		in.marker.unnamed = true
		in.logUnnamed(ctx, d.err)
	}
}

// ship ships the records that are ready.
func (in *input) ship(ctx, sending context.Context) error {
	if in.marker.unnamed {
		in.f.framer.Settle()
	}
	if err := errors.Join(in.shipReady(sending), in.flush(sending)); err != nil {
		return err
	}
	in.limitUnknown(ctx)
	return nil
}

// finish ships the rest of the input. cause is why the input ended.
func (in *input) finish(ctx, sending context.Context, cause error) error {
	in.nameLate(ctx)
	in.marker.end()
	err := in.visit.finish(sending)
	if !errors.Is(cause, io.EOF) {
		err = errors.Join(fmt.Errorf("read standard input: %w", cause), err)
	}
	return err
}

// nameLate looks for the session one last time: the log of a short run may have appeared after the last look.
func (in *input) nameLate(ctx context.Context) {
	d := in.config.Discovery
	if d == nil || in.marker.named || in.marker.unnamed {
		return
	}
	in.marker.name(d.look())
	if !in.marker.named && in.marker.isText() {
		in.logUnnamed(ctx, fmt.Errorf("%w in %s", errNoSession, d.Dir))
	}
}

// logUnnamed logs why plain text is shipped without its session.
func (in *input) logUnnamed(ctx context.Context, err error) {
	in.config.Logger.ErrorContext(ctx, "plain text is shipped without its session", "error", err)
}

// discovered is the result of a [Discovery].
type discovered struct {
	session string
	err     error
}

// start looks for the session in the background until stop is called. Without a Discovery, found is nil.
func (d *Discovery) start(ctx context.Context) (found <-chan discovered, stop func()) {
	if d == nil {
		return nil, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	result := make(chan discovered, 1)
	var looking sync.WaitGroup
	looking.Go(func() {
		id, err := d.find(ctx)
		result <- discovered{id, err}
	})
	return result, func() { cancel(); looking.Wait() }
}

// Chunk is the result of one read of an input.
type Chunk struct {
	Data []byte // valid until the next chunk is received
	Err  error  // set in the last chunk: [io.EOF], or why the input cannot be read
}

// Chunks reads an input in the background, so that the receiver can wait for other things at the same time. The last
// chunk has an error; the channel is never closed. The goroutine ends with the input, or once ctx has ended and the
// pending read returns.
func Chunks(ctx context.Context, in io.Reader) <-chan Chunk {
	chunks := make(chan Chunk)
	go func() {
		var buffers [2][64 << 10]byte // one is filled while the receiver uses the other
		for i := 0; ; i = 1 - i {
			n, err := in.Read(buffers[i][:])
			select {
			case chunks <- Chunk{buffers[i][:n], err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return chunks
}
