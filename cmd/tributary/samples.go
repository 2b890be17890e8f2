package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"tributary/normalizers"
	"tributary/pipeline/ship"
)

// samplesWritten is when the samples were written: the time of those that state none.
var samplesWritten = time.Date(2026, 3, 9, 18, 0, 0, 0, time.UTC)

// date sets when the files of a folder were last written.
func date(folder string, written time.Time) error {
	return filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return os.Chtimes(path, written, written)
	})
}

// copySamples writes the samples of all vendors to files below dir, for ship to follow, and returns their roots.
func copySamples(dir string) ([]ship.Root, error) {
	folders := make(map[string]string) // the folder of a vendor's samples, by the variable that sets it, if there is one
	var homeless []ship.Root
	for _, v := range normalizers.Vendors() {
		folder := filepath.Join(dir, string(v.Source))
		switch {
		case v.Logs.Env != "":
			folders[v.Logs.Env] = folder
		case len(v.Logs.Folders) > 0: // dir takes the place of the home
			folder = filepath.Join(dir, filepath.FromSlash(v.Logs.Home))
		}
		if err := os.CopyFS(folder, v.Samples()); err != nil {
			return nil, err
		}
		if err := date(folder, samplesWritten); err != nil {
			return nil, err
		}
		if len(v.Logs.Folders) == 0 {
			homeless = append(homeless, ship.Root{Source: v.Source, Dir: folder})
		}
	}
	return append(ship.Roots(dir, func(name string) string { return folders[name] }), homeless...), nil
}
