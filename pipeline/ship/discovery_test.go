package ship_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/ship"
)

// TestSeed runs the acceptance rows about the session of the plain text of Copilot CLI. The
// number of a row is the first word of its name.
func TestSeed(t *testing.T) {
	pipelinetest.SkipShort(t)
	t.Parallel()
	t.Run("000-15 log_name_states_the_session", func(t *testing.T) {
		t.Run("of_each_form", logNameStatesSession)
		t.Run("of_the_recorded_cases", logNameStatesSessionOfCases)
		t.Run("waits_for_the_log", discoveryWaitsForTheLog)
		t.Run("ends_at_its_timeout", discoveryEndsAtItsTimeout)
		t.Run("without_a_log_the_text_is_shipped", textWithoutALogIsShipped)
	})
	t.Run("000-16 marker_stands_between_two_lines", markerStandsBetweenTwoLines)
	t.Run("000-17 text_waits_for_the_session", textWaitsForTheSession)
}

// copilotText is how the session of the plain text of Copilot CLI is known.
var copilotText = normalizers.VendorOf(envelopes.Copilot).Framing.PrintedText

const discoveredSession = "550E8400-e29b-41d4-a716-446655440000"

func logNameStatesSession(t *testing.T) {
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
		if got := copilotText.SessionOfLog(name); got != want {
			t.Errorf("session of log %q is %q, want %q", name, got, want)
		}
	}
}

func logNameStatesSessionOfCases(t *testing.T) {
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
		if got := copilotText.SessionOfLog(c.Name); got != want {
			t.Errorf("session of log %q is %q, want %q", c.Name, got, want)
		}
	}
}

// Neither the folder nor the log need exist when the Discovery begins; other files do not count.
func discoveryWaitsForTheLog(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "to", "come")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	type result struct {
		id  string
		err error
	}
	found := make(chan result, 1)
	go func() {
		id, err := ship.Discovery{Source: envelopes.Copilot, Dir: dir, Poll: time.Millisecond}.Find(ctx)
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
		t.Fatalf("found %q (%v) before the log was created", r.id, r.err)
	default:
	}
	touch(t, dir, "session-"+discoveredSession+".log")
	if r := <-found; r.id != discoveredSession || r.err != nil {
		t.Errorf("found %q, %v", r.id, r.err)
	}
}

func discoveryEndsAtItsTimeout(t *testing.T) {
	dir := t.TempDir()
	touch(t, dir, "not-a-uuid.log")
	_, err := ship.Discovery{Source: envelopes.Copilot, Dir: dir, Poll: time.Millisecond, Timeout: 5 * time.Millisecond}.Find(t.Context())
	if !errors.Is(err, ship.ErrNoSession) {
		t.Errorf("error is %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (ship.Discovery{Source: envelopes.Copilot, Dir: dir}).Find(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
}

// touch creates an empty file.
func touch(tb testing.TB, dir, name string) {
	tb.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
		tb.Fatal(err)
	}
}
