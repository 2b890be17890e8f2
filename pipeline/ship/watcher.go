package ship

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

// watcher notifies changes in folders. The periodic search finds what it misses, and
// everything on systems where it is not used.
type watcher struct {
	events <-chan fsnotify.Event // nil when nothing is notified
	errors <-chan error

	fs     *fsnotify.Watcher
	dirs   map[string]bool // true for the folders that are watched
	logger *slog.Logger
	failed bool // and that was logged
}

// newWatcher returns a watcher of no folders.
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
			_ = w.fs.Remove(dir) // an error means that the folder is gone, and its watch with it
		}
	}
	w.dirs = wanted
}

// forget notes that a folder was removed, so that it is watched again if it comes back.
func (w *watcher) forget(dir string) { delete(w.dirs, dir) }

// fail logs once that not all changes are notified.
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
	w.logger.WarnContext(ctx, "not all changes of logs are notified: a search finds them a little later", "error", err)
}

// close ends the notifications.
func (w *watcher) close() {
	if w.fs != nil {
		_ = w.fs.Close() // nothing can be lost
	}
}
