package objects

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Folder is a folder as a [Store]. An object is a file, which appears when it is complete.
type Folder struct{ Dir string }

// temporary begins the name of a file that is being written.
const temporary = ".tmp-"

// String is the name of the folder.
func (f Folder) String() string { return f.Dir }

// Put implements [Store]. The folder is made if it does not exist.
func (f Folder) Put(_ context.Context, name string, data []byte) error {
	to := f.file(name)
	dir := filepath.Dir(to)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	file, err := os.CreateTemp(dir, temporary)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), to)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return f.sync(dir)
}

// sync makes the names in a folder durable, and that of each folder above it that Put may have made.
func (f Folder) sync(dir string) error {
	for {
		d, err := os.Open(dir)
		if err != nil {
			return err
		}
		_ = d.Sync() // not every file system can
		if err := d.Close(); err != nil {
			return err
		}
		if len(dir) <= len(filepath.Clean(f.Dir)) {
			return nil
		}
		dir = filepath.Dir(dir)
	}
}

// Get implements [Store].
func (f Folder) Get(_ context.Context, name string) ([]byte, error) { return os.ReadFile(f.file(name)) }

// List implements [Store].
func (f Folder) List(_ context.Context, path string) (list []Object, err error) {
	err = filepath.WalkDir(f.file(path), func(file string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !strings.HasPrefix(d.Name(), temporary) {
			var info fs.FileInfo
			if info, err = d.Info(); err == nil {
				name, _ := filepath.Rel(f.Dir, file)
				list = append(list, Object{filepath.ToSlash(name), info.ModTime()})
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it is not there, or not any more
		}
		return err
	})
	return list, err
}

// Delete implements [Store].
func (f Folder) Delete(_ context.Context, name string) error {
	if err := os.Remove(f.file(name)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// file is the name of the file of an object.
func (f Folder) file(name string) string { return filepath.Join(f.Dir, filepath.FromSlash(name)) }
