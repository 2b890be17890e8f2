package main

import (
	"bytes"
	stdcmp "cmp"
	"flag"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"github.com/minio/minio-go/v7"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/parquet-go/parquet-go"

	"tributary/envelopes"
	"tributary/pipeline/export"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
)

var exportKills = flag.Int("export.kills", 3, "how often TestKilledExportsHaveEveryEventOnce kills each export; at least 20 times with TRIBUTARY_CORPUS")

// TestKilledExportsHaveEveryEventOnce kills exports by SIGKILL at random moments, and lets another one go on each
// time. At every moment all files are whole and no event is in two of them, those left out that a compaction has replaced;
// in the end their rows are those of an export that nothing has stopped. TRIBUTARY_CORPUS names logs, by agent, whose events are exported, too.
//
//	TRIBUTARY_CORPUS=... go test ./cmd/tributary -v -faults -run 'TestKilledExports/^corpus$'
func TestKilledExportsHaveEveryEventOnce(t *testing.T) {
	needsFaults(t)
	t.Parallel()
	seed := stdcmp.Or(*killSeed, rand.Uint64())
	t.Logf("repeat these moments with -kill.seed=%d", seed)

	t.Run("generated", func(t *testing.T) {
		t.Parallel()
		k := newKilledExports(t, seed, "50000", *exportKills, func(_ *killedExports, js jetstream.JetStream) {
			pipelinetest.Publish(t, js, pipelinetest.Workload(1, 30, 3000)...)
		})
		k.run(t, export.JSONL, folderPlace(t))
		k.run(t, export.Parquet, bucketPlace(t))
		k.run(t, export.Parquet, folderPlace(t), "--compact")
		k.run(t, export.JSONL, bucketPlace(t), "--compact")
	})
	t.Run("corpus", func(t *testing.T) {
		t.Parallel()
		corpus := os.Getenv("TRIBUTARY_CORPUS")
		if corpus == "" {
			t.Skip("TRIBUTARY_CORPUS is not set")
		}
		k := newKilledExports(t, seed, "2000000", max(20, *exportKills), func(k *killedExports, _ jetstream.JetStream) { shipCorpus(t, k, corpus) })
		k.run(t, export.JSONL, folderPlace(t))
		k.run(t, export.Parquet, folderPlace(t))
		k.run(t, export.Parquet, bucketPlace(t))
	})
}

// killedExports are exports of the same events, which are killed.
type killedExports struct {
	home, url, spanBytes string
	kills                int
	random               *rand.Rand
	wholes               map[export.Format]wholeExport
}

// wholeExport is what an export that nothing has stopped has stored.
type wholeExport struct {
	rows  []string
	files int
}

// newKilledExports stores events: workers normalize what publish publishes.
func newKilledExports(t *testing.T, seed uint64, spanBytes string, kills int, publish func(k *killedExports, js jetstream.JetStream)) *killedExports {
	t.Helper()
	server := pipelinetest.NewServer(t)
	top := streams.DefaultTopology()
	js := server.Provision(top)
	k := &killedExports{t.TempDir(), server.URL(), spanBytes, kills, rand.New(rand.NewPCG(seed, 2)), make(map[export.Format]wholeExport)}
	worker := start(t, k.home, k.url, "run")
	publish(k, js)
	if err := replay.CatchUp(t.Context(), js, top); err != nil {
		t.Fatal(err)
	}
	if code := worker.signal(syscall.SIGTERM); code != 0 {
		t.Fatalf("run: exit code %d\n%s", code, &worker.stderr)
	}
	return k
}

// shipCorpus ships the logs of a corpus, which are in a folder for each source.
func shipCorpus(t *testing.T, k *killedExports, corpus string) {
	t.Helper()
	for _, source := range []envelopes.Source{envelopes.ClaudeCode, envelopes.Codex, envelopes.Gemini, envelopes.Copilot, envelopes.OpenCode} {
		var logs []string
		err := filepath.WalkDir(filepath.Join(corpus, string(source)), func(name string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				logs = append(logs, name)
			}
			return err
		})
		if err != nil || len(logs) == 0 {
			t.Fatalf("%d logs of %s: %v", len(logs), source, err)
		}
		if code, out := finish(t, k.home, k.url, slices.Concat([]string{"ship", "--once", "--source", string(source)}, logs)...); code != 0 && code != exitPartly {
			t.Fatalf("ship: exit code %d\n%s", code, out)
		}
	}
}

// lookEvery is how often a test lists the files of an export that it is to kill. The kill comes at a random moment of the
// 20 ms behind, so a shorter time would cost listings and catch no other moments.
const lookEvery = 5 * time.Millisecond

// exportPlace is a place of exports.
type exportPlace struct {
	out   string
	setup func(*exec.Cmd)
	names func() []string
	read  func(name string) []byte
}

// folderPlace is a new folder.
func folderPlace(t *testing.T) exportPlace {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "events")
	return exportPlace{
		out:   dir,
		setup: func(*exec.Cmd) {},
		names: func() []string {
			names, err := filepath.Glob(filepath.Join(dir, "month=*", "source=*", "*"))
			if err != nil {
				t.Fatal(err)
			}
			return names
		},
		read: func(name string) []byte {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			return data
		},
	}
}

// bucketPlace is a new bucket.
func bucketPlace(t *testing.T) exportPlace {
	t.Helper()
	store := pipelinetest.NewObjectStore(t)
	return exportPlace{
		out: "s3://" + pipelinetest.Bucket + "/events",
		setup: func(c *exec.Cmd) {
			c.Env = append(c.Env, "AWS_ENDPOINT_URL="+store.URL, "AWS_REGION=us-east-1",
				"AWS_ACCESS_KEY_ID="+pipelinetest.AccessKey, "AWS_SECRET_ACCESS_KEY="+pipelinetest.SecretKey)
		},
		names: func() (names []string) {
			for o := range store.Client.ListObjectsIter(t.Context(), pipelinetest.Bucket, minio.ListObjectsOptions{Prefix: "events/month=", Recursive: true}) {
				if o.Err != nil {
					t.Fatal(o.Err)
				}
				names = append(names, o.Key)
			}
			return names
		},
		read: func(name string) []byte {
			o, err := store.Client.GetObject(t.Context(), pipelinetest.Bucket, name, minio.GetObjectOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer o.Close()
			data, err := io.ReadAll(o)
			if err != nil {
				t.Fatal(err)
			}
			return data
		},
	}
}

// run kills exports in a format to a place, and compares the rows with those of an export that is not killed.
func (k *killedExports) run(t *testing.T, format export.Format, place exportPlace, flags ...string) {
	t.Helper()
	begin := func(p exportPlace, flags ...string) *process {
		t.Helper()
		return startWith(t, p.setup, k.home, k.url, append([]string{"export", "--out", p.out, "--format", string(format), "--span-bytes", k.spanBytes}, flags...)...)
	}
	finish := func(p exportPlace, flags ...string) []string {
		t.Helper()
		if code, out := ended(begin(p, flags...)); code != 0 {
			t.Fatalf("export: exit code %d\n%s", code, out)
		}
		return p.rows(t, format)
	}
	whole, ok := k.wholes[format]
	if !ok {
		folder := folderPlace(t)
		whole.rows = finish(folder)
		whole.files = len(folder.names())
		k.wholes[format] = whole
	}
	step := whole.files * 3 / 2 / k.kills // files, so that most kills are before the end
	if len(whole.rows) < 3000 || step == 0 {
		t.Fatalf("only %d events in %d files", len(whole.rows), whole.files)
	}
	killed := 0
	looked, stored := map[string]bool{}, map[string]bool{} // files, and the sequences of their events
	compacts := slices.Contains(flags, "--compact")
	if compacts {
		finish(place) // what is killed are compactions
	}
	next := 20 * time.Millisecond // for what an export does next
	if compacts {
		next = 2 * time.Millisecond // its files come and go faster
	}
	for range k.kills {
		before, more := place.names(), k.random.IntN(step)
		p := begin(place, flags...)
		look := time.NewTicker(lookEvery)
		for now := before; p.running() && (compacts && slices.Equal(before, now) || !compacts && len(now) < len(before)+more); now = place.names() {
			<-look.C
		}
		look.Stop()
		select { // anywhere in what it does next
		case err := <-p.exit:
			p.exit <- err
		case <-time.After(time.Duration(k.random.Int64N(int64(next)))):
			killed++
		}
		p.kill()
		if compacts { // files come and go
			clear(looked)
			clear(stored)
		}
		for _, name := range unreplaced(place.names()) {
			if looked[name] {
				continue // it is read again in the end
			}
			looked[name] = true
			for _, line := range place.lines(t, format, name) {
				sequence, _, _ := strings.Cut(line, ",")
				if stored[sequence] {
					t.Fatalf("%s has an event that another file has: %s", name, sequence)
				}
				stored[sequence] = true
			}
		}
	}
	t.Logf("%d of %d exports of %s to %s were killed before their end: %d events in %d files", killed, k.kills, format, place.out, len(whole.rows), len(place.names()))
	if killed == 0 {
		t.Error("every export ended before it was killed")
	}
	if diff := cmp.Diff(whole.rows, finish(place, flags...)); diff != "" {
		t.Errorf("the files differ from those of an export that was not killed:\n%.2000s", diff)
	}
	if n := len(place.names()); compacts && n > whole.files/4 {
		t.Errorf("%d files are left of %d", n, whole.files)
	}
}

// unreplaced returns the names of files whose rows no other file of their folder has: its span, which its name has, would have theirs.
func unreplaced(names []string) []string {
	span := func(name string) (folder, first, last string) {
		folder, file := path.Split(filepath.ToSlash(name))
		first, last, _ = strings.Cut(strings.TrimPrefix(file, "part-"), "-")
		return folder, first, last
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		folder, first, last := span(name)
		return slices.ContainsFunc(names, func(other string) bool {
			f, a, z := span(other)
			return other != name && f == folder && a <= first && last <= z
		})
	})
}

// rows returns all rows of a place as lines of JSON, sorted.
func (p exportPlace) rows(t *testing.T, format export.Format) []string {
	t.Helper()
	var lines []string
	for _, name := range unreplaced(p.names()) {
		lines = append(lines, p.lines(t, format, name)...)
	}
	slices.Sort(lines)
	return lines
}

// lines returns the rows of a file as lines of JSON. It fails if the file is not whole.
func (p exportPlace) lines(t *testing.T, format export.Format, name string) []string {
	t.Helper()
	data := p.read(name)
	var lines []string
	if format == export.JSONL {
		for line := range strings.Lines(string(data)) {
			if !strings.HasSuffix(line, "}\n") || !strings.HasPrefix(line, `{"stream_sequence":`) {
				t.Fatalf("half a line is seen: %.200s", line)
			}
			lines = append(lines, line)
		}
		return lines
	}
	rows, err := parquet.Read[export.Row](bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	for i := range rows {
		line, err := json.Marshal(&rows[i])
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(line))
	}
	return lines
}
