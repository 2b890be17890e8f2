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

// stream is an open stream of server-sent events to a page. Each event is written at once; nothing is buffered.
// Several goroutines may use it at once.
type stream struct {
	// Last is the id of the last event that the browser has, empty for none: an interrupted stream continues after
	// it.
	Last string

	mu      sync.Mutex
	w       http.ResponseWriter
	control *http.ResponseController
}

// patience is the time that a browser has to read an event.
const patience = 10 * time.Second

var errClosing = errors.New("the console is closing")

// live answers with a stream of events for as long as run sends them. Its context ends when the browser goes away,
// when the console closes, and after [Limits.Lifetime]; the browser then opens another stream after the last event.
// run returns when its context has ended.
//
// An error before the first event becomes a page. A later error is sent as the event "problem", and the browser opens
// no other stream. If run returns nil, the browser opens another stream some seconds later.
func (r *request) live(run func(ctx context.Context, s *stream) error) error {
	ctx, stop := context.WithCancelCause(r.Context())
	defer stop(nil)
	ctx, cancel := context.WithTimeout(ctx, r.limits.Lifetime)
	defer cancel()
	s := &stream{Last: cmp.Or(r.Header.Get("Last-Event-ID"), r.URL.Query().Get("last")), w: r.w, control: http.NewResponseController(r.w)}
	// The deadline of requests would end the stream. A writer in tests has none.
	if err := s.control.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	header := r.w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("X-Accel-Buffering", "no") // for nginx
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
		return nil // the context of run has ended
	}
	p := r.problemOf(ctx, err)
	r.config.Logger.WarnContext(ctx, "a live stream of the console failed", "route", r.Pattern, "error", err)
	_ = s.send("problem", "", map[string]string{"text": p.Text, "cure": p.Cure}) // fails if the browser has gone away
	return nil
}

// send sends an event with a value as JSON. Another stream continues after id; empty for none. It fails if
// the browser has gone away or does not read.
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

// oneLine removes line ends, which would end the line of the event, and zero bytes, with which browsers ignore an id.
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
