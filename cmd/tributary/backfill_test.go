package main

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
)

var backfillBytes = flag.Int64("backfill.bytes", 2<<20, "bytes of the logs in TestBackfillNeedsBoundedMemory, twice those in TestNormalizeNeedsBoundedMemory")

// Limits of the resident memory of processes, whatever the size of the logs. The garbage
// collector lets the heap grow to twice the memory in use; a process that does nothing has
// less than 64 MiB.
const (
	// In use are, for each of 16 files at a time, one read, and a batch of 4 MiB as records and
	// as messages.
	shipMemory = 2*16*(256<<10+2*(4<<20)) + 64<<20

	// In use are 256 MiB of sessions; for each of 16 partitions two requests of 8 MiB that
	// are read ahead, and two chunks of 4 MiB; and 128 MiB of large records.
	runMemory = 2*(256<<20+16*(2*(8<<20)+2*(4<<20))+128<<20) + 64<<20

	// In use are a chunk of the file, a record, its events and the state of its session: less
	// than 64 MiB if no record is large.
	normalizeMemory = 2*(64<<20) + 64<<20
)

// TestBackfillNeedsBoundedMemory ships the logs of many sessions, one of which has an eighth of
// the bytes, with a server, a worker and an edge that are processes of their own and have the
// default settings. The stored events are exact, and the memory of edge and worker does not
// depend on the size of the logs. The logs are those of the corpus, repeated as other sessions,
// or generated ones if there is no corpus.
//
//	TRIBUTARY_CORPUS=... go test ./cmd/tributary -v -run TestBackfill -backfill.bytes 2147483648 -timeout 2h
func TestBackfillNeedsBoundedMemory(t *testing.T) {
	t.Parallel()
	requireLinux(t)
	home := t.TempDir()
	var b backfill
	b.session(t, filepath.Join(home, ".claude/projects/large/session.jsonl"), *backfillBytes/8)
	corpus := os.Getenv("TRIBUTARY_CORPUS")
	for copies := 0; b.bytes < *backfillBytes; copies++ {
		if corpus != "" {
			b.corpus(t, corpus, home, copies, *backfillBytes)
			continue
		}
		for name, data := range workloadFiles(uint64(copies)+2, 60, 2000) {
			b.write(t, envelopes.ClaudeCode, filepath.Join(home, ".claude/projects", strconv.Itoa(copies), name), slices.Values([][]byte{data}))
		}
	}
	t.Logf("%d MiB in %d files, %d records", b.bytes>>20, b.files, b.records)

	server := pipelinetest.StartCluster(t, 1, 0)
	top := streams.DefaultTopology()
	js := server.Provision(top)
	began := time.Now()
	worker := startWith(t, settingsOf(usuallyCollected), home, server.URL(), "run")
	edge := startWith(t, settingsOf(usuallyCollected), home, server.URL(), "ship", "--once")
	shipPeak := int64(0)
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for ; edge.running(); <-look.C {
		shipPeak = max(shipPeak, pipelinetest.PeakMemory(edge.cmd.Process.Pid))
	}
	if code := edge.wait(); code != 0 {
		t.Fatalf("ship: exit code %d\n%s", code, &edge.stderr)
	}
	shipped := time.Since(began)
	if err := replay.CatchUp(t.Context(), js, top); err != nil {
		t.Fatal(err)
	}
	done := time.Since(began)
	runPeak, serverPeak := pipelinetest.PeakMemory(worker.cmd.Process.Pid), pipelinetest.PeakMemory(server.Nodes[0].PID())
	if code := worker.signal(syscall.SIGTERM); code != 0 {
		t.Errorf("run: exit code %d after SIGTERM\n%s", code, &worker.stderr)
	}
	t.Logf("shipped after %v, done after %v: %.0f records/s, %.1f MiB/s", shipped.Round(time.Second), done.Round(time.Second),
		float64(b.records)/done.Seconds(), float64(b.bytes)/(1<<20)/done.Seconds())
	t.Logf("peak of resident memory: ship %d MiB, run %d MiB, server %d MiB", shipPeak>>20, runPeak>>20, serverPeak>>20)
	requireMemory(t, "ship", shipPeak, shipMemory)
	requireMemory(t, "run", runPeak, runMemory)

	r := pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	if r.Records != b.records+b.ends {
		t.Errorf("%d messages in the raw stream, want %d records and %d ends of files", r.Records, b.records, b.ends)
	}
	t.Logf("exact: %d events, %d dead letters, %d sessions", r.Events, r.DeadLetters, r.Sessions)
}

// TestNormalizeNeedsBoundedMemory normalizes one large file: the memory of the process does not
// depend on its size.
//
//	go test ./cmd/tributary -v -run TestNormalizeNeeds -backfill.bytes 2147483648 -timeout 1h
func TestNormalizeNeedsBoundedMemory(t *testing.T) {
	t.Parallel()
	requireLinux(t)
	home := t.TempDir()
	var b backfill
	file, reportFile := filepath.Join(home, "session.jsonl"), filepath.Join(home, "report.json")
	b.session(t, file, *backfillBytes/2)
	began := time.Now()
	p := startWith(t, settingsOf(usuallyCollected), home, "", "normalize", "--report", reportFile, file)
	peak, events := int64(0), 0
	for range p.lines {
		if events++; events%1000 == 0 {
			peak = max(peak, pipelinetest.PeakMemory(p.cmd.Process.Pid))
		}
	}
	if code := p.wait(); code != exitPartly {
		t.Fatalf("normalize: exit code %d\n%s", code, &p.stderr)
	}
	t.Logf("%d MiB, %d records, %d events in %v; peak of resident memory: %d MiB",
		b.bytes>>20, b.records, events, time.Since(began).Round(time.Second), peak>>20)
	requireMemory(t, "normalize", peak, normalizeMemory)
	var have report
	data, err := os.ReadFile(reportFile)
	if err == nil {
		err = json.Unmarshal(data, &have)
	}
	if err != nil {
		t.Fatal(err)
	}
	if have.Records != b.records || have.Events != events {
		t.Errorf("the report has %d records and %d events, want %d and %d", have.Records, have.Events, b.records, events)
	}
}

// requireLinux skips a test on systems that do not report the memory of a process.
func requireLinux(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the peak of the memory of a process is in /proc")
	}
}

// requireMemory fails the test if the peak of a process exceeds its limit, or was not measured,
// which is 0.
func requireMemory(t *testing.T, name string, peak, limit int64) {
	t.Helper()
	if runtime.GOOS == "linux" && (peak == 0 || peak > limit) {
		t.Errorf("%s had %d MiB resident, want at most %d", name, peak>>20, limit>>20)
	}
}

// backfill counts the logs that it writes.
type backfill struct {
	bytes                int64
	files, records, ends int
}

// session writes a file of one session, of about size bytes.
func (b *backfill) session(tb testing.TB, path string, size int64) {
	tb.Helper()
	records := pipelinetest.Workload(1, 1, 2000)
	records = records[:len(records)-1] // without the end
	name := []byte(records[0].Origin.File)
	b.write(tb, envelopes.ClaudeCode, path, func(yield func([]byte) bool) {
		for copies := int64(0); b.bytes < size; copies++ {
			for _, r := range records { // with other ids in each copy: they begin with the name of the file
				if !yield(append(bytes.ReplaceAll(r.Data, name, fmt.Appendf(nil, "copy-%d", copies)), '\n')) {
					return
				}
			}
		}
	})
}

// vendorLogs are the folders of a home in which the agents keep their logs.
var vendorLogs = map[string]string{
	"claude_code": ".claude/projects",
	"codex":       ".codex/sessions",
	"copilot":     ".copilot/session-state",
	"cursor":      ".cursor/projects/p/agent-transcripts",
	"gemini":      ".gemini/tmp",
}

// rename replaces every UUID by the one that it has in a copy.
func rename(text []byte, copies int) []byte {
	for i := 0; i+36 <= len(text); i++ {
		if text[i+8] != '-' || text[i+13] != '-' {
			continue
		}
		if id, err := uuid.ParseBytes(text[i : i+36]); err == nil {
			copy(text[i:], uuid.NewSHA1(id, strconv.AppendInt(nil, int64(copies), 10)).String())
		}
	}
	return text
}

// corpus writes a copy of the files of the corpus below a home, until size bytes are written.
// The sessions of each copy have other names.
func (b *backfill) corpus(tb testing.TB, dir, home string, copies int, size int64) {
	tb.Helper()
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if b.bytes >= size {
			return fs.SkipAll
		}
		vendor, below, _ := strings.Cut(path, "/")
		logs, known := vendorLogs[vendor]
		if !known || filepath.Ext(path) != ".jsonl" {
			return nil
		}
		data, err := os.ReadFile(filepath.Join(dir, path))
		if err != nil {
			return err
		}
		folder, name := filepath.Split(string(rename([]byte(below), copies)))
		b.write(tb, envelopes.Source(vendor), filepath.Join(home, logs, folder, fmt.Sprintf("%d-%s", copies, name)),
			slices.Values([][]byte{rename(data, copies)}))
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
}

// write writes a log in chunks, and counts its records. Its modification time is an hour ago, so
// that ship treats the file as idle and ships its last line.
func (b *backfill) write(tb testing.TB, source envelopes.Source, path string, chunks iter.Seq[[]byte]) {
	tb.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		tb.Fatal(err)
	}
	f, err := os.Create(path)
	if err != nil {
		tb.Fatal(err)
	}
	out := bufio.NewWriterSize(f, 1<<20)
	framer := normalizers.NewFramer(normalizers.File{Source: source, Name: filepath.Base(path), Path: path})
	count := func() {
		for framed, ok := framer.Next(); ok; framed, ok = framer.Next() {
			if !framed.Record.Origin.End {
				b.records++
			}
		}
	}
	for chunk := range chunks {
		_, _ = out.Write(chunk)    // Flush returns the error
		_, _ = framer.Write(chunk) // never fails
		b.bytes += int64(len(chunk))
		count()
	}
	framer.Close()
	b.ends += len(framer.Ends())
	count()
	b.files++
	hourAgo := time.Now().Add(-time.Hour)
	if err := errors.Join(out.Flush(), f.Close(), os.Chtimes(path, hourAgo, hourAgo)); err != nil {
		tb.Fatal(err)
	}
}
