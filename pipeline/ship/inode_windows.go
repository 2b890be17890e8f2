package ship

import (
	"fmt"
	"os"
	"syscall"
)

// inodeOf returns the volume and file index of an open file, which correspond to an inode.
func inodeOf(f *os.File) (inode, error) {
	var info syscall.ByHandleFileInformation
	if err := syscall.GetFileInformationByHandle(syscall.Handle(f.Fd()), &info); err != nil {
		return inode{}, fmt.Errorf("stat %s: %w", f.Name(), err)
	}
	return inode{
		Device: uint64(info.VolumeSerialNumber),
		Number: uint64(info.FileIndexHigh)<<32 | uint64(info.FileIndexLow),
	}, nil
}
