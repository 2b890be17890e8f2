package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gofrs/flock"
)

// lock locks a folder for this process, and creates a missing folder. The system releases the lock when the process
// ends. The error names the process that has the lock, and cure, an alternative to ending that process.
func lock(dir, cure string) (unlock func(), err error) {
	failed := func(err error) error { return fmt.Errorf("data folder: %s: %w", cure, err) }
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, failed(err)
	}
	l := flock.New(filepath.Join(dir, "lock"), flock.SetPermissions(0o600))
	locked, err := l.TryLock()
	if err != nil {
		return nil, failed(err)
	}
	// The process id is in a separate file: some systems let nobody read a locked file.
	pid := filepath.Join(dir, "pid")
	if !locked {
		owner := "another process"
		if text, err := os.ReadFile(pid); err == nil {
			owner = "process " + strings.TrimSpace(string(text))
		}
		return nil, fmt.Errorf("%s is in use by %s: stop that one, or %s", dir, owner, cure)
	}
	if err := os.WriteFile(pid, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600); err != nil {
		_ = l.Unlock() // ends with the process anyway
		return nil, failed(err)
	}
	return func() { _ = l.Unlock() }, nil
}
