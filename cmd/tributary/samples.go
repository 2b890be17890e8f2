package main

import (
	"io/fs"
	"os"
	"path/filepath"

	"tributary/normalizers"
	"tributary/pipeline/ship"
)

// copySamples writes the samples of all vendors to files below dir, for ship to follow, and returns their roots.
func copySamples(dir string) ([]ship.Root, error) {
	folders := make(map[string]string) // the folder of a vendor's samples, by the variable that sets it, if there is one
	var homeless []ship.Root
	for _, v := range normalizers.Vendors() {
		logs, err := fs.Sub(v.Samples, "samples")
		if err != nil {
			return nil, err
		}
		folder := filepath.Join(dir, string(v.Source))
		switch {
		case v.Logs.Env != "":
			folders[v.Logs.Env] = folder
		case len(v.Logs.Folders) > 0: // dir takes the place of the home
			folder = filepath.Join(dir, filepath.FromSlash(v.Logs.Home))
		}
		if err := os.CopyFS(folder, logs); err != nil {
			return nil, err
		}
		if len(v.Logs.Folders) == 0 {
			homeless = append(homeless, ship.Root{Source: v.Source, Dir: folder})
		}
	}
	return append(ship.Roots(dir, func(name string) string { return folders[name] }), homeless...), nil
}
