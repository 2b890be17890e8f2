package console

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// stream is an open stream of events of a page: server-sent events. Every event is written at once; nothing is buffered.
// Several goroutines may use it at once.
type stream struct {
	// Last is the id of the last event that the browser has, empty for none: a stream that was cut goes on behind it.
	Last string

	mu      sync.Mutex
	w       http.ResponseWriter
	control *http.ResponseController
}

// patience is how long a browser may take to read an event.
const patience = 10 * time.Second

var errClosing = errors.New("the console is closing")

// live answers with a stream of events for as long as run sends them. Its context ends when the browser goes away, when the
// console closes, and after [Limits.Lifetime]; the browser then opens another stream behind the last event. run returns
// when its context has ended.
//
// An error before the first event becomes a page like every other; later it is sent as the event "problem", and the browser
// opens no other stream. Where run returns nil, it opens another one some seconds later.
func (r *request) live(run func(ctx context.Context, s *stream) error) error {
	ctx, stop := context.WithCancelCause(r.Context())
	defer stop(nil)
	ctx, cancel := context.WithTimeout(ctx, r.limits.Lifetime)
	defer cancel()
	s := &stream{Last: cmp.Or(r.Header.Get("Last-Event-ID"), r.URL.Query().Get("last")), w: r.w, control: http.NewResponseController(r.w)}
	// The deadline of the whole request would end the stream. A writer of a test has none.
	if err := s.control.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	header := r.w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("X-Accel-Buffering", "no") // of nginx
	if err := s.write("retry: 3000\n\n"); err != nil {
		return nil // the browser has gone away
	}
	var beating sync.WaitGroup
	defer beating.Wait()
	defer stop(nil)
	beating.Go(func() {
		beat := time.NewTicker(r.limits.Heartbeat)
		defer beat.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-r.closed:
				stop(errClosing)
				return
			case <-beat.C:
				if err := s.write(":\n\n"); err != nil {
					stop(err)
					return
				}
			}
		}
	})
	err := run(ctx, s)
	if err == nil || ctx.Err() != nil {
		return nil // it ended because its context did
	}
	p := r.problemOf(ctx, err)
	r.config.Logger.WarnContext(ctx, "a live stream of the console failed", "route", r.Pattern, "error", err)
	_ = s.send("problem", "", map[string]string{"text": p.Text, "cure": p.Cure}) // fails when the browser has gone away
	return nil
}

// send sends an event with a value as JSON. id is where another stream goes on; empty for none. The error is that of a
// browser that has gone away or does not read.
func (s *stream) send(name, id string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	var b strings.Builder
	if id != "" {
		fmt.Fprintf(&b, "id: %s\n", strings.Map(oneLine, id))
	}
	fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", name, data) // JSON has no line ends
	return s.write(b.String())
}

// oneLine removes what ends a line of a stream of events, and the zero byte, with which an id is ignored.
func oneLine(r rune) rune {
	if r == '\n' || r == '\r' || r == 0 {
		return -1
	}
	return r
}

func (s *stream) write(text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.control.SetWriteDeadline(time.Now().Add(patience)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return s.control.Flush()
}
