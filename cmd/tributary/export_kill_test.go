package main

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tributary/pipeline"
	"tributary/pipeline/pipelinetest"
)

var exportKills = flag.Int("export.kills", 20, "how often TestKilledExportsHaveEveryEventOnce kills an export")

// TestKilledExportsHaveEveryEventOnce kills exports at many moments, each later than the one before, and
// lets another one go on. The lines of all files are those of an export that nothing has stopped.
func TestKilledExportsHaveEveryEventOnce(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	top := pipeline.DefaultTopology()
	js := server.Provision(top)
	home := t.TempDir()
	worker := start(t, home, server.URL(), "run")
	pipelinetest.Publish(t, js, pipelinetest.Workload(1, 30, 3000)...)
	if err := pipeline.CatchUp(t.Context(), js, top); err != nil {
		t.Fatal(err)
	}
	if code := worker.signal(syscall.SIGTERM); code != 0 {
		t.Fatalf("run: exit code %d\n%s", code, &worker.stderr)
	}
	export := func(dir string) *process {
		t.Helper()
		return start(t, home, server.URL(), "export", "--out", dir, "--format", "jsonl", "--span-bytes", "50000")
	}
	finish := func(dir string) []string {
		t.Helper()
		if code, out := ended(export(dir)); code != 0 {
			t.Fatalf("export: exit code %d\n%s", code, out)
		}
		return exportedLines(t, dir)
	}
	want := finish(filepath.Join(home, "whole"))
	if len(want) < 3000 {
		t.Fatalf("only %d events", len(want))
	}
	dir := filepath.Join(home, "killed")
	killed := 0
	for range *exportKills {
		p := export(dir)
		before := len(exportedFiles(t, dir))
		look := time.NewTicker(time.Millisecond)
		for p.running() && len(exportedFiles(t, dir)) < before+3 {
			<-look.C
		}
		look.Stop()
		if p.running() {
			killed++
		}
		p.kill()
		lines := exportedLines(t, dir)
		for _, line := range lines {
			if !strings.HasSuffix(line, "}") || !strings.HasPrefix(line, `{"stream_sequence":`) {
				t.Fatalf("half a line is seen: %.200s", line)
			}
		}
		if unique := slices.Compact(slices.Clone(lines)); len(unique) != len(lines) {
			t.Fatalf("%d lines, %d of them different", len(lines), len(unique))
		}
	}
	t.Logf("%d of %d exports were killed before their end", killed, *exportKills)
	if killed == 0 {
		t.Error("every export ended before it was killed")
	}
	if diff := cmp.Diff(want, finish(dir)); diff != "" {
		t.Errorf("the files differ from those of an export that was not killed:\n%.2000s", diff)
	}
}

// exportedFiles returns the names of the files of an export.
func exportedFiles(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "date=*", "source=*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// exportedLines returns all lines of an export, sorted.
func exportedLines(t *testing.T, dir string) []string {
	t.Helper()
	var lines []string
	for _, name := range exportedFiles(t, dir) {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")...)
	}
	slices.Sort(lines)
	return lines
}
