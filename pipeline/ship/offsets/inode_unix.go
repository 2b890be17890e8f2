//go:build !windows

package offsets

import (
	"fmt"
	"os"
	"syscall"
)

// InodeOf returns the inode of an open file.
func InodeOf(f *os.File) (Inode, error) {
	info, err := f.Stat()
	if err != nil {
		return Inode{}, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return Inode{}, fmt.Errorf("stat %s: no inode", f.Name())
	}
	return Inode{Device: uint64(stat.Dev), Number: uint64(stat.Ino)}, nil //nolint:unconvert // their types differ by system
}
