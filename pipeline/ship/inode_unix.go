//go:build !windows

package ship

import (
	"fmt"
	"os"
	"syscall"
)

// inodeOf returns the inode of an open file.
func inodeOf(f *os.File) (inode, error) {
	info, err := f.Stat()
	if err != nil {
		return inode{}, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return inode{}, fmt.Errorf("stat %s: no inode", f.Name())
	}
	return inode{Device: uint64(stat.Dev), Number: uint64(stat.Ino)}, nil //nolint:unconvert // their types differ by system
}
