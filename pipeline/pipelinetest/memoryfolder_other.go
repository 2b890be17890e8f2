//go:build !linux

package pipelinetest

// memoryFolder returns an empty name: temporary files are on the disk.
func memoryFolder() string { return "" }
