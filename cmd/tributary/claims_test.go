package main

import (
	"encoding/base64"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tributary/pipeline/claims"
	"tributary/pipeline/embedded"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
)

// outputs runs a command at a broker to its end and returns its output, line by line.
func outputs(t *testing.T, home, url string, args ...string) (stdout []string, stderr string) {
	t.Helper()
	out, stderr := succeed(t, home, url, args...)
	for line := range strings.Lines(out) {
		stdout = append(stdout, strings.TrimSuffix(line, "\n"))
	}
	return stdout, stderr
}

// TestLargeRecordsBecomeTheEventsOfNormalize ships records that are larger than a message of the
// broker: their events are byte for byte those of normalize, and claims gc removes the objects
// that no record names.
func TestLargeRecordsBecomeTheEventsOfNormalize(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t, func(c *embedded.Config) { c.MaxPayload = 1 << 20 }) // the default of a NATS server
	home := t.TempDir()
	log := filepath.Join(home, "0b6a7f58.jsonl")
	const image = `{"type":"user","uuid":"u4","sessionId":"0b6a7f58","cwd":"/home/ada/app","timestamp":"2026-03-09T09:03:00.000Z","message":{"role":"user","content":[{"type":"text","text":"look"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"%s"}}]}}` + "\n"
	write(t, log, hello)
	write(t, log, strings.NewReplacer("hello", strings.Repeat("hello ", 8<<20/6), "u1", "u3").Replace(hello))
	write(t, log, fmt.Sprintf(image, base64.StdEncoding.EncodeToString(make([]byte, 3<<20))))
	write(t, log, again)

	js := server.Provision(streams.DefaultTopology())
	run := start(t, home, server.URL(), "run")
	if _, stderr := outputs(t, home, server.URL(), "ship", "--once", log); !strings.HasPrefix(stderr, "shipped 4 records (12.0 MiB)") {
		t.Errorf("ship: %s", stderr)
	}
	if err := replay.CatchUp(t.Context(), js, streams.DefaultTopology()); err != nil {
		t.Fatal(err)
	}
	want, _ := outputs(t, home, "", "normalize", log)
	got, _ := outputs(t, home, server.URL(), "tail", "--once", "-o", "json")
	if diff := cmp.Diff(want, got); diff != "" || len(want) != 4 {
		t.Errorf("%d events (-normalize +stage):\n%.2000s", len(want), diff)
	}
	if !strings.Contains(strings.Join(got, "\n"), `"$elided"`) {
		t.Error("the image is not in the event")
	}

	// The objects, and an orphan.
	if _, err := claims.NewStore(js).Put(t.Context(), []byte("whose producer died")); err != nil {
		t.Fatal(err)
	}
	orphan := claims.Of([]byte("whose producer died")).Digest
	list, _ := outputs(t, home, server.URL(), "claims", "ls")
	if len(list) != 4 || !strings.HasPrefix(list[3], orphan+"  19 B ") || !strings.HasSuffix(list[3], " 0") || !strings.HasSuffix(list[2], " 1") {
		t.Errorf("claims ls:\n%s", strings.Join(list, "\n"))
	}
	for _, c := range []struct {
		args []string
		says string
		rows int
	}{
		{[]string{"gc"}, "removed 0 objects (0 B)\n", 0},
		{[]string{"gc", "--older-than", "0s", "--dry-run", "-o", "json"}, "would remove 1 object (19 B)\n", 1},
		{[]string{"gc", "--older-than", "0s", "-o", "json"}, "removed 1 object (19 B)\n", 1},
		{[]string{"gc", "--older-than", "0s", "-o", "json"}, "removed 0 objects (0 B)\n", 0},
		{[]string{"ls", "-o", "json"}, "", 2},
	} {
		rows, stderr := outputs(t, home, server.URL(), append([]string{"claims"}, c.args...)...)
		if stderr != c.says || len(rows) != c.rows {
			t.Errorf("claims %v: %q and %q", c.args, stderr, rows)
		}
		if c.rows == 1 && !strings.Contains(rows[0], orphan) {
			t.Errorf("claims %v: %q", c.args, rows)
		}
	}
	rows, _ := outputs(t, home, server.URL(), "claims", "ls", "-o", "json")
	objects, err := claims.NewStore(js).Objects(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var stated []string
	for _, o := range objects {
		stated = append(stated, fmt.Sprintf(`{"name":%q,"size":%d,"stored":%q,"records":%d}`, o.Name, o.Size, o.Stored.UTC().Format(time.RFC3339Nano), o.Records))
	}
	if diff := cmp.Diff(stated, rows); diff != "" {
		t.Errorf("claims ls -o json (-objects +printed):\n%s", diff)
	}
	if code := run.signal(syscall.SIGTERM); code != 0 {
		t.Errorf("run: exit code %d\n%s", code, &run.stderr)
	}
}
