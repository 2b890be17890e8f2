package ship

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"syscall"

	"github.com/fsnotify/fsnotify"
)

// watcher tells when something changes in a folder. What it misses, and where it cannot
// work at all, the periodic search finds a little later.
type watcher struct {
	events <-chan fsnotify.Event // nil when there are none to come
	errors <-chan error

	fs     *fsnotify.Watcher
	dirs   map[string]bool // that are watched
	logger *slog.Logger
	failed bool
}

// newWatcher begins to watch nothing.
func newWatcher(ctx context.Context, logger *slog.Logger) *watcher {
	w := &watcher{dirs: map[string]bool{}, logger: logger}
	switch runtime.GOOS {
	case "linux", "windows":
	default:
		return w // kqueue would hold every file of a folder open
	}
	fs, err := fsnotify.NewWatcher()
	if err != nil {
		w.fail(ctx, err)
		return w
	}
	w.fs, w.events, w.errors = fs, fs.Events, fs.Errors
	return w
}

// watch makes the watched folders those of dirs.
func (w *watcher) watch(ctx context.Context, dirs []string) {
	if w.fs == nil {
		return
	}
	wanted := make(map[string]bool, len(dirs))
	for _, dir := range dirs {
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
			_ = w.fs.Remove(dir) // an error says that it is gone, and its watch with it
		}
	}
	w.dirs = wanted
}

// forget lets a folder be watched anew: it was removed, and may come again.
func (w *watcher) forget(dir string) { delete(w.dirs, dir) }

// fail tells once that changes are not notified, or not all of them.
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
	w.logger.WarnContext(ctx, "changes of logs are not all notified: they are found a little later, by searching", "error", err)
}

func (w *watcher) close() {
	if w.fs != nil {
		_ = w.fs.Close() // nothing is left to lose
	}
}
