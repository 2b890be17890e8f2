package export_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/normalizers"
	"tributary/normalizers/claude/claudetest"
	"tributary/normalizers/codex/codextest"
	"tributary/normalizers/copilot/copilottest"
	"tributary/normalizers/core"
	"tributary/normalizers/cursor/cursortest"
	"tributary/normalizers/gemini/geminitest"
	"tributary/normalizers/normalizerstest"
	"tributary/normalizers/opencode/opencodetest"
	"tributary/pipeline/export"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/sessions"
	"tributary/pipeline/sessions/prices"
	"tributary/pipeline/streams"
)

// TestCorpusReconciles publishes the records of every log of TRIBUTARY_CORPUS, each as sessions of its own, to workers
// that are killed several times on the way. The tokens of the statistics over any dimension, and what they leave out as copies, are those that independent readers count
// in the raw bytes; DuckDB finds the same in the files of an export.
//
//	TRIBUTARY_CORPUS=... go test ./pipeline/export -v -run TestCorpus -timeout 30m
func TestCorpusReconciles(t *testing.T) {
	t.Parallel()
	server, top := pipelinetest.NewServer(t), streams.Topology{Generation: "v1", Partitions: 8}
	js := server.Provision(top)
	truth, eventCount := int64(0), int64(0)
	for _, s := range []normalizerstest.Suite{claudetest.Suite, codextest.Suite, geminitest.Suite, cursortest.Suite, copilottest.Suite, opencodetest.Suite} {
		for i, f := range normalizerstest.Corpus(t, s) {
			tokens, n := publishLog(t, js, s, i, f)
			truth += tokens
			eventCount += n
		}
	}

	const kills = 8
	began := time.Now()
	drainWithKills(t, js, server.URL(), top, eventCount, kills)
	t.Logf("%d events of workers that were killed %d times, in %v", eventCount, kills, time.Since(began).Round(time.Millisecond))

	began = time.Now()
	total, copied := int64(0), int64(0)
	divisions := [][]sessions.Dimension{
		{sessions.BySource, sessions.BySession},
		{sessions.ByDay, sessions.ByModel, sessions.ByProject, sessions.ByTool},
		{sessions.ByRepository, sessions.ByBranch, sessions.ByWeek},
	}
	for _, d := range sessions.Dimensions {
		divisions = append(divisions, []sessions.Dimension{d})
	}
	steps := stepsOf(t, js)
	for i, by := range divisions {
		var sum sessions.Sums
		copies, err := sessions.Stats(steps, sessions.StatsQuery{By: by}, sessions.Memory{Bytes: 1 << 20, Dir: t.TempDir()}, func(r *sessions.Row) error {
			sum.Merge(&r.Sums)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			total, copied = sum.Usage.Total(), copies.Usage.Total()
			t.Logf("%d events, %d tokens, of which %d are copies; statistics take %v", eventCount, truth, copied, time.Since(began).Round(time.Millisecond))
		}
		if sum.Events != eventCount || sum.Usage.Total() != total || copies.Usage.Total() != copied || total+copied != truth {
			t.Errorf("by %v: %d events, %d tokens, %d copied, want %d, %d and together %d", by, sum.Events, sum.Usage.Total(), copies.Usage.Total(), eventCount, total, truth)
		}
	}

	dir := t.TempDir()
	began = time.Now()
	r, err := export.Run(t.Context(), js, export.Config{Dir: filepath.Join(dir, "events"), Generation: "v1", Format: export.Parquet, Prices: prices.Builtin().CSV(), Compact: true, Logger: quiet})
	if err != nil || int64(r.Events) != eventCount {
		t.Fatalf("%+v: %v, want %d events", r, err, eventCount)
	}
	t.Logf("exported to %d files, which a compaction makes %d, in %v", r.Files, len(files(t, filepath.Join(dir, "events"))), time.Since(began).Round(time.Millisecond))
	list := questions(t)
	list = append(slices.Concat(list, sums, []question{everySession(t, list)}), question{Name: "total", SQL: "select (select sum(total) from calls) as total, (select sum(tokens_total) from events) as everything"})
	answers := ask(t, dir, list)
	if got := answers["total"].Rows[0]; fmt.Sprint(got["total"]) != strconv.FormatInt(total, 10) || fmt.Sprint(got["everything"]) != strconv.FormatInt(truth, 10) {
		t.Errorf("SQL finds %v, want %d of %d tokens", got, total, truth)
	}
	checkSums(t, steps, answers)
	for _, q := range list {
		t.Logf("%s: %d rows, %d ms", q.Name, len(answers[q.Name].Rows), answers[q.Name].MS)
	}
}

// publishLog publishes the records of a log as those of sessions that no other log has. It returns the tokens that the
// independent reader of the vendor counts, and the number of events.
func publishLog(t *testing.T, js jetstream.JetStream, s normalizerstest.Suite, number int, f normalizerstest.CorpusFile) (tokens, events int64) {
	t.Helper()
	ledger := s.Ledger()
	known := map[string]bool{}
	var records []core.Record
	for _, step := range normalizerstest.Fold(normalizers.Normalize, normalizerstest.Frame(normalizerstest.FileNamed(s.Source, f.Name), f.Data)) {
		known[step.Record.Session] = true
		if !step.Failed() && !step.Record.Origin.End {
			ledger.Add(step.Record.Session, step.Record.Data)
		}
		events += int64(len(step.Result.Events))
		record := step.Record
		record.Session = fmt.Sprintf("%d %s", number, record.Session)
		records = append(records, record)
	}
	for session := range known {
		tokens += ledger.Sums(session).Total
	}
	pipelinetest.Publish(t, js, records...)
	return tokens, events
}
