package pipelinetest

import "syscall"

// MemoryFolder returns a folder whose files are in memory, empty if none has room for those of many tests, or none
// lets them run programs.
func MemoryFolder() string {
	const folder, tmpfs, room, noExec = "/dev/shm", 0x01021994, 2 << 30, 8
	var s syscall.Statfs_t
	if err := syscall.Statfs(folder, &s); err != nil || s.Type != tmpfs || s.Flags&noExec != 0 || s.Bavail*uint64(s.Bsize) < room {
		return ""
	}
	return folder
}
