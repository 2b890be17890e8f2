package pipelinetest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// StoreCopy is a copy of the streams of a [Server] at one moment, like a snapshot of the disk.
type StoreCopy struct {
	server *Server
	dir    string
}

// CopyStore copies the streams. It restarts the server.
func (s *Server) CopyStore() *StoreCopy {
	s.tb.Helper()
	c := &StoreCopy{server: s, dir: filepath.Join(s.tb.TempDir(), "streams")}
	s.Stop()
	if err := copyFolder(c.dir, s.streams()); err != nil {
		s.tb.Fatalf("copy the store: %v", err)
	}
	s.Start()
	return c
}

// copyFolder copies a folder without what is removed meanwhile: timers of a stopped server still remove batches that
// were not committed.
func copyFolder(to, from string) error {
	return filepath.WalkDir(from, func(name string, entry fs.DirEntry, err error) error {
		var data []byte
		if err == nil && !entry.IsDir() {
			data, err = os.ReadFile(name)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		copied := filepath.Join(to, strings.TrimPrefix(name, from))
		if entry.IsDir() {
			return os.MkdirAll(copied, 0o700)
		}
		return os.WriteFile(copied, data, 0o600)
	})
}

// PutBack restores streams from the copy. It restarts the server; to clients the streams seem to have gone back in
// time.
func (c *StoreCopy) PutBack(streams ...string) {
	s := c.server
	s.tb.Helper()
	s.Stop()
	for _, name := range streams {
		dir := filepath.Join(s.streams(), name)
		err := os.RemoveAll(dir)
		if err == nil {
			err = os.CopyFS(dir, os.DirFS(filepath.Join(c.dir, name)))
		}
		if err != nil {
			s.tb.Fatalf("put stream %s back: %v", name, err)
		}
	}
	s.Start()
}

// streams is the folder in which the server keeps its streams, one folder each.
func (s *Server) streams() string { return filepath.Join(s.cfg.StoreDir, "jetstream", "$G", "streams") }
