package erasure_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/broker"
	"tributary/pipeline/embedded"
	"tributary/pipeline/erasure"
	"tributary/pipeline/events"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/runner"
	"tributary/pipeline/sessions/summaries"
	"tributary/pipeline/sessions/titles"
	"tributary/pipeline/states"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

func TestMain(m *testing.M) {
	if code, is := pipelinetest.RunProgram(nil); is {
		os.Exit(code)
	}
	pipelinetest.Configure()
	goleak.VerifyTestMain(m, pipelinetest.ServerLeaks()...)
}

// deadline is far more than any test needs, so that one that waits in vain says so.
func deadline(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeoutCause(tb.Context(), 3*time.Minute, errors.New("the test waits in vain"))
	tb.Cleanup(cancel)
	return ctx
}

// deployment is a broker with workers and a keeper of the records of sessions, which end with the test.
type deployment struct {
	tb     testing.TB
	server *pipelinetest.Server
	dial   func(...nats.Option) jetstream.JetStream // another connection
	top    streams.Topology
	js     jetstream.JetStream
	stop   func() // ends the workers, which start begins again
}

func newDeployment(tb testing.TB, top streams.Topology) *deployment {
	tb.Helper()
	server := pipelinetest.NewServer(tb, func(c *embedded.Config) { c.MaxPayload = 1 << 20 })
	return &deployment{tb: tb, server: server, dial: server.JetStream, top: top, js: server.Provision(top)}
}

// start starts a worker, which archives states at once, and a keeper beside it.
func (d *deployment) start() {
	d.tb.Helper()
	js := d.dial()
	handover := events.NewHandover()
	top := d.top
	top.Generation = ""
	r := runner.New(js, worker.Config{
		Topology: top, Worker: "w", Member: "w", Heartbeat: 50 * time.Millisecond, ArchiveAfter: 50 * time.Millisecond, Handover: handover,
	})
	keeper, err := summaries.New(js, summaries.Config{Worker: "w", Every: 20 * time.Millisecond, Beat: 200 * time.Millisecond, Handover: handover})
	if err != nil {
		d.tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(d.tb.Context()))
	ended := make(chan struct{}, 2)
	for _, run := range []func(context.Context) error{r.Run, keeper.Run} {
		go func() {
			_ = run(ctx) // what it did is compared
			ended <- struct{}{}
		}()
	}
	stopped := false
	d.stop = func() {
		if !stopped {
			stopped = true
			cancel()
			<-ended
			<-ended
		}
	}
	d.tb.Cleanup(d.stop)
}

// record returns a record of a session with a text.
func record(session, text string) core.Record {
	return core.Record{Source: envelopes.ClaudeCode, Session: session, Origin: core.Origin{Edge: &envelopes.Edge{User: "ada"}}, Data: fmt.Appendf(nil,
		`{"type":"user","uuid":"u-%x","timestamp":"2026-03-01T09:00:00Z","message":{"role":"user","content":%q}}`, sha256.Sum256([]byte(text)), text)}
}

// doomed is the session that is erased, and marker the text of all of its records.
func doomed(name string) (id events.SessionID, marker string) {
	return events.SessionID{Source: envelopes.ClaudeCode, Session: "doomed-" + name}, "marker-" + name
}

// publish publishes records of a session that is to be erased: some prompts, one that cannot be read, and one of more
// than half of the largest message, which travels by claim check.
func (d *deployment) publish(id events.SessionID, marker string) {
	d.tb.Helper()
	list := []core.Record{record(id.Session, marker+" a"), record(id.Session, marker+" b"), {Source: id.Source, Session: id.Session, Data: []byte("{ " + marker)}}
	large := record(id.Session, marker+" large")
	large.Data = bytes.Replace(large.Data, []byte(" large"), bytes.Repeat([]byte(" large"), int(d.js.Conn().MaxPayload()/2/6+1)), 1)
	pipelinetest.Publish(d.tb, d.js, append(list, large, record(id.Session, marker+" c"))...)
}

// title sets the title of a session.
func (d *deployment) title(id events.SessionID, title string) {
	d.tb.Helper()
	s, err := titles.New(d.js, titles.Config{})
	if err != nil {
		d.tb.Fatal(err)
	}
	if _, err := s.SetTitle(deadline(d.tb), titles.Key{Source: id.Source, SessionID: id.Session}, title); err != nil {
		d.tb.Fatal(err)
	}
}

// caughtUp waits until generations have done every record.
func (d *deployment) caughtUp(generations ...string) {
	d.tb.Helper()
	for _, name := range generations {
		if err := replay.CatchUp(deadline(d.tb), d.js, d.of(name)); err != nil {
			d.tb.Fatalf("%s: %v", name, err)
		}
	}
}

func (d *deployment) of(generation string) streams.Topology {
	top := d.top
	top.Generation = generation
	return top
}

// exact waits until generations hold the fold of the raw stream.
func (d *deployment) exact(generations ...string) {
	d.tb.Helper()
	for _, name := range generations {
		pipelinetest.Expectation{Topology: d.of(name)}.RequireExact(d.tb, d.js)
	}
}

// await waits until a condition is true.
func (d *deployment) await(what string, condition func() bool) {
	d.tb.Helper()
	for ctx := deadline(d.tb); !condition(); {
		if broker.Pause(ctx, 10*time.Millisecond) != nil {
			d.tb.Fatalf("waits in vain: %s", what)
		}
	}
}

// summarized waits until the records of the live generation have a session.
func (d *deployment) summarized(id events.SessionID) {
	d.tb.Helper()
	d.await("the record of "+id.Session, func() bool {
		n, err := summaries.CountMessages(d.tb.Context(), d.js, "v1", []events.SessionID{id})
		return err == nil && n == 2
	})
}

// archived waits until the states of a session are in archives of a generation alone.
func (d *deployment) archived(generation string, id events.SessionID) {
	d.tb.Helper()
	p := envelopes.Partition(id.Source, id.Session, d.top.Partitions)
	cell := envelopes.CellName(generation, d.top.Layout().Cell(p))
	archive, name := envelopes.ArchiveOf(envelopes.StateSubject(cell, p, id.Source, id.Session))
	d.await("the archived state of "+id.Session, func() bool {
		m, err := broker.LeaderGet(d.tb.Context(), d.js, streams.EventsStream(cell), broker.GetRequest{LastBySubject: archive})
		if err != nil {
			return false
		}
		content, err := states.DecodeArchive(m.Data)
		_, is := content[name]
		return err == nil && is
	})
}

// erase erases sessions. Where the broker does not answer in time, it does so again, as an operator would.
func (d *deployment) erase(ids ...events.SessionID) []erasure.Result {
	d.tb.Helper()
	results, err := patiently(deadline(d.tb), d.js, erasure.Request{Sessions: ids, By: "ada@example"})
	if err != nil {
		d.tb.Fatal(err)
	}
	return results
}

func patiently(ctx context.Context, js jetstream.JetStream, r erasure.Request) ([]erasure.Result, error) {
	for {
		results, err := erasure.Run(ctx, js, r)
		if !broker.Unavailable(err) || ctx.Err() != nil {
			return results, err
		}
	}
}

// lasts returns the sequence of the last message of every stream.
func (d *deployment) lasts() map[string]uint64 {
	d.tb.Helper()
	all := make(map[string]uint64)
	lister := d.js.ListStreams(d.tb.Context())
	for info := range lister.Info() {
		all[info.Config.Name] = info.State.LastSeq
	}
	if err := lister.Err(); err != nil {
		d.tb.Fatal(err)
	}
	return all
}

// eachMessage passes on every message of every stream behind the given sequences, with archives unpacked.
func (d *deployment) eachMessage(behind map[string]uint64, pass func(stream string, sequence uint64, text []byte)) {
	d.tb.Helper()
	for _, name := range pipelinetest.StreamNames(d.tb, d.js) {
		for from := behind[name] + 1; ; {
			m, err := broker.LeaderGet(d.tb.Context(), d.js, name, broker.GetRequest{Sequence: from, NextBySubject: ">"})
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				break
			}
			if err != nil {
				d.tb.Fatal(err)
			}
			from = m.Sequence + 1
			text := bytes.Join([][]byte{[]byte(m.Subject), m.Header, m.Data}, []byte("\n"))
			if strings.HasPrefix(m.Subject, "archives.") && !strings.HasSuffix(m.Subject, ".erased.events") {
				content, err := states.DecodeArchive(m.Data)
				if err != nil {
					d.tb.Fatal(err)
				}
				for session, s := range content {
					text = append(append(text, session...), s.State...)
				}
			}
			pass(name, m.Sequence, text)
		}
	}
}

// requireGone fails the test if any stream has the marker of a session, or its id outside the log.
func (d *deployment) requireGone(id events.SessionID, marker string) {
	d.tb.Helper()
	d.requireGoneBehind(nil, id, marker)
}

// requireGoneBehind is requireGone for a session of which no stream had anything up to the given sequences.
func (d *deployment) requireGoneBehind(sequences map[string]uint64, id events.SessionID, marker string) {
	d.tb.Helper()
	found := 0
	d.eachMessage(sequences, func(stream string, sequence uint64, text []byte) {
		if bytes.Contains(text, []byte(marker)) || stream != streams.ErasuresStream && bytes.Contains(text, []byte(id.Session)) {
			d.tb.Errorf("message %d of stream %s has something of session %s: %.200q", sequence, stream, id.Session, text)
			found++
		}
	})
	if found > 0 {
		d.tb.FailNow()
	}
}

// others are the events of all other sessions in a generation, by their places.
func (d *deployment) others(generation string, id events.SessionID) map[string]string {
	d.tb.Helper()
	all := make(map[string]string)
	d.eachMessage(nil, func(stream string, sequence uint64, text []byte) {
		if strings.HasPrefix(stream, streams.EventsStream(generation)) && bytes.HasPrefix(text, []byte("events.")) && !bytes.Contains(text, []byte("."+id.Session+".")) {
			all[fmt.Sprint(stream, " ", sequence)] = string(text)
		}
	})
	return all
}

// requireNoneExpired fails the test if a generation believes that records expired before it has read them.
func (d *deployment) requireNoneExpired() {
	d.tb.Helper()
	list, err := replay.ReadExpired(deadline(d.tb), d.js)
	if err != nil || len(list) > 0 {
		d.tb.Fatalf("expired records: %+v, %v", list, err)
	}
}

// killed runs an erasure that is killed at one of its requests: before the server gets the request or, if answered is set,
// before the answer arrives. It returns false if the erasure had fewer requests; then it must have succeeded.
func (d *deployment) killed(at int, answered bool, id events.SessionID) bool {
	d.tb.Helper()
	return pipelinetest.RunKilled(d.tb, d.server, at, answered, func(ctx context.Context, js jetstream.JetStream) error {
		_, err := erasure.Run(ctx, js, erasure.Request{Sessions: []events.SessionID{id}, By: "killed"})
		return err
	})
}

// files returns the files of an export with their content.
func files(tb testing.TB, dir string) string {
	tb.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "*", "*", "part-*"))
	if err != nil {
		tb.Fatal(err)
	}
	var all []byte
	for _, name := range list {
		data, err := os.ReadFile(name)
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, data...)
	}
	return string(all)
}
