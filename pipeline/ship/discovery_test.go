package ship_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"tributary/pipeline/ship"
)

// TestSeed runs the acceptance rows of the seeds that are about shipping.
func TestSeed(t *testing.T) {
	t.Parallel()
	t.Run("000-15", func(t *testing.T) {
		t.Run("names", seedLogNames)
		t.Run("origin", seedLogNamesOfOrigin)
		t.Run("waits", seedDiscoveryWaits)
		t.Run("timeout", seedDiscoveryTimeout)
		t.Run("stream", seedDiscoveryLeavesStream)
	})
	t.Run("000-16", seedMarker)
	t.Run("000-17", seedHeldUntilDiscovery)
}

const discoveredSession = "550E8400-e29b-41d4-a716-446655440000"

func seedLogNames(t *testing.T) {
	for name, want := range map[string]string{
		discoveredSession + ".log":              discoveredSession,
		"session-" + discoveredSession + ".log": discoveredSession,
		"process-" + discoveredSession + ".log": "",
		discoveredSession:                       "",
		discoveredSession + ".log.1":            "",
		discoveredSession + "-extra.log":        "",
		"550e8400e29b41d4a716446655440000.log":  "",
		"not-a-uuid.log":                        "",
		".log":                                  "",
		"":                                      "",
	} {
		if got := ship.SessionOfLog(name); got != want {
			t.Errorf("%q is the log of %q, want %q", name, got, want)
		}
	}
}

func seedLogNamesOfOrigin(t *testing.T) {
	root := os.Getenv("TRIBUTARY_GOLDENS")
	if root == "" {
		t.Skip("TRIBUTARY_GOLDENS is not set")
	}
	data, err := os.ReadFile(filepath.Join(root, "metadata", "origin", "copilot", "logfile-names.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Name    string  `json:"name"`
		Session *string `json:"session_id"`
	}
	if err := json.Unmarshal(data, &cases); err != nil || len(cases) == 0 {
		t.Fatalf("%v, %d cases", err, len(cases))
	}
	for _, c := range cases {
		want := ""
		if c.Session != nil {
			want = *c.Session
		}
		if got := ship.SessionOfLog(c.Name); got != want {
			t.Errorf("%q is the log of %q, want %q", c.Name, got, want)
		}
	}
}

// A folder that does not exist is waited for, and so is a log among other files.
func seedDiscoveryWaits(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "to", "come")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	type result struct {
		id  string
		err error
	}
	found := make(chan result, 1)
	go func() {
		id, err := ship.Discovery{Dir: dir, Poll: time.Millisecond}.Find(ctx)
		found <- result{id, err}
	}()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"main.log", "not-a-uuid.log", discoveredSession + ".txt"} {
		touch(t, dir, name)
	}
	select {
	case r := <-found:
		t.Fatalf("found %q (%v) before there was a log", r.id, r.err)
	default:
	}
	touch(t, dir, "session-"+discoveredSession+".log")
	if r := <-found; r.id != discoveredSession || r.err != nil {
		t.Errorf("found %q, %v", r.id, r.err)
	}
}

func seedDiscoveryTimeout(t *testing.T) {
	dir := t.TempDir()
	touch(t, dir, "not-a-uuid.log")
	_, err := ship.Discovery{Dir: dir, Poll: time.Millisecond, Timeout: 5 * time.Millisecond}.Find(t.Context())
	if !errors.Is(err, ship.ErrNoSession) {
		t.Errorf("error is %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (ship.Discovery{Dir: dir}).Find(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
}

func touch(tb testing.TB, dir, name string) {
	tb.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
		tb.Fatal(err)
	}
}
