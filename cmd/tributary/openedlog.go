package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"tributary/cmd/internal/terminal"
	"tributary/normalizers"
)

// stdio is the argument that names standard input, or standard output.
const stdio = "-"

// filesError is the error of files that could not be normalized. It unwraps to the error of the last one.
type filesError struct {
	count int
	last  error
}

func (e filesError) Error() string {
	return terminal.Plural(e.count, "file") + " could not be normalized"
}

func (e filesError) Unwrap() error { return e.last }

// openedLog is an open log, unpacked.
type openedLog struct {
	io.Reader
	io.Closer
	stored bool // in a file, where no read waits for a writer
}

// openLog opens a log and sets the name, the folder and the modification time in file.
func openLog(a *app, path string, file *normalizers.File) (*openedLog, error) {
	if path == stdio {
		file.Name, file.Path, file.Modified = "stdin", "stdin", time.Unix(0, 0).UTC()
		return &openedLog{Reader: a.stdin, Closer: io.NopCloser(nil)}, nil
	}
	in, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := in.Stat()
	if err == nil && info.IsDir() {
		err = usageError{fmt.Errorf("%s is a folder: name a file, or ship the folder", path)}
	}
	if err != nil {
		in.Close()
		return nil, err
	}
	name := normalizers.Unpacked(filepath.Base(path))
	file.Name, file.Path, file.Modified = name, name, info.ModTime()
	if abs, err := filepath.Abs(path); err == nil {
		file.Folder = filepath.ToSlash(filepath.Dir(abs))
	}
	unpacked, err := normalizers.Unpack(path, in)
	if err != nil {
		in.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &openedLog{unpacked, in, info.Mode().IsRegular()}, nil
}
