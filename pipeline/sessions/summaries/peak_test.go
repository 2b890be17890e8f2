package summaries_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/sessions/summaries"
)

// peakMiB is the largest memory that a process has had so far, 0 where the system has no such figure.
func peakMiB(pid int) int {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		var kib int
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kib); err == nil {
			return kib >> 10
		}
	}
	return 0
}

// awaitMany is awaitKept for as many sessions as the flag names.
func awaitMany(t *testing.T, js jetstream.JetStream) *summaries.View {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	for {
		v := open(t, js, "v1")
		status, err := v.Status(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if status.Kept && status.Behind == 0 {
			return v
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			t.Fatalf("records are not kept: %+v", status)
		}
	}
}
