// Package export writes the events of a generation to files that databases and data frames read: Parquet or lines of
// JSON, in folders by month and source. README.md has the columns and the layout; views.sql and questions.sql are for
// DuckDB.
//
// Start with [Run]. The invariant: the manifest names a span of the stream before the first file of the span appears,
// and a file appears whole. So every event is in exactly one file, wherever an export was killed.
package export

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"tributary/envelopes"
	"tributary/pipeline/broker"
	"tributary/pipeline/events"
	"tributary/pipeline/objects"
	"tributary/pipeline/streams"
)

// Config selects what to export, and where to.
type Config struct {
	Dir        string          // folder of the files; one export at a time may write to it
	Bucket     *objects.Bucket // stores the files instead of Dir; nil for none
	Generation string
	Live       bool // with Follow: continue with each generation that becomes live, whose files replace those of the previous one
	Format     Format
	Raw        bool          // rows have the raw record
	Prices     []byte        // CSV of model prices, put beside the files for queries about costs; nil for none
	SpanBytes  int           // memory for the rows stored together, in bytes; 0 is [DefaultSpanBytes]
	Compact    bool          // replace small files by larger ones
	Follow     bool          // continue with new events
	Every      time.Duration // how often a following export stores new events; 0 is [DefaultEvery]
	Drain      time.Duration // how long files that are being stored may take after the context of [Run] ends
	Logger     *slog.Logger
}

// Defaults of [Config].
const (
	DefaultSpanBytes = 64 << 20
	DefaultEvery     = time.Minute
)

// errInterrupted means that an export could not store all that it had read.
var errInterrupted = errors.New("interrupted before everything that was read was stored: run the export again: it goes on where it ended")

// Result counts what an export has done.
type Result struct {
	Events     int               // in new files
	Files      int               // new ones
	Unreadable int               // events that cannot be read and are in no file
	Replaced   int               // files of the previous live generation that were removed
	Compacted  int               // files replaced by larger ones
	Removed    int               // files made again because the events stream went back in time
	Gone       int               // events whose referenced record has left the raw stream
	Through    streams.Positions // of the last events in files
}

// Run exports events, see [Config]. When it follows the live generation and that changes, it removes the files of the
// previous one and exports the next one from its first event, so that in the end the files have the events of the
// live generation.
func Run(ctx context.Context, js jetstream.JetStream, cfg Config) (Result, error) {
	cfg.Live = cfg.Live && cfg.Follow
	if !cfg.Live {
		return run(ctx, js, cfg)
	}
	var sum Result
	for {
		next, err := streams.WhileLive(ctx, js, cfg.Generation, func(ctx context.Context) error {
			result, err := run(ctx, js, cfg)
			sum.add(result)
			return err
		})
		if next == "" {
			return sum, err
		}
		cfg.Generation = next
	}
}

// add adds the counts of a later export.
func (r *Result) add(more Result) {
	r.Events += more.Events
	r.Files += more.Files
	r.Unreadable += more.Unreadable
	r.Removed += more.Removed
	r.Replaced += more.Replaced
	r.Compacted += more.Compacted
	r.Gone += more.Gone
	r.Through = more.Through
}

// run exports the events that are in no file. It ends with the last event that exists at the beginning or, if cfg
// follows, with ctx.
//
// Events are stored in spans, which are ranges of sequences of the events stream, of about SpanBytes. The file names
// of a span have its range. If an export ends in the middle of a span, the next one stores the rest of the same span,
// so every event is in one file and no file is partial.
func run(ctx context.Context, js jetstream.JetStream, cfg Config) (Result, error) {
	infos, err := streamInfos(ctx, js, cfg.Generation)
	if err != nil {
		return Result{}, err
	}
	storing, stop := outlive(ctx, cfg.Drain)
	defer stop()
	places, err := cfg.places(len(infos))
	if err != nil {
		return Result{}, err
	}
	if cfg.SpanBytes <= 0 {
		cfg.SpanBytes = DefaultSpanBytes
	}
	cfg.SpanBytes /= len(infos)
	if cfg.Every <= 0 {
		cfg.Every = DefaultEvery
	}
	since, err := streams.BrokerSince(ctx, js)
	if err != nil {
		return Result{}, err
	}
	exporters := make([]*exporter, len(infos))
	for c, info := range infos {
		a, replaced, err := openArchive(ctx, places[c], manifest{
			Generation: cfg.Generation, Created: info.Created, Broker: since, Format: cfg.Format, Raw: cfg.Raw, Through: streams.PlaceOf(c, 0),
		}, cfg.Live)
		if err != nil {
			return Result{}, err
		}
		if c == 0 {
			if err := cfg.putAside(ctx, places[c]); err != nil {
				return Result{}, err
			}
		}
		if replaced > 0 {
			cfg.Logger.InfoContext(ctx, "another generation is live: exporting its events", "generation", cfg.Generation, "removed", replaced)
		}
		if next := a.manifest.Through + 1; len(a.manifest.Marks) == 0 && next > streams.PlaceOf(c, 1) && streams.PlaceOf(c, info.State.FirstSeq) > next {
			cfg.Logger.WarnContext(ctx, "events may have expired before they were exported", "from", next, "to", streams.PlaceOf(c, info.State.FirstSeq)-1)
		}
		exporters[c] = &exporter{
			cfg: cfg, js: js, archive: a, storing: storing, result: Result{Replaced: replaced},
			added: compactFiles, // an earlier run may have left so many
		}
		if err := exporters[c].repair(ctx); err != nil {
			return Result{}, err
		}
	}
	return runAll(ctx, exporters)
}

// runAll runs the exporters of all cells, and returns the sum of their results.
func runAll(ctx context.Context, exporters []*exporter) (Result, error) {
	running, reading := errgroup.WithContext(ctx)
	for _, e := range exporters {
		running.Go(func() error { return e.export(reading) })
	}
	err := running.Wait()
	var sum Result
	var through streams.Positions
	for c, e := range exporters {
		sum.add(e.result)
		through = through.With(c, e.archive.manifest.Through-streams.PlaceOf(c, 0))
	}
	sum.Through = through
	return sum, err
}

// streamInfos returns the state of the events streams of a generation, by cell.
func streamInfos(ctx context.Context, js jetstream.JetStream, generation string) ([]*jetstream.StreamInfo, error) {
	last, err := streams.LastPositions(ctx, js, generation)
	if err != nil {
		return nil, err
	}
	infos := make([]*jetstream.StreamInfo, len(last))
	for c := range infos {
		stream, err := js.Stream(ctx, streams.EventsStream(envelopes.CellName(generation, c)))
		if err != nil {
			return nil, err
		}
		infos[c] = stream.CachedInfo()
	}
	return infos, nil
}

// places opens the place of the export of each cell.
func (c *Config) places(cells int) ([]place, error) {
	places := make([]place, cells)
	for cell := range places {
		places[cell] = c.place(cell)
	}
	if c.Bucket != nil {
		return places, nil
	}
	return places, openFolder(c.Dir)
}

// putAside puts files for queries beside the manifest.
func (c *Config) putAside(ctx context.Context, p place) error {
	if c.Format == Parquet {
		var columns bytes.Buffer
		if err := c.Format.write(&columns, nil); err != nil {
			return err
		}
		if err := p.put(ctx, columnsName, columns.Bytes()); err != nil {
			return err
		}
	}
	if c.Prices == nil {
		return nil
	}
	return p.put(ctx, pricesName, c.Prices)
}

// place returns the place of the export of a cell.
func (c *Config) place(cell int) place {
	if c.Bucket == nil {
		return folder{c.Dir, cell}
	}
	b := *c.Bucket
	b.Logger, b.Cures = c.Logger, objects.Cures{
		Rights:  "s3:ListBucket, s3:GetObject, s3:PutObject and s3:DeleteObject",
		Again:   "run the export again: it goes on where it ended",
		Smaller: "export with less --span-bytes",
	}
	return &bucket{Bucket: &b, cell: cell, log: c.Logger}
}

// outlive returns a context that ends some time after ctx does.
func outlive(ctx context.Context, after time.Duration) (context.Context, func()) {
	longer, end := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(after)
		defer timer.Stop()
		select {
		case <-timer.C:
			end(errInterrupted)
		case <-longer.Done():
		}
	})
	return longer, func() {
		stop()
		end(nil)
	}
}

// exporter collects the rows of a span and stores them.
type exporter struct {
	cfg     Config
	js      jetstream.JetStream
	archive *archive
	storing context.Context //nolint:containedctx // outlives the context that ends the reading
	result  Result
	added   int // files waiting for a compaction

	rows map[partition][]Row
	size int
	last uint64 // sequence of the last event of the span; 0 for none

	firstMark, lastMark events.Mark // of the events of the span
}

// patience is the wait before the broker is asked again.
const patience = time.Second

// brokerError is a possibly temporary error of the broker, unlike an error of the place.
type brokerError struct{ error }

// Unwrap returns the error.
func (e brokerError) Unwrap() error { return e.error }

// ofBroker wraps an error as [brokerError] if it may be temporary.
func ofBroker(err error) error {
	if broker.Unanswered(err) {
		return brokerError{err}
	}
	return err
}

// export stores the events. After the stream went back it repairs the files and continues. A following export waits
// while the broker is away.
func (e *exporter) export(ctx context.Context) error {
	for {
		err := e.run(ctx, events.Read(ctx, e.js, e.cfg.Generation, e.query(e.archive.cell())))
		if errors.Is(err, events.ErrWentBack) {
			if err = e.repair(ctx); err == nil {
				continue
			}
		}
		if !e.cfg.Follow || ctx.Err() != nil || !errors.As(err, new(brokerError)) {
			return err
		}
		e.cfg.Logger.WarnContext(ctx, "broker does not answer: trying again", "error", err)
		e.reset()
		select {
		case <-time.After(patience):
		case <-ctx.Done():
			return nil // everything that was read and not stored will be read again
		}
	}
}

// reset begins a span.
func (e *exporter) reset() {
	e.rows, e.size, e.last = map[partition][]Row{}, 0, 0
	e.firstMark, e.lastMark = events.Mark{}, events.Mark{}
}

// repair drops what was read and not stored, and repairs the files after the events stream went back in time.
func (e *exporter) repair(ctx context.Context) error {
	e.reset()
	removed, err := e.archive.repair(ctx, e.js, e.cfg.Logger)
	e.result.Removed += removed
	return err
}

// query selects the events behind the archive.
func (e *exporter) query(cell int) events.Query {
	m := &e.archive.manifest
	q := events.Query{Cells: []int{cell}, Follow: e.cfg.Follow, Raw: e.cfg.Raw, Read: make([]events.Mark, cell+1)}
	position := m.Through - streams.PlaceOf(cell, 0)
	q.After = q.After.With(cell, position)
	if done := m.Marks.UpTo(position); len(done) > 0 {
		q.Read[cell] = done[len(done)-1]
	}
	return q
}

// compare returns [events.ErrWentBack] if the events stream lacks what the files have.
func (e *exporter) compare(ctx context.Context) error {
	_, parted, err := events.FindParting(ctx, e.js, e.cfg.Generation, e.archive.cell(), e.archive.manifest.Marks)
	if err == nil && parted {
		return events.ErrWentBack
	}
	return nil // the reading notices that the broker is away
}

// read is an event, or an error of the reading.
type read struct {
	event events.Event
	err   error
}

// run stores events until they end.
func (e *exporter) run(ctx context.Context, events iter.Seq2[events.Event, error]) error {
	ctx, stop := context.WithCancel(ctx)
	arrived := make(chan read, 64)
	defer func() {
		stop()
		for range arrived { // until the reader has ended
		}
	}()
	go func() {
		defer close(arrived)
		for event, err := range events {
			select {
			case arrived <- read{event, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	tick := time.NewTicker(e.cfg.Every)
	defer tick.Stop()
	for {
		select {
		case r, more := <-arrived:
			if !more {
				return e.end(ctx)
			}
			if r.err != nil && r.event.Position == 0 {
				return ofBroker(r.err)
			}
			if err := e.add(ctx, &r); err != nil {
				return err
			}
		case <-tick.C:
			if e.cfg.Follow && e.archive.manifest.Pending == (span{}) {
				if err := e.compare(ctx); err != nil {
					return err
				}
				if err := e.store(e.last); err != nil {
					return err
				}
				if err := e.lookBehind(); err != nil {
					return err
				}
				if e.added >= compactFiles {
					if err := e.compact(); err != nil {
						return err
					}
				}
				tick.Reset(e.cfg.Every) // a slow place gets no file of its own for each event that arrived meanwhile
			}
		}
	}
}

// end stores the last span. An interrupted export stores what it has read only if it follows, because then ctx is its
// regular end.
func (e *exporter) end(ctx context.Context) error {
	if ctx.Err() != nil && !e.cfg.Follow {
		return context.Cause(ctx)
	}
	switch p := e.archive.manifest.Pending; {
	case p == (span{}):
	case ctx.Err() == nil:
		e.last = p.Last
	default:
		e.last = 0 // it may not be read to its end
	}
	if err := e.store(e.last); err != nil {
		return err
	}
	if err := e.lookBehind(); err != nil {
		return err
	}
	if e.cfg.Follow {
		return nil // it was stopped, and the next run compacts first
	}
	return e.compact()
}

// compact replaces small files by larger ones, where cfg asks for it.
func (e *exporter) compact() error {
	if !e.cfg.Compact {
		return nil
	}
	removed, waiting, err := e.archive.compact(e.storing)
	e.added, e.result.Compacted = waiting, e.result.Compacted+removed
	return err
}

// lookBehind notes how far the stream was read, if no event follows those in files.
func (e *exporter) lookBehind() error {
	ctx := e.storing
	last, err := streams.LastPositions(ctx, e.js, e.cfg.Generation)
	if err != nil {
		return nil //nolint:nilerr // the reading notices that the broker is away
	}
	cell := e.archive.cell()
	name := envelopes.CellName(e.cfg.Generation, cell)
	next := e.archive.manifest.Through - streams.PlaceOf(cell, 0) + 1
	_, err = broker.NextStored(ctx, e.js, streams.EventsStream(name), envelopes.EventFilter(name, "", "", ""), next)
	if !errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil
	}
	if m, end := &e.archive.manifest, streams.PlaceOf(cell, last.In(cell)); end > max(m.Read, m.Through) {
		m.Read = end
		return e.archive.save(ctx)
	}
	return nil
}

// add adds an event to the span, and stores the span when it is full.
func (e *exporter) add(ctx context.Context, r *read) error {
	at := streams.PlaceOf(r.event.Cell, r.event.Position)
	if p := e.archive.manifest.Pending; p != (span{}) && at > p.Last {
		if err := e.store(p.Last); err != nil {
			return err
		}
	}
	e.last, e.lastMark = at, events.MarkOf(&r.event)
	if e.firstMark.Position == 0 {
		e.firstMark = e.lastMark
	}
	if r.err != nil {
		e.result.Unreadable++
		e.cfg.Logger.WarnContext(ctx, "event cannot be read: it is not exported", "error", r.err)
	} else {
		if r.event.RecordGone {
			e.result.Gone++
		}
		row := newRow(e.cfg.Generation, &r.event, e.cfg.Raw)
		p := e.archive.partition(&row)
		e.rows[p] = append(e.rows[p], row)
		e.size += row.size()
	}
	switch p := e.archive.manifest.Pending; {
	case p != (span{}) && e.last < p.Last, e.size < e.cfg.SpanBytes && p == (span{}):
		return nil
	default:
		return e.store(e.last)
	}
}

// store stores the span that ends at a sequence, if it has events.
func (e *exporter) store(last uint64) error {
	if last == 0 {
		return nil
	}
	if streams.PlaceOf(e.archive.cell(), e.lastMark.Position) == last {
		e.archive.note(e.firstMark, e.lastMark)
	}
	rows, files, err := e.archive.store(e.storing, span{e.archive.manifest.Through + 1, last}, e.rows)
	if err != nil {
		return err
	}
	e.result.Events += rows
	e.result.Files += files
	e.added += files
	e.reset()
	return nil
}
