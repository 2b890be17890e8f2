package subscribe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/broker"
	"tributary/pipeline/events"
	"tributary/pipeline/streams"
)

// cursor is the progress of a subscription, the value of its key in [streams.SubscribersBucket]. Every process writes
// it expecting the revision that it last wrote or read, so a process that was taken over stores nothing.
type cursor struct {
	Generation string    `json:"generation"`
	Created    time.Time `json:"created"`             // of the stream: a dropped generation may return under its name
	Position   positions `json:"position"`            // last event done in each cell
	Since      time.Time `json:"since,omitzero"`      // of [Start], until an event is done; with several cells for ever
	Cuts       []uint64  `json:"cuts,omitempty"`      // by partition, the raw sequence up to which a previous generation passed the events, or this one before its promotion was rolled back
	Tries      positions `json:"deliveries,omitzero"` // deliveries of the events after Position, by processes that may have ended in them
	Owner      string    `json:"owner"`               // run that wrote it
	Selects    selection `json:"selects,omitzero"`

	history
}

type positions = streams.Positions

// progress is the progress of a run: the cursor, and what is not in it yet. It belongs to the goroutine of
// [Subscription.Run].
type progress struct {
	js     jetstream.JetStream
	config Config
	id     string // id of this run
	log    *slog.Logger
	drain  chan struct{} // closed by [Subscription.Drain]

	nothing atomic.Int64 // when there last was nothing to read, in Unix nanoseconds; loaded by the reading goroutine

	cursor   cursor
	revision uint64        // of the stored key
	stored   []byte        // stored value
	storing  time.Time     // when it was stored
	cells    int           // number in the generation
	newest   []events.Mark // last event done in each cell that is not in the cursor yet
	upTo     []uint64      // cuts of the generation while its rest is passed
	held     positions     // first event behind a cut in each cell: progress stops before it
	tried    positions     // 1 for each cell with a done event
	tries    positions     // deliveries of the next event of each cell by other processes
}

var errNoBucket = errors.New("the broker has no bucket " + streams.SubscribersBucket + ": start a worker, which creates it: tributary run")

const subjectPrefix = "$KV." + streams.SubscribersBucket + "."

// open reads the cursor, or creates the first one, and takes it over. The previous owner may be storing progress at
// the same time.
func (s *Subscription) open(ctx context.Context) error {
	for {
		err := s.takeOver(ctx)
		if !errors.Is(err, ErrTakenOver) {
			s.opened = err == nil
			return err
		}
		if err := s.pause(ctx, s.config.Backoff); err != nil {
			return err
		}
	}
}

// takeOver is one attempt of open.
func (s *Subscription) takeOver(ctx context.Context) error {
	found, revision, err := s.readCursor(ctx)
	if err != nil {
		return err
	}
	s.cursor, s.revision = found, revision
	if found.Generation == "" {
		if err := s.begin(ctx); err != nil {
			return err
		}
	} else if s.config.Generation != "" && s.config.Generation != found.Generation {
		return fmt.Errorf("%w: it has progress in generation %s, not %s: give the subscription another name", errConfig, found.Generation, s.config.Generation)
	}
	s.cursor.Owner, s.tries, s.tried = s.id, s.cursor.Tries, nil
	s.cursor.Selects = selection{s.config.Source, s.config.Session, s.config.Type}
	return s.store(ctx)
}

// readCursor reads the stored cursor and its revision from the leader of the bucket. If there is none, the cursor has
// no Generation.
func (p *progress) readCursor(ctx context.Context) (c cursor, revision uint64, err error) {
	m, err := broker.LastStored(ctx, p.js, "KV_"+streams.SubscribersBucket, subjectPrefix+p.config.Name)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return c, 0, nil
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return c, 0, errNoBucket
	case err != nil:
		return c, 0, fmt.Errorf("read the progress: %w", err)
	case len(m.Data) == 0: // removed
		return c, m.Sequence, nil
	}
	if err := json.Unmarshal(m.Data, &c); err != nil {
		return c, 0, fmt.Errorf("the progress in bucket %s cannot be read: remove the key %s to begin again", streams.SubscribersBucket, p.config.Name)
	}
	return c, m.Sequence, nil
}

// begin creates the first cursor.
func (s *Subscription) begin(ctx context.Context) error {
	generation := s.config.Generation
	if generation == "" {
		var err error
		if generation, err = streams.LiveGeneration(ctx, s.js); err != nil {
			return err
		}
	}
	info, err := s.stream(ctx, generation)
	if err != nil {
		return err
	}
	last, err := streams.LastPositions(ctx, s.js, generation)
	if err != nil {
		return fmt.Errorf("events stream of %s: %w", generation, err)
	}
	s.cursor.Generation, s.cursor.Created, s.cursor.Since = generation, info.Created.UTC(), s.config.Start.Since
	switch start := s.config.Start; {
	case start.New:
		s.newest = make([]events.Mark, len(last))
		for c := range last {
			if s.newest[c], err = events.LastMark(ctx, s.js, generation, c); err != nil {
				return err
			}
			s.cursor.Position = s.cursor.Position.With(c, s.newest[c].Position)
		}
	case start.Position > 1 && len(last) > 1:
		return fmt.Errorf("%w: a position belongs to one events stream, but %s has %d: begin at a time", errConfig, generation, len(last))
	case start.Position > 1:
		s.cursor.Position = positions{start.Position - 1}
	}
	return nil
}

// request returns the context of one request to the broker, which ends with the connection. With a deadline in ctx,
// the library would wait until then for a lost answer.
func (p *progress) request(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, lost := broker.UntilDisconnected(ctx, p.js.Conn())
	ctx, cancel := context.WithTimeout(ctx, p.js.Options().DefaultTimeout)
	return ctx, func() { cancel(); lost() }
}

// stream returns the state of the events stream of a generation.
func (p *progress) stream(ctx context.Context, generation string) (*jetstream.StreamInfo, error) {
	ctx, cancel := p.request(ctx)
	defer cancel()
	stream, err := p.js.Stream(ctx, streams.EventsStream(generation))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("%w: %s: choose an existing one (tributary replay ls) under another subscription name", ErrDropped, generation)
	}
	if err != nil {
		return nil, fmt.Errorf("events stream of %s: %w", generation, err)
	}
	return stream.CachedInfo(), nil
}

// store writes the cursor if it has changed, and waits while the broker is away.
func (p *progress) store(ctx context.Context) error {
	p.cursor.add(p.newest)
	data, err := json.Marshal(p.cursor)
	if err != nil {
		return fmt.Errorf("encode the progress: %w", err)
	}
	for wait := p.config.Backoff; !bytes.Equal(data, p.stored); wait = min(2*wait, maxBackoff) {
		err := p.storeOnce(ctx, data)
		if errors.Is(err, ErrTakenOver) || errors.Is(err, nats.ErrConnectionClosed) {
			return err
		}
		if err == nil {
			p.stored, p.storing = data, time.Now()
			return nil
		}
		p.log.WarnContext(ctx, "progress cannot be stored: trying again", slog.Any("error", err))
		if err := p.pause(ctx, wait); err != nil {
			return err
		}
	}
	return nil
}

// storeOnce writes the cursor. After a lost answer the key shows whether it is stored.
func (p *progress) storeOnce(ctx context.Context, data []byte) error {
	m := &nats.Msg{Subject: subjectPrefix + p.config.Name, Data: data, Header: nats.Header{
		jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(p.revision, 10)},
	}}
	asking, cancel := p.request(ctx)
	defer cancel()
	ack, err := p.js.PublishMsg(asking, m)
	if err == nil {
		p.revision = ack.Sequence
		return nil
	}
	found, revision, failed := p.readCursor(ctx)
	switch {
	case failed != nil:
		return errors.Join(err, failed)
	case revision == p.revision: // it was not stored
		return err
	case found.Owner != p.id:
		return ErrTakenOver
	}
	p.revision = revision
	return nil
}

// checkOwner returns [ErrTakenOver] if another process has written the cursor.
func (p *progress) checkOwner(ctx context.Context) error {
	_, revision, err := p.readCursor(ctx)
	if err == nil && revision != p.revision {
		err = ErrTakenOver
	}
	return err
}

// done notes that the events of a cell up to e are done.
func (p *progress) done(e *events.Event) {
	if held := p.held.In(e.Cell); held == 0 || e.Position < held {
		p.cursor.Position = p.cursor.Position.With(e.Cell, e.Position)
		for len(p.newest) <= e.Cell {
			p.newest = append(p.newest, events.Mark{})
		}
		p.newest[e.Cell] = events.MarkOf(e)
	}
	p.cursor.note(e)
	if p.trying(e.Cell) {
		p.setTries(e.Cell, 0)
		p.tried = p.tried.With(e.Cell, 1)
	}
	if p.cells == 1 {
		p.cursor.Since = time.Time{}
	}
}

// trying reports whether the next event of a cell may have ended the previous process, so that it is passed alone.
func (p *progress) trying(cell int) bool { return p.tried.In(cell) == 0 }

// setTries sets the deliveries of the next event of a cell.
func (p *progress) setTries(cell int, n uint64) {
	if p.cursor.Tries = p.cursor.Tries.With(cell, n); slices.Max(p.cursor.Tries) == 0 {
		p.cursor.Tries = nil
	}
}

// pause waits for d. It returns an error if the subscription ends meanwhile.
func (p *progress) pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-p.drain:
		return errDrained
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// rewind continues the subscription from where the stream of a cell parted.
func (p *progress) rewind(cell int, at events.Parting) {
	p.cursor.Position = p.cursor.Position.With(cell, at.From-1)
	p.cursor.Marks = slices.Clone(p.cursor.Marks)
	p.cursor.Marks[cell] = p.cursor.Marks[cell].UpTo(at.Common.Position)
	if cell < len(p.newest) {
		p.newest[cell] = events.Mark{}
	}
	p.cursor.Ends = p.cursor.Ends.With(cell, 0)
	p.setTries(cell, 0)
	again := make([]uint64, max(len(p.cursor.Records), len(p.cursor.Again)))
	copy(again, p.cursor.Again)
	for n, record := range p.cursor.Records {
		again[n] = max(again[n], record)
	}
	p.cursor.Again = again
}
