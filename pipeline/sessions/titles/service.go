// Package titles stores the titles and pins of sessions, which people and programs set. It is the only writer of them.
//
// Start with [Service], which reads and changes metadata, as a Go value and as a NATS micro service
// ([Service.Serve]). [Watch] follows the changes. README.md has the subjects, the wire forms and the guarantees.
//
// The invariant: the record of a session and the change that leads to it are stored in one atomic batch, which
// expects the sequence of the previous record. So every change is stored exactly once, in version order, by any
// number of replicas, and each guard is evaluated on the record that the change replaces.
package titles

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"go.opentelemetry.io/otel/metric"

	"tributary/envelopes"
	"tributary/pipeline/sessions"
	"tributary/pipeline/streams"
)

// stream is the stream of records and changes.
const stream = streams.SessionsStream

// Config configures a [Service]. Its zero value is valid.
type Config struct {
	// ChangesMaxAge is how long changes are kept, in whole seconds, at least a minute; 0 for ever. Records are kept
	// for ever.
	ChangesMaxAge time.Duration
	Mode          envelopes.Mode   // of the CloudEvents of changes; default [envelopes.Binary]
	Now           func() time.Time // clock of UpdatedAt; default [time.Now]
	Logger        *slog.Logger     // for requests that fail because of the server; nil for no logs
	Meter         metric.Meter     // nil for no metrics
}

// minChangesAge lets a call that lost an answer, and a watcher that was away briefly, find every change.
const minChangesAge = time.Minute

// callTimeout bounds a call without a deadline. It is well below minChangesAge.
const callTimeout = 15 * time.Second

// Service is the only writer of session metadata. Any number of services, in any number of processes, may work on the
// same server. It is safe for concurrent use.
type Service struct {
	js     jetstream.JetStream
	config Config
	ttl    string // of a change; empty if changes do not expire

	conflicts atomic.Int64 // writes overtaken by another writer
	stats     [endpoints]endpointStats
	telemetry *telemetry

	drain    chan struct{} // closed by Drain
	draining sync.Once
}

// New returns a service for a server prepared by [streams.Provision].
func New(js jetstream.JetStream, cfg Config) (*Service, error) {
	if cfg.ChangesMaxAge != 0 && cfg.ChangesMaxAge < minChangesAge {
		return nil, fmt.Errorf("changes kept for %v are not kept for %v", cfg.ChangesMaxAge, minChangesAge)
	}
	if cfg.Mode == "" {
		cfg.Mode = envelopes.Binary
	}
	if cfg.Mode != envelopes.Binary && cfg.Mode != envelopes.Structured {
		return nil, fmt.Errorf("mode %q is neither %s nor %s", cfg.Mode, envelopes.Binary, envelopes.Structured)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Service{
		js:     js,
		config: cfg,
		drain:  make(chan struct{}),
	}
	s.setTTL(cfg.ChangesMaxAge)
	var err error
	if s.telemetry, err = newTelemetry(cfg.Meter); err != nil {
		return nil, fmt.Errorf("make metrics: %w", err)
	}
	return s, nil
}

func (s *Service) setTTL(age time.Duration) {
	if age > 0 {
		s.ttl = strconv.FormatInt(int64(age/time.Second), 10) + "s"
	}
}

// Option is an option of a call that changes metadata.
type Option func(*guard)

// guard is a condition on the record that a change replaces.
type guard struct{ version *uint64 }

// IfMatch makes a call fail with [VersionConflictError] unless the MetadataVersion is version, even if the call would
// change nothing.
func IfMatch(version uint64) Option { return func(g *guard) { g.version = &version } }

// SetTitle sets the title of a session to title without white space at its ends. It returns the stored change, or nil
// if the session already has that title. It returns [ErrEmptyTitle] for an empty title, even if the session is
// unknown.
func (s *Service) SetTitle(ctx context.Context, k Key, title string, options ...Option) (*Change, error) {
	trimmed, err := trimTitle(title)
	if err != nil {
		return nil, err
	}
	if trimmed == "" {
		return nil, ErrEmptyTitle
	}
	return s.change(ctx, k, options, func(r *Session) (ChangeType, bool) {
		if r.Title == trimmed {
			return "", false
		}
		return r.setTitle(trimmed, SourceManual), true
	})
}

// ApplyGeneratedTitle is [Service.SetTitle] for a title made by a program. It changes nothing and returns nil if the
// candidate is empty, or if the session has a title that is not [sessions.IsUntitled]; force replaces that, too.
func (s *Service) ApplyGeneratedTitle(ctx context.Context, k Key, candidate string, source TitleSource, force bool, options ...Option) (*Change, error) {
	trimmed, err := trimTitle(candidate)
	if err != nil {
		return nil, err
	}
	if err := source.check(); err != nil {
		return nil, err
	}
	if trimmed == "" {
		return nil, nil //nolint:nilnil // neither a change nor an error
	}
	return s.change(ctx, k, options, func(r *Session) (ChangeType, bool) {
		if !force && !sessions.IsUntitled(r.Title) || r.Title == trimmed {
			return "", false
		}
		return r.setTitle(trimmed, source), true
	})
}

// SetPinned pins or unpins a session. It returns the stored change, or nil if the session already is in that state.
func (s *Service) SetPinned(ctx context.Context, k Key, pinned bool, options ...Option) (*Change, error) {
	return s.change(ctx, k, options, func(r *Session) (ChangeType, bool) {
		if r.Pinned == pinned {
			return "", false
		}
		return r.setPinned(pinned), true
	})
}

// Get returns the record of a session from the leader of the stream, so it includes everything that finished calls
// stored.
func (s *Service) Get(ctx context.Context, k Key) (Session, error) {
	if err := k.check(); err != nil {
		return Session{}, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	return s.load(ctx, k)
}

// bounded returns a context with a deadline that also ends with ctx.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, callTimeout)
}

// change makes one change. apply changes a record and returns the type of the change, or false for none; it is called
// again for each record that another writer stored meanwhile.
func (s *Service) change(ctx context.Context, k Key, options []Option, apply func(*Session) (ChangeType, bool)) (*Change, error) {
	if err := k.check(); err != nil {
		return nil, err
	}
	var g guard
	for _, o := range options {
		o(&g)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	w := write{key: k, id: nuid.Next(), guard: g, apply: apply}
	for tries := 1; ; tries++ {
		c, again, err := s.try(ctx, &w)
		if again && wait(ctx, tries) == nil {
			continue
		}
		if err != nil && w.lost != nil {
			err = storage("save_session: the outcome is unknown", w.lost)
		}
		return c, err
	}
}

// trimTitle returns a title without white space at its ends.
func trimTitle(title string) (string, error) {
	if !utf8.ValidString(title) {
		return "", invalid("title is not UTF-8")
	}
	return strings.TrimSpace(title), nil
}
