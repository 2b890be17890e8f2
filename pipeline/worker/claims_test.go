package worker_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"pgregory.net/rapid"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/claims"
	"tributary/pipeline/embedded"
	"tributary/pipeline/events"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/records"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// A claim check is accepted in one spelling only, and names nothing outside our bucket.
func TestClaimCheckHasOneSpelling(t *testing.T) {
	t.Parallel()
	digest := strings.Repeat("0a", 32)
	for _, bad := range []string{
		"", "CLAIMS", "CLAIMS/", "CLAIMS/;1", "CLAIMS/" + digest, "CLAIMS/" + digest + ";",
		"CLAIMS/" + digest + ";0", "CLAIMS/" + digest + ";-1", "CLAIMS/" + digest + ";+1", "CLAIMS/" + digest + ";01",
		"CLAIMS/" + digest + ";1 ", " CLAIMS/" + digest + ";1", "CLAIMS/" + digest + ";1;1", "CLAIMS/" + digest + ";0x1",
		"CLAIMS/" + digest + ";99999999999999999999", "CLAIMS/" + digest + ";1e3", "CLAIMS/" + digest + ";١",
		"CLAIMS/" + strings.ToUpper(digest) + ";1", "CLAIMS/" + digest[2:] + ";1", "CLAIMS/" + digest + "0a;1",
		"CLAIMS/" + strings.Repeat("zz", 32) + ";1", "CLAIMS/" + digest[:62] + ".>;1", "CLAIMS//" + digest + ";1",
		"claims/" + digest + ";1", "OTHER/" + digest + ";1", "../CLAIMS/" + digest + ";1",
		"http://example.com/CLAIMS/" + digest + ";1", "file:///CLAIMS/" + digest + ";1", "nats-object:/CLAIMS/" + digest + ";1",
	} {
		c, err := claims.Parse(bad)
		if !errors.Is(err, claims.ErrMalformed) || c != (claims.Claim{}) {
			t.Errorf("%q is read as %v, %v", bad, c, err)
		}
		if err != nil && len(bad) > 10 && strings.Contains(err.Error(), bad) {
			t.Errorf("the error repeats %q", bad)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		want := claims.Of(rapid.SliceOfN(rapid.Byte(), 1, 100).Draw(t, "data"))
		if got, err := claims.Parse(want.String()); err != nil || got != want {
			t.Errorf("%v is read as %v, %v", want, got, err)
		}
	})
}

// noise returns data that cannot be compressed.
func noise(seed uint64, size int) []byte {
	data := make([]byte, size)
	random := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = random.Read(data)
	return data
}

// bucket returns how many objects and chunks the bucket holds.
func bucket(tb testing.TB, js jetstream.JetStream) (objects, chunks int) {
	tb.Helper()
	s, err := js.Stream(tb.Context(), "OBJ_CLAIMS")
	if err != nil {
		tb.Fatal(err)
	}
	info, err := s.Info(tb.Context(), jetstream.WithSubjectFilter(">"))
	if err != nil {
		tb.Fatal(err)
	}
	for subject, n := range info.State.Subjects {
		if strings.HasPrefix(subject, "$O.CLAIMS.C.") {
			chunks += int(n)
		} else {
			objects++ // however often it is described
		}
	}
	return objects, chunks
}

// An object comes back as it was put, and any client of NATS can read it.
func TestObjectComesBackAsItWasPut(t *testing.T) {
	pipelinetest.SkipShort(t)
	t.Parallel()
	for _, payload := range []int32{0, 16 << 10} {
		js := pipelinetest.NewServer(t, func(c *embedded.Config) { c.MaxPayload = payload }).Provision(topology(1))
		claimStore := claims.NewStore(js)
		store, err := js.ObjectStore(t.Context(), streams.ClaimsBucket)
		if err != nil {
			t.Fatal(err)
		}
		objects := 0
		for i, size := range []int{1, 1000, 512 << 10, 512<<10 + 1, 5<<20 + 17} {
			data := noise(uint64(i), size)
			want := claims.Of(data)
			for range 2 {
				claim, err := claimStore.Put(t.Context(), data)
				if err != nil || claim != want {
					t.Fatalf("put %d bytes: %v, %v", size, claim, err)
				}
			}
			objects++
			if n, _ := bucket(t, js); n != objects {
				t.Errorf("%d objects, want %d", n, objects)
			}
			got, err := claimStore.Get(t.Context(), want)
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("get %d bytes: %d, %v", size, len(got), err)
			}
			if got, err = store.GetBytes(t.Context(), want.Digest); err != nil || !bytes.Equal(got, data) {
				t.Errorf("get %d bytes by the object store: %d, %v", size, len(got), err)
			}
		}
		if payload != 0 {
			continue // the chunks of the object store do not fit
		}
		_, before := bucket(t, js)
		for i, size := range []int{1, 3 << 20} { // and what producers put that use the object store of NATS, twice
			data := noise(uint64(100+i), size)
			claim := claims.Of(data)
			for range 2 {
				object(t, js, claim.Digest, data)
			}
			if got, err := claimStore.Get(t.Context(), claim); err != nil || !bytes.Equal(got, data) {
				t.Errorf("get %d bytes of another: %d, %v", size, len(got), err)
			}
			if _, err := claimStore.Put(t.Context(), data); err != nil {
				t.Error(err)
			}
		}
		if _, after := bucket(t, js); after != before+1+24 {
			t.Errorf("%d chunks after %d: an object is stored twice", after, before)
		}
	}
}

func TestObjectBeyondTheLimitIsRefused(t *testing.T) {
	t.Parallel()
	js := pipelinetest.NewServer(t).Provision(topology(1))
	claimStore := claims.NewStore(js)
	if _, err := claimStore.Put(t.Context(), make([]byte, core.MaxRecordBytes+1)); !errors.Is(err, core.ErrTooLarge) {
		t.Errorf("put: %v", err)
	}
	if _, err := claimStore.Get(t.Context(), claims.Claim{Digest: strings.Repeat("0", 64), Size: core.MaxRecordBytes + 1}); !errors.Is(err, core.ErrTooLarge) {
		t.Errorf("get: %v", err)
	}
	if objects, chunks := bucket(t, js); objects+chunks != 0 {
		t.Errorf("%d objects and %d chunks", objects, chunks)
	}
}

// Producers that put the same bytes at the same time, some of which die in the middle, leave
// one object. It is whole whenever one of them returns.
func TestManyProducersOfTheSameBytesLeaveOneObject(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	js := server.Provision(topology(1))
	data := noise(1, 5<<20)
	claim := claims.Of(data)
	var producers sync.WaitGroup
	for n := range 8 {
		js := server.JetStream()
		producers.Go(func() {
			claims := claims.NewStore(js)
			dies := n%2 == 1
			if dies {
				die := time.AfterFunc(time.Duration(n)*3*time.Millisecond, js.Conn().Close)
				defer die.Stop()
			}
			_, err := claims.Put(t.Context(), data)
			if err != nil && !dies {
				t.Errorf("put: %v", err)
			}
			if err != nil || dies {
				return
			}
			if got, err := claims.Get(t.Context(), claim); err != nil || !bytes.Equal(got, data) {
				t.Errorf("get: %d bytes, %v", len(got), err)
			}
		})
	}
	producers.Wait()
	pipelinetest.PublishMessages(t.Context(), t, js, records.ClaimMessage(core.Record{Source: envelopes.ClaudeCode, Session: "s", Data: data}))
	collect(t, claims.NewStore(js)) // what the dead producers have left
	if objects, chunks := bucket(t, js); objects != 1 || chunks != 10 {
		t.Errorf("%d objects of %d chunks, want 1 of 10", objects, chunks)
	}
}

// collect removes orphans of any age and returns their names.
func collect(tb testing.TB, claims *claims.Store) []string {
	tb.Helper()
	orphans, err := claims.Orphans(tb.Context(), 0)
	if err != nil {
		tb.Fatal(err)
	}
	names := []string{}
	for _, o := range orphans {
		if ok, err := claims.Remove(tb.Context(), o); !ok || err != nil {
			tb.Errorf("remove %+v: %v, %v", o, ok, err)
		}
		names = append(names, o.Name)
	}
	return names
}

// prompt returns a record of Claude Code of about size bytes.
func prompt(session string, n, size int) core.Record {
	return core.Record{
		Source: envelopes.ClaudeCode, Session: session,
		Data: fmt.Appendf(nil, `{"type":"user","uuid":"%s-%d","sessionId":%q,"timestamp":"2026-03-01T10:00:%02d.000Z","cwd":"/home/ada/garden","message":{"role":"user","content":"%s%d"}}`,
			session, n, session, n%60, strings.Repeat("water \\u00e9 ", size/12), n),
	}
}

// A record yields the same events whether it travels in its message or by claim check.
func TestRecordYieldsTheSameEventsInlineOrByClaimCheck(t *testing.T) {
	pipelinetest.SkipShort(t)
	t.Parallel()
	top := topology(2)
	sent := pipelinetest.Workload(50, 4, 50)
	sent = append(sent, prompt("large", 1, 700<<10), prompt("large", 2, 10))
	var want map[string][]string
	for _, by := range []func(jetstream.JetStream, core.Record) *nats.Msg{
		func(_ jetstream.JetStream, r core.Record) *nats.Msg { return records.Message(r) },
		func(js jetstream.JetStream, r core.Record) *nats.Msg {
			if len(r.Data) == 0 {
				return records.Message(r)
			}
			if _, err := claims.NewStore(js).Put(t.Context(), r.Data); err != nil {
				t.Fatal(err)
			}
			return records.ClaimMessage(r)
		},
	} {
		js := pipelinetest.NewServer(t).Provision(top)
		for _, r := range sent {
			m := by(js, r)
			pipelinetest.PublishMessages(t.Context(), t, js, m)
		}
		s := start(t, js, worker.Config{Topology: top, ClaimBytes: 3 << 20})
		report := pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
		s.stop(t)
		if report.DeadLetters == 0 || report.Events == 0 {
			t.Errorf("%d events and %d dead letters", report.Events, report.DeadLetters)
		}
		got := liveEvents(t, js)
		if want == nil {
			want = got
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("events (-inline +by claim):\n%s", diff)
		}
	}
}

// object puts bytes into the bucket as the object store of NATS does, under any name.
func object(tb testing.TB, js jetstream.JetStream, name string, data []byte) {
	tb.Helper()
	inStore(tb, js, func(store jetstream.ObjectStore) error {
		_, err := store.PutBytes(tb.Context(), name, data)
		return err
	})
}

// inStore lets the object store of NATS write to the bucket, as it could when the bucket
// allowed rollups.
func inStore(tb testing.TB, js jetstream.JetStream, write func(jetstream.ObjectStore) error) {
	tb.Helper()
	allowRollups(tb, js, "OBJ_CLAIMS", true)
	store, err := js.ObjectStore(tb.Context(), streams.ClaimsBucket)
	if err == nil {
		err = write(store)
	}
	if err != nil {
		tb.Fatal(err)
	}
	allowRollups(tb, js, "OBJ_CLAIMS", false)
}

func allowRollups(tb testing.TB, js jetstream.JetStream, name string, allow bool) {
	tb.Helper()
	s, err := js.Stream(tb.Context(), name)
	if err != nil {
		tb.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.AllowRollup = allow
	if _, err := js.UpdateStream(tb.Context(), cfg); err != nil {
		tb.Fatal(err)
	}
}

// A claim check that names nothing, or the wrong bytes, costs its record and nothing else.
func TestBadClaimCheckCostsOnlyItsRecord(t *testing.T) {
	t.Parallel()
	good := prompt("s1", 1, 100).Data
	claim := claims.Of(good)
	message := func(value string) *nats.Msg {
		m := records.ClaimMessage(prompt("s1", 1, 100))
		m.Header[envelopes.HeaderClaim] = []string{value}
		return m
	}
	with := func(m *nats.Msg, name, value string) *nats.Msg {
		m.Header[name] = append(m.Header[name], value)
		return m
	}
	type none = func(testing.TB, jetstream.JetStream)
	for name, c := range map[string]struct {
		before  none
		message *nats.Msg
		reason  string
	}{
		"missing": {nil, message(claim.String()), "claim_missing"},
		"deleted": {func(tb testing.TB, js jetstream.JetStream) {
			tb.Helper()
			object(tb, js, claim.Digest, good)
			inStore(tb, js, func(store jetstream.ObjectStore) error { return store.Delete(tb.Context(), claim.Digest) })
		}, message(claim.String()), "claim_missing"},
		"link": {func(tb testing.TB, js jetstream.JetStream) {
			tb.Helper()
			object(tb, js, "other", good)
			inStore(tb, js, func(store jetstream.ObjectStore) error {
				other, err := store.GetInfo(tb.Context(), "other")
				if err == nil {
					_, err = store.AddLink(tb.Context(), claim.Digest, other)
				}
				return err
			})
		}, message(claim.String()), "claim_missing"},
		"wildcard for chunks": {func(tb testing.TB, js jetstream.JetStream) {
			tb.Helper()
			object(tb, js, "other", good)
			m := nats.NewMsg("$O.CLAIMS.M." + base64Name(claim.Digest))
			m.Data = fmt.Appendf(nil, `{"name":%q,"bucket":"CLAIMS","nuid":"*","size":%d,"chunks":1}`, claim.Digest, claim.Size)
			if _, err := js.PublishMsg(tb.Context(), m); err != nil {
				tb.Fatal(err)
			}
		}, message(claim.String()), "claim_missing"},
		"no description": {func(tb testing.TB, js jetstream.JetStream) {
			tb.Helper()
			m := nats.NewMsg("$O.CLAIMS.M." + base64Name(claim.Digest))
			m.Data = []byte("{")
			if _, err := js.PublishMsg(tb.Context(), m); err != nil {
				tb.Fatal(err)
			}
		}, message(claim.String()), "claim_missing"},
		"shorter": {func(tb testing.TB, js jetstream.JetStream) { tb.Helper(); object(tb, js, claim.Digest, good[1:]) }, message(claim.String()), "claim_size"},
		"longer": {func(tb testing.TB, js jetstream.JetStream) {
			tb.Helper()
			object(tb, js, claim.Digest, append(slices.Clip(good), ' '))
		}, message(claim.String()), "claim_size"},
		"other size": {func(tb testing.TB, js jetstream.JetStream) { tb.Helper(); object(tb, js, claim.Digest, good) }, message(claims.Claim{Digest: claim.Digest, Size: claim.Size + 1}.String()), "claim_size"},
		"chunks gone": {func(tb testing.TB, js jetstream.JetStream) {
			tb.Helper()
			object(tb, js, claim.Digest, good)
			purgeChunks(tb, js)
		}, message(claim.String()), "claim_size"},
		"other bytes": {func(tb testing.TB, js jetstream.JetStream) {
			tb.Helper()
			object(tb, js, claim.Digest, bytes.ToUpper(good))
		}, message(claim.String()), "claim_digest"},
		"too large":    {nil, message(claims.Claim{Digest: claim.Digest, Size: core.MaxRecordBytes + 1}.String()), "too_large"},
		"empty":        {nil, message(""), "bad_claim"},
		"URL":          {nil, message("http://127.0.0.1/" + claim.String()), "bad_claim"},
		"other bucket": {nil, message("OTHER" + strings.TrimPrefix(claim.String(), "CLAIMS")), "bad_claim"},
		"twice":        {nil, with(message(claim.String()), envelopes.HeaderClaim, claim.String()), "bad_claim"},
		"with an end":  {nil, with(message(claim.String()), envelopes.HeaderEnd, "1"), "bad_claim"},
		"with a body": {nil, func() *nats.Msg {
			m := message(claim.String())
			m.Data = good
			return m
		}(), "bad_claim"},
		"with a bad header": {nil, with(message(claim.String()), envelopes.HeaderTime, "yesterday"), "bad_header"},
		"no record": {func(tb testing.TB, js jetstream.JetStream) {
			tb.Helper()
			object(tb, js, claims.Of([]byte("garbage")).Digest, []byte("garbage"))
		}, message(claims.Of([]byte("garbage")).String()), "malformed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := topology(2)
			js := pipelinetest.NewServer(t).Provision(top)
			if c.before != nil {
				c.before(t, js)
			}
			around := pipelinetest.Workload(51, 4, 40)
			pipelinetest.Publish(t, js, around[:20]...)
			pipelinetest.PublishMessages(t.Context(), t, js, c.message)
			pipelinetest.Publish(t, js, around[20:]...)
			s := start(t, js, worker.Config{Topology: top})
			pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
			s.stop(t)
			m := letter(t, js, 21)
			if got := m.Header.Get(envelopes.HeaderReason); got != c.reason {
				t.Errorf("reason %q, want %q: %s", got, c.reason, m.Header.Get(envelopes.HeaderError))
			}
			if got, want := m.Header[envelopes.HeaderOriginal+envelopes.HeaderClaim], c.message.Header[envelopes.HeaderClaim]; !cmp.Equal(got, want) {
				t.Errorf("the dead letter has the claim %q, want %q", got, want)
			}
			if !bytes.Equal(m.Data, c.message.Data) {
				t.Errorf("the dead letter has %d bytes, the message had %d", len(m.Data), len(c.message.Data))
			}
		})
	}
}

func base64Name(name string) string { return base64.URLEncoding.EncodeToString([]byte(name)) }

// purgeChunks purges the chunks of the bucket.
func purgeChunks(tb testing.TB, js jetstream.JetStream) {
	tb.Helper()
	s, err := js.Stream(tb.Context(), "OBJ_CLAIMS")
	if err != nil {
		tb.Fatal(err)
	}
	if err := s.Purge(tb.Context(), jetstream.WithPurgeSubject("$O.CLAIMS.C.>")); err != nil {
		tb.Fatal(err)
	}
}

// smallMessages configures a server at which records over 512 KiB travel by claim check.
func smallMessages(c *embedded.Config) { c.MaxPayload = 1 << 20 }

// A stage waits for a broker that restarts while objects are fetched: no record becomes a
// dead letter.
func TestLargeRecordsSurviveServerRestarts(t *testing.T) {
	t.Parallel()
	top := topology(2)
	server := pipelinetest.NewServer(t, smallMessages)
	js := server.Provision(top)
	restarts := 3
	if testing.Short() {
		restarts = 2
	}
	var records []core.Record
	for i := range 6 * restarts {
		records = append(records, prompt("s"+strconv.Itoa(i%3), i, 1200<<10))
	}
	pipelinetest.Publish(t, js, records...)
	normalized := make(chan struct{}, len(records)*10)
	s := start(t, js, worker.Config{Topology: top, ClaimBytes: 4 << 20, Normalize: func(s *core.Session, r core.Record) (core.Result, error) {
		normalized <- struct{}{}
		return normalizers.Normalize(s, r)
	}})
	for range restarts {
		for range 3 {
			select {
			case <-normalized:
			case <-deadline(t).Done():
				t.Fatal("nothing is normalized")
			}
		}
		server.Restart()
	}
	report := pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	s.stop(t)
	if report.DeadLetters != 0 || report.Records != len(records) {
		t.Errorf("%+v", report)
	}
}

// logLines is a handler that sends each line of a log.
type logLines chan string

func (c logLines) Enabled(context.Context, slog.Level) bool { return true }
func (c logLines) WithAttrs([]slog.Attr) slog.Handler       { return c }
func (c logLines) WithGroup(string) slog.Handler            { return c }
func (c logLines) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += " " + a.Value.String()
		return true
	})
	select {
	case c <- text:
	default:
	}
	return nil
}

// showsWaitingRecord reports whether the metrics of a stage show one record that waits.
func showsWaitingRecord(t *testing.T, reader sdkmetric.Reader) bool {
	t.Helper()
	var metrics metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &metrics); err != nil {
		t.Fatal(err)
	}
	lag, old := false, false
	for _, m := range metrics.ScopeMetrics[0].Metrics {
		switch data := m.Data.(type) {
		case metricdata.Gauge[int64]:
			lag = lag || m.Name == "tributary.lag" && data.DataPoints[0].Value == 1
		case metricdata.Gauge[float64]:
			old = old || m.Name == "tributary.oldest" && data.DataPoints[0].Value > 0
		}
	}
	return lag && old
}

// A missing bucket is the fault of the operator and not of the records: the partition logs it
// and waits, and no record becomes a dead letter.
func TestMissingBucketCostsNoRecord(t *testing.T) {
	t.Parallel()
	top := topology(1)
	js := pipelinetest.NewServer(t).Provision(top)
	lines := make(logLines, 1000)
	reader := sdkmetric.NewManualReader()
	meter := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("test")
	s := start(t, js, worker.Config{Topology: top, Logger: slog.New(lines), Meter: meter})
	ready(t, s)
	if err := js.DeleteObjectStore(t.Context(), streams.ClaimsBucket); err != nil {
		t.Fatal(err)
	}
	record := prompt("s", 1, 1000)
	pipelinetest.PublishMessages(t.Context(), t, js, records.ClaimMessage(record))
	for n := 0; n < 2; {
		select {
		case text := <-lines:
			if strings.Contains(text, "partitions lost") && strings.Contains(text, "bucket CLAIMS") {
				n++
			}
		case <-deadline(t).Done():
			t.Fatal("the partition does not log what it waits for")
		}
	}
	ctx := deadline(t)
	for !showsWaitingRecord(t, reader) { // which they do not while the partition is acquired again
		if ctx.Err() != nil {
			t.Fatal("the metrics show no lag, or no record that is old, while one waits")
		}
	}
	s.kill()
	if err := streams.Provision(t.Context(), js, top); err != nil {
		t.Fatal(err)
	}
	if _, err := claims.NewStore(js).Put(t.Context(), record.Data); err != nil {
		t.Fatal(err)
	}
	s = start(t, js, worker.Config{Topology: top})
	report := pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	s.stop(t)
	if report.DeadLetters != 0 || report.Events != 1 {
		t.Errorf("%+v", report)
	}
}

// A worker that dies while it has fetched objects leaves nothing undone.
func TestLargeRecordsSurviveWorkerCrashes(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("one worker after the other: the race detector sees nothing new in that")
	}
	top := topology(2)
	js := pipelinetest.NewServer(t, smallMessages).Provision(top)
	var records []core.Record
	for i := range 24 {
		records = append(records, prompt("s"+strconv.Itoa(i%4), i, 1200<<10*(i%2)+10))
	}
	pipelinetest.Publish(t, js, records...)
	for i := range 5 {
		n := 0
		var mu sync.Mutex
		s := startCrashing(t, js, worker.Config{Topology: top}, func(core.Record) bool {
			mu.Lock()
			defer mu.Unlock()
			n++
			return n == 1+2*i
		})
		if err := s.wait(t); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	s := start(t, js, worker.Config{Topology: top})
	report := pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	s.stop(t)
	if report.DeadLetters != 0 {
		t.Errorf("%+v", report)
	}
}

// The memory for large records is bounded, however many wait: a worker that has done some takes
// no more for many that arrive at once.
func TestMemoryForLargeRecordsIsBounded(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("moves 100 MB")
	}
	count, size := scaled(40, 100), scaled(1200<<10, 8<<20)
	top := topology(4)
	server := pipelinetest.NewServer(t, smallMessages)
	js := server.Provision(top)
	w := pipelinetest.StartWorker(t, pipelinetest.Worker{
		URL: server.URL(), Name: "worker", Generation: top.Generation, Partitions: top.Partitions, ClaimBytes: int64(4 * size), Frugal: true,
	})
	records := make([]core.Record, count)
	for i := range records {
		records[i] = prompt("s"+strconv.Itoa(i), i, size)
	}
	work := func(records []core.Record) (peak int64) {
		t.Helper()
		pipelinetest.Publish(t, js, records...)
		if err := replay.CatchUp(t.Context(), js, top); err != nil {
			t.Fatal(err)
		}
		return pipelinetest.PeakMemory(w.PID())
	}
	before := work(records[:count/5])
	after := work(records[count/5:])
	if code := w.Stop(); code != 0 {
		t.Errorf("the worker ended with %d:\n%s", code, w.Output())
	}
	eventCount := 0
	for e, err := range events.Read(t.Context(), js, "v1", events.Query{}) {
		if err != nil || !e.TextTruncated {
			t.Fatalf("event %d: cut is %v, %v", eventCount, e.TextTruncated, err)
		}
		eventCount++
	}
	if eventCount != count {
		t.Errorf("%d events of %d records", eventCount, count)
	}
	if objects, _ := bucket(t, js); objects != count {
		t.Errorf("%d records travel by claim check, want %d", objects, count)
	}
	t.Logf("worker at its peak: %d MiB after %d records of %d KiB, %d MiB after %d", before>>20, count/5, size>>10, after>>20, count)
	if limit := before + int64(count*size)/4; after > limit {
		t.Errorf("the worker took %d MiB at its peak, more than %d", after>>20, limit>>20)
	}
}
