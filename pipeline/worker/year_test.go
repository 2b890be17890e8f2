package worker_test

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/embedded"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

const (
	day  = 24 * time.Hour
	kept = 30 // days of raw records and of events, and of states under their own subjects
)

// calendar makes days of moments of the broker's clock.
type calendar struct {
	mu     sync.Mutex
	begins []time.Time // of each day
}

// age is how many days ago something was stored.
func (c *calendar) age(stored, _ time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, _ := slices.BinarySearchFunc(c.begins, stored, time.Time.Compare)
	return time.Duration(len(c.begins)-n) * day
}

// year is a deployment over many days.
type year struct {
	tb       testing.TB
	top      streams.Topology
	store    string
	server   *pipelinetest.Server
	js       jetstream.JetStream
	sessions int // that begin each day
	calendar calendar
	worker   *running
	ends     []map[string]uint64 // the last sequence of each stream, by day
	own      map[string]int      // day of the last record of the sessions whose states are under their own subjects
	all      int                 // sessions
}

// startYear starts a server and a worker.
func startYear(tb testing.TB, sessions int) *year {
	tb.Helper()
	y := &year{tb: tb, top: topology(2), store: tb.TempDir(), sessions: sessions, own: make(map[string]int)}
	// The server gives the space of what was removed back when it syncs: many times a day, which here takes half a second.
	y.server = pipelinetest.NewServer(tb, func(c *embedded.Config) { c.StoreDir, c.SyncInterval = y.store, 100*time.Millisecond })
	y.js = y.server.Provision(y.top)
	y.worker = start(tb, y.js, y.config("first", 10*time.Millisecond))
	return y
}

func (y *year) config(name string, every time.Duration) worker.Config {
	cfg := member(y.top, name)
	cfg.ArchiveAfter = kept * day
	return worker.Archiving(cfg, every, y.calendar.age, 0)
}

// records returns n records of a session from the first on.
func (y *year) records(session string, first, n int) []core.Record {
	var out []core.Record
	for i := first; i < first+n; i++ {
		r := user(session, fmt.Sprintf("prompt %d of %s", i, session))
		if i%2 == 1 {
			r.Data = fmt.Appendf(nil, `{"type":"assistant","uuid":"%s-%d","sessionId":%q,"timestamp":"2026-03-01T09:00:00Z","message":{"id":"msg_%s_%d","role":"assistant","model":"claude-test-1","content":[{"type":"text","text":"answer"}],"usage":{"input_tokens":%d,"output_tokens":7}}}`,
				session, i, session, session, i, i)
		}
		out = append(out, r)
	}
	return out
}

// pass passes a day: sessions begin, some old ones go on, and what is older than the retention goes.
func (y *year) pass() {
	y.tb.Helper()
	today := len(y.ends)
	now, err := streams.BrokerTime(y.tb.Context(), y.js)
	if err != nil {
		y.tb.Fatal(err)
	}
	y.calendar.mu.Lock()
	y.calendar.begins = append(y.calendar.begins, now)
	y.calendar.mu.Unlock()

	name := func(day, n int) string { return fmt.Sprintf("%08x-0000-4000-8000-%012d", day, n) }
	var records []core.Record
	for i := range y.sessions {
		records = append(records, y.records(name(today, i), 0, 6)...)
		y.own[name(today, i)] = today
		y.all++
	}
	for _, ago := range []int{5, 45, 300} { // one of the sessions of each of these days goes on
		if ago <= today {
			late := name(today-ago, today%y.sessions)
			records = append(records, y.records(late, 6, 2)...)
			y.own[late] = today
		}
	}
	pipelinetest.Publish(y.tb, y.js, records...)
	if err := replay.CatchUp(deadline(y.tb), y.js, y.top); err != nil {
		y.tb.Fatal(err)
	}
	y.expire(today)
	awaitStates(y.tb, y.js, y.left(today))
}

// expire removes the raw records and the events that are too old, as their retention does.
func (y *year) expire(today int) {
	y.tb.Helper()
	ends := make(map[string]uint64)
	for name, filter := range map[string]string{streams.RawStream: ">", streams.EventsStream("v1"): "events.>"} {
		stream, err := y.js.Stream(y.tb.Context(), name)
		if err != nil {
			y.tb.Fatal(err)
		}
		ends[name] = stream.CachedInfo().State.LastSeq
		if today >= kept {
			if err := stream.Purge(y.tb.Context(), jetstream.WithPurgeSubject(filter), jetstream.WithPurgeSequence(y.ends[today-kept][name]+1)); err != nil {
				y.tb.Fatal(err)
			}
		}
	}
	y.ends = append(y.ends, ends)
}

// left returns how many states are to be under their own subjects: once the oldest of a partition is older
// by a quarter than it has to be, all go that are old enough.
func (y *year) left(today int) int {
	for p := range y.top.Partitions {
		var old []string
		oldest := 0
		for session, last := range y.own {
			if envelopes.Partition(envelopes.ClaudeCode, session, y.top.Partitions) != p {
				continue
			}
			oldest = max(oldest, today-last)
			if today-last >= kept {
				old = append(old, session)
			}
		}
		if 4*oldest >= 5*kept {
			for _, session := range old {
				delete(y.own, session)
			}
		}
	}
	return len(y.own)
}

// measures are what must not grow with the sessions that ever were. Time and memory are only logged, because
// other tests have their share in them.
type measures struct {
	Subjects, Messages, Bytes, Archives, Disk, Requests int
	Takeover, Status                                    time.Duration
	Heap                                                uint64 // bytes, of the server and the test
}

// measure measures. What belongs to archives is left out: the partitions limit how many there are, and their bytes are
// what the sessions need on the disk alone.
func (y *year) measure() (m measures) {
	y.tb.Helper()
	for _, a := range stored(y.tb, y.js, "archives.>") {
		m.Subjects--
		m.Messages--
		m.Archives += len(a.Data) + len(a.Subject)
	}
	m.Bytes = -m.Archives
	for _, name := range []string{streams.RawStream, streams.EventsStream("v1")} {
		stream, err := y.js.Stream(y.tb.Context(), name)
		if err != nil {
			y.tb.Fatal(err)
		}
		state := stream.CachedInfo().State
		m.Subjects += int(state.NumSubjects)
		m.Messages += int(state.Msgs)
		m.Bytes += int(state.Bytes)
		m.Disk += fileBytes(y.tb, filepath.Join(y.store, "jetstream", "$G", "streams", name))
	}
	y.worker.stop(y.tb)
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	m.Heap = memory.HeapAlloc
	counted := countRequests(y.tb, y.server)
	begin := time.Now()
	w := start(y.tb, y.js, y.config("second", time.Hour))
	ready(y.tb, w)
	m.Takeover = time.Since(begin)
	begin = time.Now()
	if _, err := replay.ReadStatus(y.tb.Context(), y.js, y.top); err != nil {
		y.tb.Fatal(err)
	}
	m.Status = time.Since(begin)
	m.Requests = streamRequests(counted.take()) // in one: a worker that is ready may still be asking
	if err := counted.sub.Unsubscribe(); err != nil {
		y.tb.Fatal(err)
	}
	w.stop(y.tb)
	y.worker = start(y.tb, y.js, y.config("first", 10*time.Millisecond))
	return m
}

// streamRequests counts the requests that read raw records, or what a generation has.
func streamRequests(verbs map[string]int) (n int) {
	for verb, count := range verbs {
		if verb == "STREAM.MSG.GET" || strings.HasSuffix(verb, "."+streams.RawStream) || strings.HasSuffix(verb, "."+streams.EventsStream("v1")) {
			n += count
		}
	}
	return n
}

// fileBytes returns the bytes of the files below a folder.
func fileBytes(tb testing.TB, dir string) (n int) {
	tb.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += int(info.Size())
		}
		return nil // the server removes files meanwhile
	})
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// Nothing but the bytes of the archives grows after the first month: not the subjects and messages, not the other bytes, not the
// requests of a takeover and of the status. Time is moved by hand.
func TestYearIsFlatAfterItsFirstMonth(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("one worker after the other: the race detector sees nothing new in that")
	}
	sessions, days := 5, 70
	if *limitsLong {
		sessions, days = 200, 365
	}
	y := startYear(t, sessions)
	for range kept {
		y.pass()
	}
	month := y.measure()
	t.Logf("day %d: %+v", kept, month)
	end := month
	for range days - kept {
		y.pass()
		if n := len(y.ends); n%kept == 0 || n == days {
			end = y.measure()
			t.Logf("day %d: %+v; %d sessions", n, end, y.all)
		}
	}
	// States stay for up to 37.5 days, so there are up to a quarter more of them than on day 30.
	for name, pair := range map[string][2]int{
		"subjects": {month.Subjects, end.Subjects}, "messages": {month.Messages, end.Messages}, "bytes": {month.Bytes, end.Bytes},
		"requests of a takeover and of the status": {month.Requests, end.Requests},
	} {
		if 10*pair[1] > 13*pair[0] {
			t.Errorf("%s: %d on day %d, %d on day %d", name, pair[0], kept, pair[1], days)
		}
	}
	// The server gives space back by the block, which a short test has few of.
	if *limitsLong && 10*(end.Disk-end.Archives) > 13*(month.Disk-month.Archives) {
		t.Errorf("files of %d bytes on day %d, %d on day %d", month.Disk, kept, end.Disk, days)
	}
	y.worker.stop(t)
}
