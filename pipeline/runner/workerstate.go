package runner

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"tributary/pipeline/broker"
	"tributary/pipeline/worker"
)

// workersSubject is where workers answer for their state. Heartbeats would not do: they need storage, and stop when a
// limit is reached.
const workersSubject = "tributary.workers"

// askTimeout is how long [Ask] waits, unless the server says at once that there is no worker.
const askTimeout = time.Second

// State is the state of a worker, as the worker sees it.
type State struct {
	Name       string `json:"name"`                       // as in [worker.Config]
	Generation string `json:"generation,omitzero"`        // live or configured generation; empty when it works on neither
	NotReady   string `json:"not_ready,omitzero"`         // what keeps it from working, see [Runner.Ready]
	Unready    int64  `json:"not_ready_seconds,omitzero"` // how long it has not been ready, with this generation
	Error      string `json:"error,omitzero"`             // last warning or error in its log that has a cause
	Seconds    int64  `json:"error_seconds_ago,omitzero"` // age of Error

	Drift []worker.Drifted `json:"drift,omitzero"` // of the records of Generation that it has stored
}

// Age returns the age of the last error.
func (s State) Age() time.Duration { return time.Duration(s.Seconds) * time.Second }

// Ask returns the states of the workers that answer, by name. It waits up to a second, or until known workers have
// answered; known is 0 if the number is unknown.
func Ask(ctx context.Context, nc *nats.Conn, known int) ([]State, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	inbox, err := broker.OpenInbox(nc)
	if err != nil {
		return nil, broker.Wrap(err, "ask the workers")
	}
	defer inbox.Close()
	if err := nc.PublishRequest(workersSubject, inbox.Subject, nil); err != nil {
		return nil, broker.Wrap(err, "ask the workers")
	}
	var states []State
	for known == 0 || len(states) < known {
		m, err := inbox.Next(ctx)
		if err != nil || len(m.Data) == 0 {
			break // no more answers, or no worker
		}
		var s State
		if json.Unmarshal(m.Data, &s) == nil {
			states = append(states, s)
		}
	}
	slices.SortFunc(states, func(a, b State) int { return strings.Compare(a.Name, b.Name) })
	return states, nil
}

// answer answers requests for the state of the worker until stop is called.
func (r *Runner) answer() (stop func(), err error) {
	sub, err := r.js.Conn().Subscribe(workersSubject, func(m *nats.Msg) {
		s := State{Name: r.config.Worker}
		s.Generation, s.Drift = r.liveName(), r.drift()
		s.Error, s.Seconds = r.last.get()
		if err := r.Ready(); err != nil {
			s.NotReady, s.Unready = err.Error(), r.unreadyFor()
		}
		if data, err := json.Marshal(s); err == nil {
			_ = m.Respond(data)
		}
	})
	if err != nil {
		return nil, broker.Wrap(err, "subscribe to "+workersSubject)
	}
	return func() { _ = sub.Unsubscribe() }, nil
}

// noteReady notes since when the worker has not been ready.
func (r *Runner) noteReady() {
	ready := r.Ready() == nil
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case ready:
		r.unready = time.Time{}
	case r.unready.IsZero():
		r.unready = time.Now()
	}
}

// unreadyFor returns for how many seconds the worker has not been ready.
func (r *Runner) unreadyFor() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.unready.IsZero() {
		return 0
	}
	return int64(time.Since(r.unready).Seconds())
}

// liveName returns the generation that [Runner.Ready] is about; empty for none.
func (r *Runner) liveName() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, s := range r.stages {
		if s.live {
			return name
		}
	}
	return ""
}

// drift returns the drift of the live generation.
func (r *Runner) drift() []worker.Drifted {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.stages {
		if s.live {
			return s.Drift()
		}
	}
	return nil
}

// lastError keeps the last warning or error of a log that has a cause.
type lastError struct {
	mu   sync.Mutex
	text string
	at   time.Time
}

// get returns the text and its age; an empty text for none.
func (l *lastError) get() (text string, seconds int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.text == "" {
		return "", 0
	}
	return l.text, int64(time.Since(l.at).Seconds())
}

func (l *lastError) set(text string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text, l.at = text, at
}

// handler returns a handler that keeps the last warning or error in l, and passes everything to next.
func (l *lastError) handler(next slog.Handler) slog.Handler { return rememberingHandler{next, l} }

type rememberingHandler struct {
	slog.Handler
	last *lastError
}

// Enabled is that of the next handler; it is also true for what lastError keeps.
func (h rememberingHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn || h.Handler.Enabled(ctx, level)
}

// Handle keeps a message that has a cause. Messages without one are about records, not about the worker.
func (h rememberingHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		r.Attrs(func(a slog.Attr) bool {
			is := a.Key == "error" || a.Key == "cause"
			if is {
				h.last.set(r.Message+": "+a.Value.String(), r.Time)
			}
			return !is
		})
	}
	if !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs returns a handler that keeps messages in the same place.
func (h rememberingHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return rememberingHandler{h.Handler.WithAttrs(attrs), h.last}
}

// WithGroup returns a handler that keeps messages in the same place.
func (h rememberingHandler) WithGroup(name string) slog.Handler {
	return rememberingHandler{h.Handler.WithGroup(name), h.last}
}
