//go:build !linux

package pipelinetest

// MemoryFolder returns an empty name: temporary files are on the disk.
func MemoryFolder() string { return "" }
