package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/rogpeppe/go-internal/lockedfile"
)

// lock locks a data folder, which it creates if it is missing, for this process alone.
func lock(dir string) (unlock func(), err error) {
	return lockFolder(dir, "data folder: pass another one with --data", "tributary up")
}

// lockFolder locks a folder, which it creates if it is missing, for this process alone. hint begins
// its errors, and command is what else locks the folder.
func lockFolder(dir, hint, command string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("%s: %w", hint, err)
	}
	type result struct {
		file *lockedfile.File
		err  error
	}
	got := make(chan result, 1)
	go func() { // blocks while another process has the lock; ends with the process
		f, err := lockedfile.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
		got <- result{f, err}
	}()
	select {
	case r := <-got:
		if r.err != nil {
			return nil, fmt.Errorf("%s: %w", hint, r.err)
		}
		return func() { r.file.Close() }, nil
	case <-time.After(time.Second):
		return nil, fmt.Errorf("%s is in use by another %s: stop that one (%s)", dir, command, hint)
	}
}
