package main

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/streams"
)

var (
	killSeed   = flag.Uint64("kill.seed", 0, "seed of the moments at which TestKillsChangeNoEvent kills; 0 draws another one each time")
	killRounds = flag.Int("kill.rounds", 4, "kills of TestKillsChangeNoEvent, each while 833 generated records are shipped")
)

const (
	workers      = 3   // workers that share the partitions
	roundRecords = 833 // generated records of a round
	pauseEvery   = 8   // in one of so many rounds a worker is paused instead, until others own its partitions
	edgeEvery    = 6   // in one of so many rounds the edge is killed, too
)

// TestKillsChangeNoEvent kills workers by SIGKILL at random moments while records are shipped,
// and the edge in some rounds, too. Some workers are paused until others own their partitions,
// and then continue. In the end the stored events are byte for byte those of a fold over the
// raw stream in its order, without a gap, a duplicate or a loss; and for each file that is the
// whole of a session, they are the output of normalize.
//
//	go test ./cmd/tributary -v -run TestKill -kill.rounds 24
func TestKillsChangeNoEvent(t *testing.T) {
	needsFaults(t)
	t.Parallel()
	seed := cmp.Or(*killSeed, rand.Uint64())
	t.Logf("repeat these moments with -kill.seed=%d", seed)

	t.Run("generated", func(t *testing.T) {
		t.Parallel()
		shipWithKills(t, generatedLogs(t, seed), seed)
	})
	t.Run("corpus", func(t *testing.T) {
		t.Parallel()
		corpus := os.Getenv("TRIBUTARY_CORPUS")
		if corpus == "" {
			t.Skip("TRIBUTARY_CORPUS is not set")
		}
		shipWithKills(t, filepath.Join(corpus, "claude_code"), seed)
	})
}

// generatedLogs writes sessions to files, one each. Some of their records cannot be read.
func generatedLogs(t *testing.T, seed uint64) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range workloadFiles(seed, 60, *killRounds*roundRecords) {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// workloadFiles returns the records of a [pipelinetest.Workload] as files, by name.
func workloadFiles(seed uint64, sessions, records int) map[string][]byte {
	files := map[string][]byte{}
	for _, r := range pipelinetest.Workload(seed, sessions, records) {
		if !r.Origin.End {
			name := r.Origin.File + ".jsonl"
			files[name] = append(append(files[name], r.Data...), '\n')
		}
	}
	return files
}

// shipWithKills ships the logs in dir while workers are killed, and compares the events.
func shipWithKills(t *testing.T, dir string, seed uint64) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	logs := readLogs(t, dir)
	server := pipelinetest.NewServer(t)
	home := t.TempDir()
	top := streams.DefaultTopology()
	js := server.Provision(top)

	// Each round has logs of its own, so that there is work in it however fast the machine is.
	// The kill happens at some time after the workers have sent the first event of the round.
	sent := newArrivals(t, js.Conn(), "events."+top.Generation+".>")
	began := time.Now()
	edgeKills, pauses := 0, 0
	var pool []*process
	for range workers {
		pool = append(pool, start(t, home, server.URL(), "run"))
	}
	defer func() {
		for _, worker := range pool {
			if t.Failed() {
				worker.endWithStacks()
				t.Logf("%v:\n%s", worker.cmd.Args, &worker.stderr)
			}
		}
	}()
	for n, round := range logs.rounds(*killRounds) {
		count, _ := sent.now()
		edge := startShip(t, home, server.URL(), round.files)
		if n%edgeEvery == 0 {
			sent.reach(t.Context(), count+1, edge, patience)
			edge.kill()
			edgeKills++
			edge = startShip(t, home, server.URL(), round.files)
		}
		i := random.IntN(len(pool))
		victim := pool[i]
		sent.reach(t.Context(), count+1+random.IntN(round.records/2+1), victim, time.Duration(random.Int64N(int64(500*time.Millisecond))))
		if n%pauseEvery == 2 {
			victim.pause()
			awaitTakeover(t, js, top, victim)
			victim.resume()
			pauses++
		} else {
			victim.kill()
			pool[i] = start(t, home, server.URL(), "run")
		}
		if code := edge.wait(); code != 0 {
			t.Fatalf("ship: exit code %d\n%s", code, &edge.stderr)
		}
	}
	r := pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	for _, worker := range pool {
		if code := worker.signal(syscall.SIGTERM); code != 0 {
			t.Errorf("run: exit code %d after SIGTERM\n%s", code, &worker.stderr)
		}
	}
	t.Logf("%d workers and %d edges killed, %d workers paused in %v: %d records, %d events, %d dead letters, %d sessions",
		*killRounds-pauses, edgeKills, pauses, time.Since(began).Round(time.Second), r.Records, r.Events, r.DeadLetters, r.Sessions)

	stored := storedEvents(t, js, top.Generation)
	compared := 0
	for session, file := range logs.whole {
		compared++
		code := 0
		if logs.unreadable[file] {
			code = exitPartly
		}
		want := output(t, code, "normalize", "--source", string(envelopes.ClaudeCode), file)
		if got := stored[session]; !bytes.Equal(got, want) {
			t.Errorf("session %s: %d bytes of events stored, normalize prints %d", session, len(got), len(want))
		}
	}
	if compared == 0 {
		t.Error("no file is the whole of a session: nothing was compared with normalize")
	}
	t.Logf("%d files are a whole session: their events are the output of normalize", compared)
}

// awaitTakeover waits until other workers own all partitions of the victim.
func awaitTakeover(t *testing.T, js jetstream.JetStream, top streams.Topology, victim *process) {
	t.Helper()
	name := fmt.Sprintf("-%d", victim.cmd.Process.Pid)
	awaitWorkers(t, js, top, func(all []streams.Worker) bool {
		others := map[int]bool{}
		for _, w := range all {
			for _, p := range w.Partitions {
				if !strings.HasSuffix(w.Name, name) {
					others[p] = true
				}
			}
		}
		return len(others) == top.Partitions
	})
}

// awaitWorkers waits until ok accepts the workers of a topology.
func awaitWorkers(t *testing.T, js jetstream.JetStream, top streams.Topology, ok func([]streams.Worker) bool) {
	t.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	limit := time.After(patience)
	for {
		all, err := streams.Workers(t.Context(), js, top.Generation)
		if err != nil {
			t.Fatal(err)
		}
		if ok(all) {
			return
		}
		select {
		case <-look.C:
		case <-limit:
			t.Fatalf("the workers do not change any more: %+v", all)
		}
	}
}

// startShip starts the edge.
func startShip(t *testing.T, home, url string, files []string) *process {
	t.Helper()
	return start(t, home, url, append([]string{"ship", "--once", "--source", string(envelopes.ClaudeCode)}, files...)...)
}

// logs are the files of a folder.
type logs struct {
	files      []share           // one for each file
	whole      map[string]string // by session: the only file of the session, which has no other session
	unreadable map[string]bool   // files with records that cannot be read
}

// share is a part of the files.
type share struct {
	files   []string
	records int
}

// rounds distributes the files over n rounds, each file to the one with the fewest records.
func (l logs) rounds(n int) []share {
	out := make([]share, n)
	slices.SortStableFunc(l.files, func(a, b share) int { return b.records - a.records })
	for _, f := range l.files {
		least := &out[0]
		for i := range out {
			if out[i].records < least.records {
				least = &out[i]
			}
		}
		least.files = append(least.files, f.files...)
		least.records += f.records
	}
	return out
}

// readLogs reads the logs of Claude Code in a folder.
func readLogs(t *testing.T, dir string) logs {
	t.Helper()
	l := logs{whole: map[string]string{}, unreadable: map[string]bool{}}
	files := map[string][]string{} // of a session
	sessions := map[string]int{}   // of a file
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(d.Name(), ".") {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		f := normalizers.NewFramer(normalizers.File{Source: envelopes.ClaudeCode, Name: d.Name(), Modified: info.ModTime()})
		_, _ = f.Write(data) // never fails
		f.Close()
		states := map[string]*core.Session{}
		records := 0
		for framed, ok := f.Next(); ok; framed, ok = f.Next() {
			r := framed.Record
			if r.Origin.End {
				continue
			}
			records++
			if states[r.Session] == nil {
				states[r.Session] = normalizers.NewSession(r.Source, r.Session)
				files[r.Session] = append(files[r.Session], path)
				sessions[path]++
			}
			if framed.Err == nil {
				_, framed.Err = normalizers.Normalize(states[r.Session], r)
			}
			if framed.Err != nil {
				l.unreadable[path] = true
			}
		}
		l.files = append(l.files, share{[]string{path}, records})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for session, in := range files {
		if len(in) == 1 && sessions[in[0]] == 1 {
			l.whole[session] = in[0]
		}
	}
	if len(l.files) == 0 {
		t.Fatal(fmt.Errorf("no logs in %s", dir))
	}
	return l
}
