package offsets

import (
	"fmt"
	"os"
	"syscall"
)

// InodeOf returns the volume and file index of an open file, which correspond to an inode.
func InodeOf(f *os.File) (Inode, error) {
	var info syscall.ByHandleFileInformation
	if err := syscall.GetFileInformationByHandle(syscall.Handle(f.Fd()), &info); err != nil {
		return Inode{}, fmt.Errorf("stat %s: %w", f.Name(), err)
	}
	return Inode{
		Device: uint64(info.VolumeSerialNumber),
		Number: uint64(info.FileIndexHigh)<<32 | uint64(info.FileIndexLow),
	}, nil
}
