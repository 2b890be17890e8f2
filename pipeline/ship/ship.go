// Package ship is the edge: it finds the logs of coding agents on this machine, follows
// them, and publishes every record once to the raw stream, in the order of its file.
//
// Start with [Ship.Run], one loop that decides which file is looked at, and visit, what
// is done with it. The invariant: an offset is remembered only after the broker has
// acknowledged all before it. So a record may be sent twice, after a crash or a lost
// acknowledgement, but never lost; and the second time it is known, by its message id
// within the broker's duplicate window, by its position in its file ever after.
//
// Non-obvious:
//   - No framing state is stored. What a record needs of the lines before it (source,
//     session, time) is regained by reading the file again from its start.
//   - A file has two identities. On this machine it is its inode and its begin, so that
//     a rename changes nothing; for the stage it is its path below the vendor's root and
//     its first line, so that losing the offsets changes nothing.
//   - A pipe is no file: it is one for itself, it cannot be read again, and what has come
//     of it is sent even when the Ship is told to stop.
//   - No file is held open between two visits: a file that is renamed is found again by
//     its inode.
package ship

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"golang.org/x/sync/errgroup"

	"tributary/envelopes"
	"tributary/pipeline"
)

// Config says what a [Ship] ships, and how. Only Roots, Paths or Input must be set.
type Config struct {
	Roots  []Root           // where vendors keep their logs; searched when there are no Paths
	Paths  []string         // files of any name, and folders with nothing but logs
	Source envelopes.Source // only logs of it, and what Paths are; empty to tell by root or content
	Since  time.Time        // leaves out files that were not written to since

	Input     io.Reader  // shipped to its end, instead of files
	Discovery *Discovery // finds the session of Input where that is the plain text of Copilot; nil for none

	Once    bool   // ship what is there and return, instead of following
	DryRun  bool   // send nothing and remember nothing; as Once
	Offsets string // file that keeps how far each log is shipped; empty to keep it in memory

	Idle   time.Duration // without a write after which a session's end is sent; default 5 minutes
	Rescan time.Duration // between two searches for what was not notified; default 5 seconds

	Parallel     int // files at a time; default 16
	BatchRecords int // in one batch, up to 1000, which is the default
	BatchBytes   int // of records in one batch; default 4 MiB

	Logger   *slog.Logger  // nil for silence
	Tracer   trace.Tracer  // nil for no traces
	Progress func(Summary) // told after every change, one at a time; must not block nor ask for the Summary
}

// withDefaults returns c with its defaults filled in.
func (c Config) withDefaults() Config {
	c.Once = c.Once || c.DryRun
	c.Roots = slices.Clone(c.Roots)
	orElse(&c.Idle, 5*time.Minute)
	orElse(&c.Rescan, 5*time.Second)
	orElse(&c.Parallel, 16)
	orElse(&c.BatchRecords, pipeline.MaxBatch)
	c.BatchRecords = min(c.BatchRecords, pipeline.MaxBatch)
	orElse(&c.BatchBytes, 4<<20)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Tracer == nil {
		c.Tracer = noop.NewTracerProvider().Tracer("")
	}
	return c
}

func orElse[T int | time.Duration](value *T, standard T) {
	if *value <= 0 {
		*value = standard
	}
}

// Ship publishes logs to the raw stream. Make one with [New], run it once.
type Ship struct {
	config    Config
	publisher *publisher
	offsets   *offsets
	tally     *tally

	// These belong to the loop.
	files   map[string]*file // by path
	queue   []*file          // waiting for a worker
	busy    int              // files that a worker has
	torn    map[*file]bool   // that end in an unfinished record, and that no worker has
	failed  map[string]bool  // folders that could not be read
	took    time.Duration    // of the last search
	watcher *watcher
}

// New returns a Ship that publishes through nc, which may be nil for a dry run. The
// connection should reconnect for ever; it stays the caller's.
func New(nc *nats.Conn, c Config) (*Ship, error) {
	c = c.withDefaults()
	if len(c.Paths) == 0 && len(c.Roots) == 0 && c.Input == nil {
		return nil, ErrNothingToShip
	}
	s := &Ship{
		config:    c,
		tally:     &tally{report: c.Progress, sum: Summary{Refused: map[Reason]int{}}, sessions: map[session]struct{}{}},
		publisher: &publisher{nc: nc, records: c.BatchRecords, bytes: c.BatchBytes, logger: c.Logger, submitted: make(chan *submission)},
		files:     map[string]*file{},
		torn:      map[*file]bool{},
		watcher:   &watcher{},
	}
	s.publisher.stalled = func(err error) { s.tally.change(func(sum *Summary) { sum.Stalled = err }) }
	if c.DryRun {
		return s, nil
	}
	var err error
	s.publisher.js, err = jetstream.New(nc)
	s.publisher.claims = pipeline.NewClaims(s.publisher.js)
	return s, err
}

// Summary returns what was done so far. It may be called at any time.
func (s *Ship) Summary() Summary { return s.tally.summary() }

// Run ships until ctx ends, and returns nil then; with Once until all there is is
// acknowledged, and returns the error of ctx if that ends before. Other errors are a
// path that does not exist, offsets that cannot be read or written, and [ErrClosed].
// What is wrong with single files or records is no error but in the [Summary]. An input
// is shipped until it ends too, and what has come of it even after ctx has ended.
func (s *Ship) Run(ctx context.Context) error {
	if s.config.Input != nil {
		return s.runPipe(ctx)
	}
	var err error
	if s.offsets, err = openOffsets(ctx, s.config.Offsets, s.config.Logger); err != nil {
		return err
	}
	found, err := find(s.config)
	if err != nil {
		return err
	}
	err = s.work(ctx, found)
	if !s.config.Once && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = nil
	}
	if s.config.DryRun {
		return err
	}
	if len(s.config.Paths) == 0 && s.config.Source == "" && s.config.Since.IsZero() && len(s.queue) == 0 {
		s.offsets.prune() // every file was looked for: what was moved is known where it is now
	}
	return errors.Join(err, s.offsets.save())
}

// work runs the loop and its workers.
func (s *Ship) work(ctx context.Context, found finder) error {
	if !s.config.DryRun {
		if err := s.publisher.connected(ctx); err != nil {
			return err
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	visits := make(chan *visit)
	done := make(chan *visit, s.config.Parallel) // no worker waits for a loop that has ended
	var workers sync.WaitGroup
	workers.Add(s.config.Parallel)
	for range s.config.Parallel {
		g.Go(func() error {
			defer workers.Done()
			buf := make([]byte, readBytes)
			for v := range visits {
				v.buf = buf
				err := v.run(ctx)
				done <- v
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	g.Go(func() error {
		defer close(visits)
		return s.loop(ctx, found, visits, done)
	})
	g.Go(func() error {
		workers.Wait()
		close(s.publisher.submitted)
		return nil
	})
	g.Go(func() error {
		s.publisher.run(ctx)
		return nil
	})
	return g.Wait()
}

// readBytes is how much of a file is read at once.
const readBytes = 256 << 10

// A search that was asked for by a change waits for further changes: for long enough
// that a folder in which something happens all the time costs little.
const (
	gather    = 50 * time.Millisecond
	restRatio = 20 // of the time between two searches to the time that one takes
)

// loop gives files to the workers: each that is found, and then each that changes.
func (s *Ship) loop(ctx context.Context, found finder, visits chan<- *visit, done <-chan *visit) error {
	save := time.NewTicker(time.Second)
	defer save.Stop()
	var rescan, soon <-chan time.Time
	if !s.config.Once {
		s.watcher = newWatcher(ctx, s.config.Logger)
		defer s.watcher.close()
		ticker := time.NewTicker(s.config.Rescan)
		defer ticker.Stop()
		rescan, soon = ticker.C, time.After(gather) // what came to be before it was watched
	}
	s.arrange(ctx, found)
	saved := true
	for {
		offer, next := s.next(visits)
		if s.config.Once && offer == nil && s.busy == 0 {
			return nil
		}
		select {
		case offer <- next:
			s.dispatched(next)
		case v := <-done:
			s.returned(v)
		case e := <-s.watcher.events:
			if s.notified(e) && soon == nil {
				soon = time.After(max(gather, restRatio*s.took))
			}
		case err := <-s.watcher.errors:
			s.config.Logger.DebugContext(ctx, "changes of logs were missed: searched instead", "error", err)
			soon = time.After(max(gather, restRatio*s.took))
		case <-soon:
			soon = nil
			s.search(ctx)
		case <-rescan:
			s.search(ctx)
		case <-save.C:
			err := s.offsets.save()
			if err != nil && saved {
				s.config.Logger.WarnContext(ctx, "offsets are not kept: after a restart all is shipped again", "error", err)
			}
			saved = err == nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// next returns the visit that a worker shall make, and where to send it; nil when there
// is none or all are at work.
func (s *Ship) next(visits chan<- *visit) (chan<- *visit, *visit) {
	s.tally.wait(len(s.queue) + s.busy + len(s.torn))
	if len(s.queue) == 0 || s.busy == s.config.Parallel {
		return nil, nil
	}
	f := s.queue[0]
	return visits, &visit{Ship: s, f: f, log: f.log, gone: f.gone}
}

func (s *Ship) dispatched(v *visit) {
	s.queue = s.queue[1:]
	s.busy++
	v.f.queued, v.f.busy = false, true
	delete(s.torn, v.f)
}

func (s *Ship) returned(v *visit) {
	f := v.f
	s.busy--
	f.busy = false
	s.tally.passed(f)
	if f.torn && !v.gone {
		s.torn[f] = true
	}
	if f.log.path == v.log.path && os.SameFile(f.log.info, v.log.info) {
		f.log.info = v.log.info
	}
	switch {
	case v.gone:
		s.offsets.release(f)
	case f.again || f.gone:
		s.enqueue(f)
	}
}

// enqueue lets a worker visit f, once more if one is there already.
func (s *Ship) enqueue(f *file) {
	switch {
	case f.busy:
		f.again = true
	case !f.queued:
		f.queued, f.again = true, false
		s.queue = append(s.queue, f)
	}
}

// notified reacts to a change in a watched folder, and reports whether it takes a search
// to find out what it means.
func (s *Ship) notified(e fsnotify.Event) bool {
	if e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename) {
		s.watcher.forget(e.Name)
		return true
	}
	if !e.Has(fsnotify.Write) {
		return true
	}
	if f := s.files[e.Name]; f != nil {
		s.enqueue(f)
		return false
	}
	return !s.config.Since.IsZero() // it may have been too old before
}

// search looks for what has changed, and visits the active files that have gone idle.
func (s *Ship) search(ctx context.Context) {
	start := time.Now()
	found, _ := find(s.config) // a path that is gone is a file that is gone
	s.arrange(ctx, found)
	s.took = time.Since(start)
	for _, f := range s.files {
		if !f.busy && f.framer != nil && f.idle(f.log.info, s.config.Idle) {
			s.enqueue(f)
		}
	}
}

// arrange takes in what a search has found: files that are new, changed, moved or gone.
func (s *Ship) arrange(ctx context.Context, found finder) {
	s.watcher.watch(ctx, found.dirs)
	failed := map[string]bool{}
	for _, r := range found.failed {
		failed[r.Path] = true
		if !s.failed[r.Path] {
			s.refuse(ctx, r)
		}
	}
	s.failed = failed

	before := s.files
	s.files = make(map[string]*file, len(found.logs))
	var fresh []log
	for _, l := range found.logs {
		f := before[l.path]
		if f == nil || !os.SameFile(f.log.info, l.info) {
			fresh = append(fresh, l)
			continue
		}
		delete(before, l.path)
		s.place(f, l)
	}
	added := make(map[string]*file, len(fresh))
	for _, l := range fresh {
		added[l.path] = &file{prior: s.offsets.at(l.path)}
	}
	listed := folders{}
	for _, f := range before { // what is left is not where it was
		i := slices.IndexFunc(fresh, func(l log) bool { return os.SameFile(f.log.info, l.info) })
		if i >= 0 {
			s.place(f, fresh[i])
			fresh = slices.Delete(fresh, i, i+1)
			continue
		}
		s.lost(f, listed)
	}
	files := make([]*file, len(fresh))
	for i, l := range fresh {
		files[i] = added[l.path]
		s.place(files[i], l)
	}
	s.tally.found(files)
}

// place puts a file where it was found, and visits it if it is not as it was.
func (s *Ship) place(f *file, l log) {
	changed := f.log.info == nil || f.log.path != l.path ||
		f.log.info.Size() != l.info.Size() || !f.log.info.ModTime().Equal(l.info.ModTime())
	f.log = l
	s.files[l.path] = f
	if changed || !f.busy && f.retry {
		s.enqueue(f)
	}
}

// lost follows a file that no search finds any more: it was rotated to a name that is
// none of a log, or deleted. What is unread of it is read to its end.
func (s *Ship) lost(f *file, listed folders) {
	active := f.busy || f.queued || f.framer != nil
	if l, ok := listed.elsewhere(f.log); ok && (active || f.grown(l)) {
		s.place(f, l)
		return
	}
	if active {
		f.gone = true
		s.enqueue(f)
		return
	}
	delete(s.torn, f)
	s.tally.passed(f)
	s.offsets.release(f)
}

// folders are the files of folders, by path, each folder read once.
type folders map[string]map[string]fs.FileInfo

// elsewhere finds a file under another name in its folder. What is no file is another
// thing, although it may have got the inode of one that was deleted.
func (d folders) elsewhere(l log) (log, bool) {
	dir := filepath.Dir(l.path)
	if d[dir] == nil {
		d[dir] = map[string]fs.FileInfo{}
		entries, _ := os.ReadDir(dir) // what cannot be read holds nothing
		for _, e := range entries {
			if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
				d[dir][filepath.Join(dir, e.Name())] = info
			}
		}
	}
	for path, info := range d[dir] {
		if os.SameFile(info, l.info) {
			l.path, l.info, l.strayed = path, info, true
			return l, true
		}
	}
	return l, false
}

// grown reports whether a file that was idle holds more at l than is shipped, and is no
// other one on its inode.
func (f *file) grown(l log) bool {
	if f.offset.Done == 0 || l.info.Size() <= f.offset.Done {
		return false
	}
	r, err := open(l.path)
	if err != nil {
		return false
	}
	defer r.Close()
	_, id, begin, err := examine(r, make([]byte, headBytes))
	return err == nil && id == f.offset.inode && f.offset.Head.begins(begin)
}

// refuse counts a refusal and tells it.
func (s *Ship) refuse(ctx context.Context, r Refusal) {
	s.tally.refuse(r)
	where := []any{"path", r.Path}
	if r.Line > 0 {
		where = append(where, "line", r.Line)
	}
	s.config.Logger.With(where...).WarnContext(ctx, "not shipped", "reason", r.Reason, "error", r.Err)
}
