package pipelinetest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// SmallDisk returns a folder on a separate disk of this many megabytes, which ends with the test. It skips the test
// if it may not create one.
func SmallDisk(tb testing.TB, megabytes string) string {
	tb.Helper()
	dir := tb.TempDir()
	if out, err := exec.CommandContext(tb.Context(), "mount", "-t", "tmpfs", "-o", "size="+megabytes+"m", "tmpfs", dir).CombinedOutput(); err != nil {
		tb.Skipf("no small disk can be made here: %v: %s", err, out)
	}
	tb.Cleanup(func() {
		if out, err := exec.CommandContext(context.WithoutCancel(tb.Context()), "umount", "-l", dir).CombinedOutput(); err != nil {
			tb.Errorf("umount: %v: %s", err, out)
		}
	})
	return dir
}

// FillDisk fills the disk of a folder. release frees the space.
func FillDisk(tb testing.TB, dir string) (release func()) {
	tb.Helper()
	name := filepath.Join(dir, "filler")
	f, err := os.Create(name)
	if err != nil {
		tb.Fatal(err)
	}
	for block := make([]byte, 4<<10); err == nil; {
		_, err = f.Write(block)
	}
	if err := f.Close(); err != nil {
		tb.Fatal(err)
	}
	return func() {
		tb.Helper()
		if err := os.Remove(name); err != nil {
			tb.Fatal(err)
		}
	}
}
