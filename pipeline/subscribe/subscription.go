// Package subscribe is what a Go program imports to consume events. A [Subscription] passes each event of the live
// generation to a handler, in the order of its session, and continues where it stopped, even in another process. When
// another generation becomes live, the program decides what to do ([Config.GenerationChanged]).
//
// An event is passed again unless its handler succeeded and the progress was stored afterwards (at least once).
// [Event.Key] is the same each time.
package subscribe

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"tributary/envelopes"
	"tributary/pipeline/broker"
	"tributary/pipeline/events"
)

// Event is an event passed to a handler.
type Event struct {
	events.Event
	Delivery int  // number of this delivery, from 1, counted across restarts of the process
	Repeated bool // the events stream went back in time: the event may have been passed before with the same Key
}

// Key is the same whenever the event is passed, in every generation, and differs from that of every other event:
// <source>/<session>/<event_id>, with the session as in subjects.
func (e *Event) Key() string {
	return string(e.Source) + "/" + envelopes.Token(e.SessionID) + "/" + e.EventID
}

// Handler handles an event. If it fails, the event is passed again after a while, and no later event before it. The
// context has the span of the delivery.
type Handler func(ctx context.Context, e Event) error

// BatchHandler handles consecutive events together. If it fails, the events are passed again one by one.
type BatchHandler func(ctx context.Context, events []Event) error

// GenerationChanged reports that another generation is live.
type GenerationChanged struct{ From, To string }

// Change is where a subscription continues in a new live generation.
type Change string

// The changes.
const (
	// Rebuild begins with the first event of the new generation. From then on the subscription passes exactly its
	// events, and skips the rest of the old one.
	Rebuild Change = "rebuild"
	// Continue passes the rest of the old generation, then the events of the new one whose raw records the old one
	// lacks. It skips an event that the old one still held back because its meaning depended on a later record.
	Continue Change = "continue"
)

// Start is where a subscription without progress begins. The zero value is the first event.
type Start struct {
	New      bool      // with the next event stored
	Since    time.Time // with the first event stored at or after this time
	Position uint64    // with the first event at or after this sequence of the events stream
}

// Config configures a [Subscription].
type Config struct {
	// Name identifies the subscription, and its progress is stored under it: [A-Za-z0-9_-]{1,64}, or two of those
	// with a dot between them, so that a user can have the right to all names with one prefix. One process at a time
	// works under a name; a process that starts takes over.
	Name string

	// Source, Session, Type and Partitions select events; empty ones select all.
	Source     envelopes.Source
	Session    string
	Type       envelopes.EventType
	Partitions []int

	Start Start

	// Generation is the generation to stay with. If it is empty, the subscription follows the live one and
	// GenerationChanged is required. That is called before the first event of another generation, until it succeeds,
	// and again after a crash. With [Rebuild] it must discard what the program made of the events so far.
	Generation        string
	GenerationChanged func(context.Context, GenerationChanged) error
	Change            Change // default [Rebuild]

	// WentBack and Expired report that events were lost or may come again. Each is called before the events that
	// follow, until it succeeds, and again after a crash. If nil, only the log and the metrics report that.
	WentBack func(context.Context, WentBack) error
	Expired  func(context.Context, Expired) error

	// Deliveries is how often an event is passed before it is poison; default 5. Backoff is the wait before the
	// second time, doubled each time up to a minute; default 200 ms.
	Deliveries int
	Backoff    time.Duration
	// Poison is called for a poison event with the last error of the handler, and for an unreadable message, which
	// only has a Position. If it returns nil, the event is skipped. Its error ends [Subscription.Run]; without
	// Poison, every such event does.
	Poison func(context.Context, Event, error) error

	Batch int           // maximum events in a batch; default 256
	Poll  time.Duration // interval between checks of the live generation; default 1 s

	Logger *slog.Logger // nil for no logs
	Tracer trace.Tracer // nil for no traces
	Meter  metric.Meter // nil for no metrics
}

// Errors that end [Subscription.Run]. Each comes with its cure.
var (
	ErrTakenOver = errors.New("another process has taken over the subscription, or its progress was removed")
	ErrDropped   = errors.New("generation was dropped")
	// ErrWentBack: progress stored by an earlier version does not say where to continue.
	ErrWentBack = errors.New("the events stream has lost events that were passed")
)

var errConfig = errors.New("bad configuration of a subscription")

// Subscription passes events to a handler. Make one with [New] and run it once.
type Subscription struct {
	*delivery

	draining sync.Once

	// These belong to the goroutine of Run.
	opened  bool
	missing bool // the broker has just reported that a stream does not exist
}

var nameForm = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)?$`)

// isName reports whether a subscription may have the name. A pattern that counts to 64 would take memory in each
// program.
func isName(name string) bool {
	first, second, _ := strings.Cut(name, ".")
	return nameForm.MatchString(name) && len(first) <= 64 && len(second) <= 64
}

// New returns a subscription. It validates cfg and reads nothing yet.
func New(js jetstream.JetStream, cfg Config) (*Subscription, error) {
	switch {
	case !isName(cfg.Name):
		return nil, fmt.Errorf("%w: name %q: write 1 to 64 of A-Z, a-z, 0-9, _ and -, or two such names with a dot between them", errConfig, cfg.Name)
	case cfg.Generation == "" && cfg.GenerationChanged == nil:
		return nil, fmt.Errorf("%w: set GenerationChanged to follow the live generation, or Generation to stay with one", errConfig)
	case cfg.Change != "" && cfg.Change != Rebuild && cfg.Change != Continue:
		return nil, fmt.Errorf("%w: change %q: write %s or %s", errConfig, cfg.Change, Rebuild, Continue)
	case cfg.Deliveries < 0 || cfg.Batch < 0 || cfg.Backoff < 0 || cfg.Poll < 0:
		return nil, fmt.Errorf("%w: Deliveries, Batch, Backoff and Poll are not below 0", errConfig)
	}
	if cfg.Change == "" {
		cfg.Change = Rebuild
	}
	if cfg.Deliveries == 0 {
		cfg.Deliveries = 5
	}
	if cfg.Backoff == 0 {
		cfg.Backoff = 200 * time.Millisecond
	}
	if cfg.Batch == 0 {
		cfg.Batch = 256
	}
	if cfg.Poll == 0 {
		cfg.Poll = time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	observer, err := newObserver(&cfg)
	if err != nil {
		return nil, err
	}
	p := &progress{
		js: js, config: cfg, id: rand.Text(), drain: make(chan struct{}),
		log: cfg.Logger.With(slog.String("subscription", cfg.Name)),
	}
	return &Subscription{delivery: &delivery{progress: p, observer: observer}}, nil
}

// Drain makes Run finish the event or batch in progress, store the progress and return nil. It does not wait. It may
// be called by any goroutine, repeatedly.
func (s *Subscription) Drain() { s.draining.Do(func() { close(s.drain) }) }

// Run passes events to handle one by one until [Subscription.Drain] is called, ctx ends, or an operator is needed. It
// waits while the broker is away. It stores progress when every event that has arrived is handled, and at the latest
// after 256 events or a second; so many may be passed again after a crash.
func (s *Subscription) Run(ctx context.Context, handle Handler) error {
	return s.run(ctx, func(ctx context.Context, events []Event) error { return handle(ctx, events[0]) }, 1)
}

// RunBatches is [Subscription.Run] with all events that have arrived at once, up to [Config.Batch]. It stores
// progress after each batch.
func (s *Subscription) RunBatches(ctx context.Context, handle BatchHandler) error {
	return s.run(ctx, handle, s.config.Batch)
}

// errDrained ends an unfinished delivery when the subscription is drained.
var errDrained = errors.New("drained")

func (s *Subscription) run(ctx context.Context, handle BatchHandler, most int) (err error) {
	s.handle = handle
	for err == nil {
		if err = s.step(ctx, most); s.passes(ctx, err) {
			s.log.WarnContext(ctx, "broker does not answer: trying again", slog.Any("error", err))
			err = s.pause(ctx, s.config.Poll)
		}
	}
	for c := range s.cursor.Tries {
		if s.trying(c) {
			s.setTries(c, s.tries.In(c)) // the process ends on purpose, which is no failure of the event
		}
	}
	if s.opened && !errors.Is(err, ErrTakenOver) {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if failed := s.store(closing); failed != nil && errors.Is(err, errDrained) {
			err = failed
		}
	}
	if errors.Is(err, errDrained) {
		return nil
	}
	return fmt.Errorf("subscription %s: %w", s.config.Name, err)
}

// step opens the subscription, or follows the cursor's generation until it must begin elsewhere.
func (s *Subscription) step(ctx context.Context, most int) error {
	if !s.opened {
		return s.open(ctx)
	}
	switch to, err := s.follow(ctx, most); {
	case errors.Is(err, events.ErrWentBack):
		return s.goBack(ctx)
	case err != nil:
		return err
	default:
		return s.change(ctx, to)
	}
}

// passes reports whether an error may be temporary: the broker is away or stopping. A stopping broker has no streams,
// so a missing stream counts only the second time.
func (s *Subscription) passes(ctx context.Context, err error) bool {
	before := s.missing
	s.missing = errors.Is(err, ErrDropped) || errors.Is(err, errNoBucket) || errors.Is(err, jetstream.ErrStreamNotFound)
	switch {
	case ctx.Err() != nil, errors.As(err, new(poisonError)):
		return false
	case s.missing:
		return !before
	}
	return broker.Unanswered(err)
}

// selects reports whether an event selected by the broker belongs to the subscription.
func (s *Subscription) selects(e *events.Event) bool {
	p := e.Provenance.Partition
	if p >= 0 && p < len(s.cursor.Cuts) && e.Provenance.RawSequence <= s.cursor.Cuts[p] {
		return false // the previous generation had it
	}
	return len(s.config.Partitions) == 0 || slices.Contains(s.config.Partitions, p)
}
