package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tributary/cmd/internal/figures"
	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
	"tributary/pipeline/sessions"
	"tributary/pipeline/sessions/prices"
)

// tableWidths are the widths of terminals in the golden files of tables.
var tableWidths = []int{80, 120, 200}

// compareTable compares a table with testdata/tables/<name>; with -update it writes the file.
func compareTable(t *testing.T, name string, tab func() *terminal.Table) {
	t.Helper()
	compareTableFor(t, name, func(int) *terminal.Table { return tab() })
}

// compareTableFor is compareTable for a table that depends on the width of lines.
func compareTableFor(t *testing.T, name string, tab func(width int) *terminal.Table) {
	t.Helper()
	var b bytes.Buffer
	for _, width := range tableWidths {
		fmt.Fprintf(&b, "-- %d columns --\n", width)
		var lines bytes.Buffer
		if err := tab(width).Write(&lines, width); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(lines.String()) {
			if n := terminal.WidthOf(strings.TrimSuffix(line, "\n")); n > width {
				t.Errorf("a line has %d columns, want at most %d: %s", n, width, line)
			}
		}
		b.Write(lines.Bytes())
	}
	compareWithFile(t, filepath.Join("testdata", "tables", name), b.String())
}

// wideTable returns rows that are wide in every column.
func wideTable(t *testing.T) *terminal.Table {
	t.Helper()
	priceList, err := prices.Read(strings.NewReader(`{"claude-opus-4-5-20251101":{"input_cost_per_token":5e-6,"output_cost_per_token":25e-6,"cache_read_input_token_cost":5e-7,"cache_creation_input_token_cost":6.25e-6}}`))
	if err != nil {
		t.Fatal(err)
	}
	row := func(day, model, project string, n int64) *sessions.Row {
		u := envelopes.Usage{Input: n, CacheRead: 300 * n, CacheWrite: 20 * n, Output: 7 * n, Reasoning: n}
		r := sessions.Row{Values: []string{day, model, project}, Sessions: n / 1000, Models: map[string]*sessions.Billed{model: {Usage: u}}}
		r.Sums = sessions.Sums{Events: n, Usage: u, Calls: n / 3, Failures: n / 40, ActiveNS: n * int64(time.Second)}
		r.Latencies.Merge(sessions.Latencies{400: 10, 500: 1})
		r.Measured.Merge(sessions.Latencies{420: 10, 520: 1})
		return &r
	}
	l, err := figures.New(figures.Query{Stats: sessions.StatsQuery{By: []sessions.Dimension{sessions.ByDay, sessions.ByModel, sessions.ByProject}}}, figures.NewPricing(priceList, "", nil))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []*sessions.Row{
		row("2026-03-10", "gpt-5-mini\x1b[31m", "/srv/x", 7),
		row("2026-03-09", "claude-opus-4-5-20251101", "/home/ada/src/a project with a long name of 日本語 characters/ledger", 123_456),
		row("2026-03-09", "", "", 12),
	} {
		l.Add(r)
	}
	l.Finish()
	return statsTable(l)
}

// comparedTable returns repositories of two periods: one that is in both, one that is new, and one that is gone.
func comparedTable(t *testing.T) *terminal.Table {
	t.Helper()
	q := sessions.StatsQuery{By: []sessions.Dimension{sessions.ByRepository}}
	l, err := figures.New(figures.Query{Stats: q, Before: &q, Sort: "delta_total"}, figures.BuiltinPricing())
	if err != nil {
		t.Fatal(err)
	}
	row := func(repository, model string, n int64) *sessions.Row {
		u := envelopes.Usage{Input: n, CacheRead: 30 * n, Output: 2 * n}
		return &sessions.Row{
			Values: []string{repository}, Sessions: n / 1000, Models: map[string]*sessions.Billed{model: {Usage: u}},
			Sums: sessions.Sums{Events: n, Usage: u, Calls: n / 3, ActiveNS: n * int64(time.Second)},
		}
	}
	l.AddBefore(row("github.com/acme/shop", "claude-opus-4-5", 40_000))
	l.AddBefore(row("github.com/acme/till", "no such model", 7000))
	l.Add(row("github.com/acme/shop", "claude-opus-4-5", 50_000))
	l.Add(row("", "claude-opus-4-5", 1000))
	l.Finish()
	return statsTable(l)
}

// TestTablesFitTheTerminal has the tables of the commands at three widths.
func TestTablesFitTheTerminal(t *testing.T) {
	t.Parallel()
	t.Run("stats", func(t *testing.T) {
		t.Parallel()
		compareTable(t, "stats", func() *terminal.Table { return wideTable(t) })
	})
	t.Run("stats compared", func(t *testing.T) {
		t.Parallel()
		compareTable(t, "stats-compared", func() *terminal.Table { return comparedTable(t) })
	})
	t.Run("sessions", func(t *testing.T) {
		t.Parallel()
		compareTableFor(t, "sessions", sessionsTable)
	})
}

// sessionsTable returns sessions that are wide in every column.
func sessionsTable(width int) *terminal.Table {
	now := time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC)
	root := "/home/ada/src/a-project-with-a-long-name"
	return sessionTable([]sessionView{
		{Pinned: true, Summary: sessions.Summary{
			Source: envelopes.ClaudeCode, Session: "0b6a7f58-2c1d-4e0f-8a3b-9c5d7e6f1a20", Title: "Fix the tests of the ledger, then write a page about them in 日本語",
			Project: &root, Activity: sessions.Activity{State: sessions.Working, Phase: sessions.PhaseInTool, Tool: "mcp__browser__take_screenshot"}, LastSeen: now.Add(-7 * time.Second), ActiveMS: 12_345_678, Calls: 1234, Failures: 56, Errors: 7,
			Models: []sessions.ModelUse{{Model: "claude-opus-4-5-20251101"}}, Usage: sessions.Tokens{Total: 123_456_789},
		}},
		{Summary: sessions.Summary{Source: envelopes.Codex, Session: "s2\x1b[2J", Activity: sessions.Activity{State: sessions.Idle, Phase: sessions.PhasePrompt}, LastSeen: now.AddDate(0, -1, 0)}},
		{Summary: sessions.Summary{Source: envelopes.Codex, Session: "019cd1f0-7c1e-7b52-9a41-3f0d5e8c2b17", Activity: sessions.Activity{State: sessions.Idle, Phase: sessions.PhaseEndedInTool, Tool: "exec_command"}, LastSeen: now.Add(-time.Hour)}},
		{Summary: sessions.Summary{Source: envelopes.Codex, Session: "019cd1f0-7c1f-7b52-9a41-3f0d5e8c2b17", Activity: sessions.Activity{State: sessions.Waiting, Phase: sessions.PhasePermission}, LastSeen: now.Add(-time.Minute)}},
		{Summary: sessions.Summary{Source: envelopes.Codex, Session: "日本語のセッション一", Activity: sessions.Activity{State: sessions.Idle, Phase: sessions.PhaseEnded}, LastSeen: now.Add(-time.Hour)}},
		{Summary: sessions.Summary{Source: envelopes.Codex, Session: "日本語のセッション二", Activity: sessions.Activity{State: sessions.Failed, Phase: sessions.PhaseFailed}, LastSeen: now.Add(-time.Hour)}},
	}, nil, nil, now, width)
}

// compareWithFile compares text with the content of a file, which -update rewrites.
func compareWithFile(t *testing.T, path, text string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(text, "\n")); diff != "" {
		t.Errorf("%s (-want +got; -update rewrites it):\n%s", path, diff)
	}
}
