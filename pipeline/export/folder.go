package export

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// folder is a folder as the [place] of an export. Files are written to a subfolder, synced, and renamed.
type folder struct {
	dir  string
	cell int
}

// openFolder opens a folder and creates it if needed. Only one export at a time may write to it.
func openFolder(dir string) error {
	tmp := filepath.Join(dir, controlDir, temporaryDir)
	return errors.Join(os.RemoveAll(tmp), os.MkdirAll(tmp, 0o700))
}

// temporaryDir has the files being written.
const temporaryDir = "tmp"

// String is the name of the folder.
func (f folder) String() string { return f.dir }

func (f folder) manifest() string { return manifestName(f.cell) }

func (f folder) load(context.Context) ([]byte, error) {
	data, err := os.ReadFile(filepath.Join(f.dir, controlDir, f.manifest()))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

func (f folder) save(ctx context.Context, manifest []byte) error {
	return f.put(ctx, f.manifest(), manifest)
}

func (f folder) put(_ context.Context, name string, data []byte) error {
	tmp := f.temporary(name)
	if err := writeFile(tmp, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}); err != nil {
		return err
	}
	return move(tmp, filepath.Join(f.dir, controlDir, name))
}

func (f folder) list(context.Context) (list []stored, err error) {
	files := os.DirFS(f.dir)
	names, err := fs.Glob(files, partPattern)
	for _, name := range names {
		info, err := fs.Stat(files, name)
		if err != nil {
			return nil, err
		}
		list = append(list, stored{name, info.Size()})
	}
	return list, err
}

func (f folder) read(_ context.Context, name string) ([]byte, error) {
	return os.ReadFile(filepath.Join(f.dir, filepath.FromSlash(name)))
}

// add writes all files first; then they appear one by one.
func (f folder) add(_ context.Context, files []file) error {
	for i, file := range files {
		if err := writeFile(f.temporary(strconv.Itoa(i)), file.write); err != nil {
			return err
		}
	}
	for i, file := range files {
		if err := move(f.temporary(strconv.Itoa(i)), filepath.Join(f.dir, filepath.FromSlash(file.name))); err != nil {
			return err
		}
	}
	return nil
}

func (f folder) remove(_ context.Context, name string) error {
	err := os.Remove(filepath.Join(f.dir, filepath.FromSlash(name)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// temporary returns the name of a file while it is written.
func (f folder) temporary(name string) string {
	return filepath.Join(f.dir, controlDir, temporaryDir, fmt.Sprintf("%d-%s.tmp", f.cell, name))
}

// writeFile writes a new file and syncs it.
func writeFile(name string, write func(io.Writer) error) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	err = write(file)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// move gives a file its final name durably.
func move(from, to string) error {
	dir := filepath.Dir(to)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.Rename(from, to); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	_ = d.Sync() // some file systems cannot; the manifest is synced afterwards
	return d.Close()
}
