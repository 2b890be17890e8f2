package ship

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"tributary/pipeline/ship/database"
	"tributary/pipeline/ship/offsets"
)

// search finds changes, and enqueues the active files that are idle now.
func (w *loop) search(ctx context.Context) {
	start := time.Now()
	found, _ := find(w.config) // the error names paths that are gone; their files are handled as lost
	w.arrange(ctx, found)
	w.searched = time.Now()
	w.searchTook = w.searched.Sub(start)
	for _, f := range w.files {
		w.enqueueIdle(f)
	}
}

// enqueueIdle enqueues a file that is active and idle now.
func (w *loop) enqueueIdle(f *file) {
	if !f.busy && f.active() && f.idle(f.log.info, w.config.Idle) {
		w.enqueue(f)
	}
}

// rescan finds changes without a notification. It searches, unless the last search took so long that repeating it
// would cost too much: then it checks only the active files and the folders, and searches if those changed.
func (w *loop) rescan(ctx context.Context) {
	rest := time.Since(w.searched)
	if rest >= rescanRatio*w.searchTook || w.look() && rest >= searchRatio*w.searchTook {
		w.search(ctx)
	}
}

// look enqueues the active files that have changed or are idle, and those to be tried again. It reports whether a
// folder has changed, or one of these files is no longer at its path.
func (w *loop) look() (changed bool) {
	for _, f := range w.files {
		switch {
		case f.busy || !f.active() && !f.retry:
			continue
		case f.retry:
			w.enqueue(f)
		}
		l := f.log
		info, err := os.Stat(l.path)
		if err != nil || !os.SameFile(info, l.info) {
			changed = true
			continue
		}
		l.setInfo(info)
		w.observe(f, l)
		w.enqueueIdle(f)
	}
	for dir, modified := range w.dirs {
		if modified.IsZero() {
			continue
		}
		if info, err := os.Stat(dir); err != nil || !info.ModTime().Equal(modified) {
			return true
		}
	}
	return changed
}

// arrange applies what a search has found: folders to watch, and files that are new,
// changed, renamed or lost.
func (w *loop) arrange(ctx context.Context, found finder) {
	w.dirs = found.dirs
	w.watcher.watch(ctx, found.dirs)
	w.refuseFolders(ctx, found.failed)
	missing, fresh := w.matchPaths(found.logs)
	prior := make(map[string]offsets.Offset, len(fresh))
	for _, l := range fresh {
		prior[l.path] = w.offsets.At(l.path) // read before the offset of a lost file is dropped
	}
	fresh = w.matchRenamed(missing, fresh)
	files := make([]*file, len(fresh))
	for i, l := range fresh {
		files[i] = &file{prior: prior[l.path]}
		w.observe(files[i], l)
		if files[i].unsent = unsent(prior[l.path], l); files[i].unsent > 0 {
			files[i].since = l.info.ModTime()
		}
	}
	w.tally.found(files)
	w.databases = nil
	for path, f := range w.files {
		if database.Is(path) {
			w.databases = append(w.databases, f)
		}
	}
}

// unsent estimates how many bytes of l, which is at the path of o, are not shipped.
func unsent(o offsets.Offset, l log) int64 {
	modified, size := l.info.ModTime().UnixNano(), l.info.Size()
	switch {
	case database.Is(l.path):
		if o.Unchanged(l.stamp.Modified, l.stamp.Size) {
			return 0
		}
	case !rewritable(l.path):
		return max(0, size-o.Done)
	case o.Ended && o.Unchanged(modified, size):
		return 0
	}
	return size
}

// refuseFolders reports each path that a search could not read, once until it can be read.
func (w *loop) refuseFolders(ctx context.Context, refusals []Refusal) {
	failed := map[string]bool{}
	for _, r := range refusals {
		failed[r.Path] = true
		if !w.failed[r.Path] {
			w.refuse(ctx, r)
		}
	}
	for path := range w.failed {
		if !failed[path] {
			w.tally.trouble(path, nil)
		}
	}
	w.failed = failed
}

// matchPaths updates the files that a search found at their old paths. It returns the files that are missing, by
// path, and the logs that are new at their paths.
func (w *loop) matchPaths(logs []log) (missing map[string]*file, fresh []log) {
	missing = w.files
	w.files = make(map[string]*file, len(logs))
	for _, l := range logs {
		f := missing[l.path]
		if f == nil || !os.SameFile(f.log.info, l.info) {
			fresh = append(fresh, l)
			continue
		}
		delete(missing, l.path)
		w.observe(f, l)
	}
	return missing, fresh
}

// matchRenamed updates the missing files that were found at another path, and follows the others as lost. It returns
// the logs that match no known file.
func (w *loop) matchRenamed(missing map[string]*file, fresh []log) []log {
	listed := folders{}
	for path, f := range missing {
		w.tally.trouble(path, nil)
		i := slices.IndexFunc(fresh, func(l log) bool { return os.SameFile(f.log.info, l.info) })
		if i < 0 {
			w.lost(f, listed)
			continue
		}
		w.observe(f, fresh[i])
		fresh = slices.Delete(fresh, i, i+1)
	}
	return fresh
}

// observe notes where a search found a file, and enqueues the file if it changed.
func (w *loop) observe(f *file, l log) {
	changed := f.log.info == nil || f.log.path != l.path ||
		f.log.info.Size() != l.info.Size() || !f.log.info.ModTime().Equal(l.info.ModTime()) || f.log.stamp != l.stamp
	if changed {
		f.unsent = max(f.unsent, l.info.Size()-f.size())
		if f.unsent > 0 && f.since.IsZero() {
			f.since = l.info.ModTime()
		}
	}
	f.log = l
	w.files[l.path] = f
	if changed || !f.busy && f.retry {
		w.enqueue(f)
	}
}

// lost follows a file that no search finds any more: it was deleted, rotated to a name that no log has, or another log
// has all of it since. The unread rest of a rotated file is read.
func (w *loop) lost(f *file, listed folders) {
	active := f.busy || f.queued || f.active()
	places := finder{config: w.config}
	repeated := places.place(f.log.path).isRepeated(f.log.path)
	if l, ok := listed.elsewhere(f.log); ok && !repeated && (active || f.grown(l)) {
		w.observe(f, l)
		return
	}
	if active {
		f.gone = true
		w.enqueue(f)
		return
	}
	w.tally.unhold(f)
	w.tally.passed(f)
	w.offsets.Release(f.offset.Inode, f)
}

// folders holds the files of folders, by path. Each folder is read once.
type folders map[string]map[string]fs.FileInfo

// elsewhere finds a file under another name in its folder. Only a regular file counts: anything else reuses the inode
// of a deleted file.
func (d folders) elsewhere(l log) (log, bool) {
	for path, info := range d.list(filepath.Dir(l.path)) {
		if os.SameFile(info, l.info) {
			l.path, l.info, l.strayed = path, info, true
			return l, true
		}
	}
	return l, false
}

// list returns the regular files of a folder; none if the folder cannot be read.
func (d folders) list(dir string) map[string]fs.FileInfo {
	if d[dir] == nil {
		d[dir] = map[string]fs.FileInfo{}
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
				d[dir][filepath.Join(dir, e.Name())] = info
			}
		}
	}
	return d[dir]
}

// grown reports whether an idle file has more content at l than was shipped, and l is not another file on the same
// inode.
func (f *file) grown(l log) bool {
	if f.offset.Done == 0 || l.info.Size() <= f.offset.Done {
		return false
	}
	r, err := offsets.Open(l.path)
	if err != nil {
		return false
	}
	defer r.Close()
	seen, err := examine(r, make([]byte, offsets.HeadBytes))
	return err == nil && seen.id == f.offset.Inode && f.offset.Head.Begins(seen.head)
}
