package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/pipeline/embedded"
)

// TestStoreOfAnOlderProgramIsRead has what a program of revision 5 stored of the samples and of a log with a damaged line,
// and what it exported: its events and dead letters are there, its export goes on, a worker of this revision leaves its
// generation alone, and a replay makes the same events, with the titles and pins that were set.
func TestStoreOfAnOlderProgramIsRead(t *testing.T) {
	t.Parallel()
	const events = 154 // as the older program has said
	dir, home := t.TempDir(), t.TempDir()
	unpack(t, filepath.Join("testdata", "store-revision-5.tar.gz"), dir)
	if code, out := ended(start(t, home, "", "up", "--once", "--samples", "--listen", "", "--data", filepath.Join(dir, "store"))); code != exitFailure ||
		!strings.Contains(out, "are of revision 5, this program makes those of revision") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	server, err := embedded.Start(embedded.Config{StoreDir: filepath.Join(dir, "store"), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer server.WaitForShutdown()
	defer server.Shutdown()
	run := func(want int, args ...string) string {
		t.Helper()
		code, out := finish(t, home, server.ClientURL(), args...)
		if code != want {
			t.Fatalf("%v: exit code %d, want %d\n%s", args, code, want, out)
		}
		return out
	}
	contains := func(out string, texts ...string) {
		t.Helper()
		for _, text := range texts {
			if !strings.Contains(out, text) {
				t.Errorf("no %q in\n%s", text, out)
			}
		}
	}
	ids := func(name string) map[string][]string {
		t.Helper()
		run(0, "export", "--format", "jsonl", "--out", filepath.Join(dir, name))
		return exportedIDs(t, filepath.Join(dir, name))
	}
	before := ids("before")
	if n := count(before); n != events {
		t.Errorf("%d events of the older program, want %d", n, events)
	}
	contains(run(0, "export", "--out", filepath.Join(dir, "exp")), "exported 0 events")
	contains(run(0, "dlq", "ls"), "malformed")

	start(t, home, server.ClientURL(), "run")
	run(0, "replay", "start", "next")
	run(0, "replay", "promote", "next", "--wait")
	after := ids("after")
	for session, want := range before {
		if !slices.Equal(after[session], want) {
			t.Errorf("session %s: events %v, the older program made %v", session, after[session], want)
		}
	}
	if n := count(after); n != events {
		t.Errorf("%d events of revision %d, want %d", n, normalizers.Revision, events)
	}
	contains(run(0, "sessions", "ls", "-o", "json"), `"Kept over versions"`, `"pinned":true`)
	contains(run(0, "dlq", "ls"), "malformed")
}

// unpack unpacks an archive of files.
func unpack(t *testing.T, archive, dir string) {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, data, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// exportedIDs returns the ids of the events in an export of lines, by session, in their order.
func exportedIDs(t *testing.T, dir string) map[string][]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "month=*", "source=*", "*.jsonl*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files in %s: %v", dir, err)
	}
	ids := make(map[string][]string)
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			var e envelopes.AgentEventV1
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			ids[e.SessionID] = append(ids[e.SessionID], e.EventID)
		}
	}
	return ids
}

func count(lists map[string][]string) int {
	n := 0
	for _, list := range lists {
		n += len(list)
	}
	return n
}
