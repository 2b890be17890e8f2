package terminal

import (
	"bytes"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestStatusLineStaysBelowOtherOutput(t *testing.T) {
	t.Parallel()
	var seen bytes.Buffer
	s := NewStatusLine(&seen)
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() {
			for range 100 {
				s.Show("half way")
				if _, err := s.Write([]byte("a warning\n")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	s.Show("")
	lines := strings.Split(strings.ReplaceAll(seen.String(), ClearLine+"half way", ""), "\n")
	for _, line := range lines[:len(lines)-1] {
		if shown, _ := strings.CutPrefix(line, "half way"); strings.TrimPrefix(shown, ClearLine) != "a warning" {
			t.Fatalf("terminal shows %q", line)
		}
	}
	if len(lines) != 401 {
		t.Errorf("%d lines", len(lines)-1)
	}
}

// TestOutputAboveTheFooterGoesToItsFile writes to both files of a terminal.
func TestOutputAboveTheFooterGoesToItsFile(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	s := NewStatusLine(&stderr)
	out := s.Above(&stdout)
	for _, line := range []string{"", "half way", ""} {
		s.Show(line)
		if _, err := out.Write([]byte("an event\n")); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff("an event\n"+ClearLine+"an event\nan event\n", stdout.String()); diff != "" {
		t.Errorf("standard output (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(ClearLine+"half way"+"half way"+ClearLine, stderr.String()); diff != "" {
		t.Errorf("standard error (-want +got):\n%s", diff)
	}
}
