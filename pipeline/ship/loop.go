package ship

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"tributary/pipeline/ship/database"
)

// A search waits for further notifications, long enough that a folder that changes all the time costs little. A
// search without a notification may cost even less.
const (
	searchDelay = 50 * time.Millisecond
	searchRatio = 20  // wait at least this many times as long as the last search took
	rescanRatio = 100 // the same when nothing is known to have changed
)

// loop knows the files of a pass, and hands each file that is found or changes to the workers.
type loop struct {
	*Ship

	files      map[string]*file     // by path
	databases  []*file              // those of the files
	queue      []*file              // due for a visit
	busy       int                  // visits in progress
	failed     map[string]bool      // folders that could not be read
	searched   time.Time            // start of the last search
	searchTook time.Duration        // duration of the last search
	dirs       map[string]time.Time // folders read by the last search, and when each had last changed
	watcher    *watcher
}

func newLoop(s *Ship) *loop {
	return &loop{Ship: s, files: make(map[string]*file), watcher: &watcher{}}
}

// run hands out files until ctx ends; with Once until none is left.
func (w *loop) run(ctx context.Context, found finder, visits chan<- *visit, done <-chan *visit) error {
	defer w.keepSaving(ctx)()
	second := time.NewTicker(time.Second)
	defer second.Stop()
	var looks, soon <-chan time.Time
	if !w.config.Once {
		w.watcher = newWatcher(ctx, w.config.Logger)
		defer w.watcher.close()
		ticker := time.NewTicker(w.config.Rescan)
		defer ticker.Stop()
		looks, soon = ticker.C, time.After(searchDelay) // finds what was created before its folder was watched
	}
	w.arrange(ctx, found)
	for {
		offer, next := w.next(visits)
		w.looping.End()
		if w.config.Once && offer == nil && w.busy == 0 {
			return nil
		}
		select {
		case offer <- next:
			w.dispatched(next)
		case v := <-done:
			w.returned(v)
		case e := <-w.watcher.events:
			w.looping.Begin()
			if w.notified(e) && soon == nil {
				soon = w.afterDelay()
			}
		case err := <-w.watcher.errors:
			w.config.Logger.DebugContext(ctx, "notifications of changes were lost: searching instead", "error", err)
			soon = w.afterDelay()
		case <-soon:
			w.looping.Begin()
			soon = nil
			w.search(ctx)
		case <-looks:
			w.looping.Begin()
			w.rescan(ctx)
		case <-second.C:
			w.looping.Begin()
			w.tally.behind(w.files)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// afterDelay returns a channel that signals when a notified search may begin.
func (w *loop) afterDelay() <-chan time.Time {
	return time.After(max(searchDelay, searchRatio*w.searchTook))
}

// Offsets are saved every second; after failures less and less often, down to a limit.
const (
	saveEvery  = time.Second
	saveAtMost = time.Minute
)

// keepSaving saves the offsets beside the loop until end is called.
func (w *loop) keepSaving(ctx context.Context) (end func()) {
	if w.config.DryRun {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var saving sync.WaitGroup
	saving.Go(func() {
		wait := saveEvery
		for {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return
			}
			err := w.offsetsFile.Save(w.offsets)
			w.tally.trouble(ofOffsets, err)
			if err == nil {
				wait = saveEvery
				continue
			}
			w.config.Logger.WarnContext(ctx, "offsets cannot be saved: a restart ships everything again", "error", err)
			wait = min(2*wait, saveAtMost)
		}
	})
	return func() { cancel(); saving.Wait() }
}

// next returns the visit that is due, and the channel to send it to; nil when no visit is
// due or all workers are busy.
func (w *loop) next(visits chan<- *visit) (chan<- *visit, *visit) {
	w.tally.wait(len(w.queue) + w.busy)
	i := slices.IndexFunc(w.queue, func(f *file) bool { return !w.waits(f) })
	if i < 0 || w.busy == w.config.Parallel {
		return nil, nil
	}
	f := w.queue[i]
	if i > 0 {
		w.queue = slices.Insert(slices.Delete(w.queue, i, i+1), 0, f)
	}
	return visits, &visit{Ship: w.Ship, f: f, log: f.log, gone: f.gone}
}

// waits reports whether a log waits until the databases of its agent were read once: a session may be in both, and the
// database has more of it.
func (w *loop) waits(f *file) bool {
	return !database.Is(f.log.path) && slices.ContainsFunc(w.databases, func(d *file) bool {
		return d.log.source == f.log.source && d.log.source != "" && !d.seen && (d.queued || d.busy)
	})
}

// dispatched notes that a worker has begun a visit.
func (w *loop) dispatched(v *visit) {
	w.queue = w.queue[1:]
	w.busy++
	v.f.queued, v.f.busy = false, true
	w.tally.unhold(v.f)
}

// returned notes that a worker has ended a visit.
func (w *loop) returned(v *visit) {
	f := v.f
	w.busy--
	f.busy, f.seen = false, true
	w.tally.passed(f)
	if !f.unreadable {
		f.unsent, f.since = 0, time.Time{}
		f.acked.Store(0)
	}
	if n := f.heldBack(); n > 0 && !v.gone {
		w.tally.hold(f, Held{Path: v.log.path, Bytes: n})
	}
	if f.log.path == v.log.path && os.SameFile(f.log.info, v.log.info) {
		f.log.info = v.log.info
	}
	switch {
	case v.gone:
		w.offsets.Release(f.offset.Inode, f)
	case f.again && f.parked == 0 || f.gone: // the parts of a large record come one by one, and each visit reads all of them
		w.enqueue(f)
	}
}

// enqueue makes a visit of f due; if f is being visited, another visit afterwards.
func (w *loop) enqueue(f *file) {
	switch {
	case f.busy:
		f.again = true
	case !f.queued:
		f.queued, f.again = true, false
		w.queue = append(w.queue, f)
	}
}

// notified reacts to a change in a watched folder. It reports whether a search is needed to find out what changed.
func (w *loop) notified(e fsnotify.Event) bool {
	if e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename) {
		w.watcher.forget(e.Name)
		return true
	}
	if !e.Has(fsnotify.Write) {
		return true
	}
	if f := w.files[e.Name]; f != nil {
		if f.busy || f.parked == 0 {
			w.enqueue(f)
		}
		return false
	}
	if path, ok := strings.CutSuffix(e.Name, "-wal"); ok && w.files[path] != nil {
		return true // a search, because a visit for each write would be too many
	}
	return !w.config.Since.IsZero() // until now the file may have been too old
}

// watcher reports changes in folders. The periodic search finds what it misses, and finds everything on systems
// without a watcher.
type watcher struct {
	events <-chan fsnotify.Event // nil without notifications
	errors <-chan error

	fs     *fsnotify.Watcher
	dirs   map[string]bool // true for the folders that are watched
	logger *slog.Logger
	failed bool // a failure was logged
}

// newWatcher returns a watcher that watches no folder yet.
func newWatcher(ctx context.Context, logger *slog.Logger) *watcher {
	w := &watcher{dirs: map[string]bool{}, logger: logger}
	switch runtime.GOOS {
	case "linux", "windows":
	default:
		return w // kqueue would keep every file of a folder open
	}
	fs, err := fsnotify.NewWatcher()
	if err != nil {
		w.fail(ctx, err)
		return w
	}
	w.fs, w.events, w.errors = fs, fs.Events, fs.Errors
	return w
}

// watch sets the folders that are watched.
func (w *watcher) watch(ctx context.Context, dirs map[string]time.Time) {
	if w.fs == nil {
		return
	}
	wanted := make(map[string]bool, len(dirs))
	for dir := range dirs {
		wanted[dir] = true
		if w.dirs[dir] {
			continue
		}
		if err := w.fs.Add(dir); err != nil {
			w.fail(ctx, err)
			wanted[dir] = false
		}
	}
	for dir := range w.dirs {
		if w.dirs[dir] && !wanted[dir] {
			_ = w.fs.Remove(dir) // fails when the folder is gone, and its watch with it
		}
	}
	w.dirs = wanted
}

// forget notes that a folder was removed, so that it is watched again if it comes back.
func (w *watcher) forget(dir string) { delete(w.dirs, dir) }

// fail logs once that some changes are not reported.
func (w *watcher) fail(ctx context.Context, err error) {
	if w.failed {
		return
	}
	w.failed = true
	switch {
	case errors.Is(err, syscall.ENOSPC):
		err = fmt.Errorf("too many folders are watched on this machine: raise the sysctl fs.inotify.max_user_watches: %w", err)
	case errors.Is(err, syscall.EMFILE):
		err = fmt.Errorf("too much is watched on this machine: raise the sysctl fs.inotify.max_user_instances, or the limit of open files: %w", err)
	}
	w.logger.WarnContext(ctx, "some folders cannot be watched: the periodic search finds their changes", "error", err)
}

// close ends the notifications.
func (w *watcher) close() {
	if w.fs != nil {
		_ = w.fs.Close() // no data to lose
	}
}
