package ship

import (
	"fmt"
	"os"
	"syscall"
)

// inodeOf returns what names the file on this machine while it exists, whatever its path.
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
