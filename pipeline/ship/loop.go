package ship

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// A search that a notification asks for waits for further ones. It waits long enough that
// a folder that changes all the time costs little. A search that nothing asks for costs even
// less.
const (
	searchDelay = 50 * time.Millisecond
	searchRatio = 20  // at least this many times as long as the last search took
	rescanRatio = 100 // the same, when nothing is known to have changed
)

// loop hands files to the workers: each file that is found, and each that changes.
func (s *Ship) loop(ctx context.Context, found finder, visits chan<- *visit, done <-chan *visit) error {
	defer s.keepSaving(ctx)()
	second := time.NewTicker(time.Second)
	defer second.Stop()
	var looks, soon <-chan time.Time
	if !s.config.Once {
		s.watcher = newWatcher(ctx, s.config.Logger)
		defer s.watcher.close()
		ticker := time.NewTicker(s.config.Rescan)
		defer ticker.Stop()
		looks, soon = ticker.C, time.After(searchDelay) // finds what was created before its folder was watched
	}
	s.arrange(ctx, found)
	for {
		offer, next := s.next(visits)
		s.looping.End()
		if s.config.Once && offer == nil && s.busy == 0 {
			return nil
		}
		select {
		case offer <- next:
			s.dispatched(next)
		case v := <-done:
			s.returned(v)
		case e := <-s.watcher.events:
			s.looping.Begin()
			if s.notified(e) && soon == nil {
				soon = s.afterDelay()
			}
		case err := <-s.watcher.errors:
			s.config.Logger.DebugContext(ctx, "notifications of changes were lost: searching instead", "error", err)
			soon = s.afterDelay()
		case <-soon:
			s.looping.Begin()
			soon = nil
			s.search(ctx)
		case <-looks:
			s.looping.Begin()
			s.rescan(ctx)
		case <-second.C:
			s.looping.Begin()
			s.tally.behind(s.files)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// afterDelay signals when it is time for a search that a notification asks for.
func (s *Ship) afterDelay() <-chan time.Time {
	return time.After(max(searchDelay, searchRatio*s.searchTook))
}

// Offsets are saved each second; after a failure later and later, up to a limit.
const (
	saveEvery  = time.Second
	saveAtMost = time.Minute
)

// keepSaving saves the offsets beside the loop, until the function that it returns is called.
func (s *Ship) keepSaving(ctx context.Context) (end func()) {
	if s.config.DryRun {
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
			err := s.offsetsFile.save(s.offsets)
			if err == nil {
				wait = saveEvery
				continue
			}
			s.tally.trouble(err)
			s.config.Logger.WarnContext(ctx, "offsets cannot be saved: a restart ships everything again", "error", err)
			wait = min(2*wait, saveAtMost)
		}
	})
	return func() { cancel(); saving.Wait() }
}

// next returns the visit that is due, and the channel to send it to; nil when no visit is
// due or all workers are busy.
func (s *Ship) next(visits chan<- *visit) (chan<- *visit, *visit) {
	s.tally.wait(len(s.queue) + s.busy)
	if len(s.queue) == 0 || s.busy == s.config.Parallel {
		return nil, nil
	}
	f := s.queue[0]
	return visits, &visit{Ship: s, f: f, log: f.log, gone: f.gone}
}

// dispatched notes that a worker has begun a visit.
func (s *Ship) dispatched(v *visit) {
	s.queue = s.queue[1:]
	s.busy++
	v.f.queued, v.f.busy = false, true
	s.tally.unhold(v.f)
}

// returned notes that a worker has ended a visit.
func (s *Ship) returned(v *visit) {
	f := v.f
	s.busy--
	f.busy = false
	s.tally.passed(f)
	if !f.unreadable {
		f.unsent, f.since = 0, time.Time{}
		f.acked.Store(0)
	}
	if n := f.heldBack(); n > 0 && !v.gone {
		s.tally.hold(f, Held{Path: v.log.path, Bytes: n})
	}
	if f.log.path == v.log.path && os.SameFile(f.log.info, v.log.info) {
		f.log.info = v.log.info
	}
	switch {
	case v.gone:
		s.offsets.release(f)
	case f.again && f.parked == 0 || f.gone: // the parts of a large record come one by one, and each visit reads all of them
		s.enqueue(f)
	}
}

// enqueue makes a visit of f due; during a visit, another one after it.
func (s *Ship) enqueue(f *file) {
	switch {
	case f.busy:
		f.again = true
	case !f.queued:
		f.queued, f.again = true, false
		s.queue = append(s.queue, f)
	}
}

// notified reacts to a change in a watched folder, and reports whether only a search can
// find out what it means.
func (s *Ship) notified(e fsnotify.Event) bool {
	if e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename) {
		s.watcher.forget(e.Name)
		return true
	}
	if !e.Has(fsnotify.Write) {
		return true
	}
	if f := s.files[e.Name]; f != nil {
		if f.busy || f.parked == 0 {
			s.enqueue(f)
		}
		return false
	}
	return !s.config.Since.IsZero() // the file may have been too old until now
}
