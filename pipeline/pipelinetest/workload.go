package pipelinetest

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/broker"
	"tributary/pipeline/claims"
	"tributary/pipeline/records"
	"tributary/pipeline/streams"
)

// epoch is the time of the first record of workloads.
var epoch = time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)

// Workload returns records of Claude Code as a producer publishes them: randomly interleaved sessions with prompts,
// answers, tool calls and results, some unreadable records, and the end of each file. The same arguments give the
// same records.
func Workload(seed uint64, sessions, records int) []core.Record {
	return slices.AppendSeq(make([]core.Record, 0, records+sessions), WorkloadSeq(seed, sessions, records))
}

// WorkloadSeq is [Workload] for more records than fit into memory. It can be iterated once.
func WorkloadSeq(seed uint64, sessions, records int) iter.Seq[core.Record] {
	w := workload{random: rand.New(rand.NewPCG(seed, 0)), clock: epoch}
	w.transcripts = make([]*transcript, sessions)
	for i := range w.transcripts {
		id := fmt.Sprintf("%08x-0000-4000-8000-%012d", seed, i)
		switch {
		case i%11 == 3:
			id = fmt.Sprintf("session %d of seed %d. *>", i, seed) // not a token by itself
		case i%11 == 7:
			id = fmt.Sprintf("%d-%d-%s", seed, i, strings.Repeat("long", 40)) // its token is a digest
		}
		w.transcripts[i] = &transcript{id: id, file: fmt.Sprintf("file-%d-%d", seed, i), previous: -1}
	}
	return func(yield func(core.Record) bool) {
		for range records {
			if !yield(w.next(w.transcripts[w.random.IntN(sessions)])) {
				return
			}
		}
		for _, t := range w.transcripts {
			if !yield(core.Record{Source: envelopes.ClaudeCode, Session: t.id, Origin: core.Origin{File: t.file, End: true}}) {
				return
			}
		}
	}
}

type workload struct {
	random      *rand.Rand
	clock       time.Time
	transcripts []*transcript
}

// transcript is the log file of a session.
type transcript struct {
	id, file           string
	lines              int
	position, previous int64
	call               string // tool call without a result
}

// next returns the next record of t.
func (w *workload) next(t *transcript) core.Record {
	w.clock = w.clock.Add(time.Duration(w.random.IntN(5000)) * time.Millisecond)
	t.lines++
	var data string
	switch kind := w.random.IntN(100); {
	case kind < 2:
		data = "{ this is not JSON"
	case t.call != "" && kind < 80:
		data = w.line(t, "user", fmt.Sprintf(`{"role":"user","content":[{"type":"tool_result","tool_use_id":%q,"content":%q}]}`,
			t.call, w.words(40)))
		t.call = ""
	case kind < 30:
		data = w.line(t, "user", fmt.Sprintf(`{"role":"user","content":%q}`, w.words(20)))
	default:
		data = w.answer(t)
	}
	r := core.Record{
		Source: envelopes.ClaudeCode, Session: t.id, Data: []byte(data),
		Origin: core.Origin{
			File: t.file, Position: t.position, Previous: t.previous, Time: w.clock,
			Traceparent: fmt.Sprintf("00-%032x-%016x-01", w.random.Uint64()|1, w.random.Uint64()|1),
		},
	}
	if t.lines%4 != 0 { // two machines send the log, also with an older program
		r.Origin.Edge = &envelopes.Edge{Host: fmt.Sprintf("build-%d", t.lines%4), User: "Zoë", Labels: map[string]string{"team": "garden", "env": "ci"}}
	}
	t.previous = t.position
	t.position += int64(len(data)) + 1
	return r
}

// answer returns a message of the model: text, sometimes with thinking and tool calls.
func (w *workload) answer(t *transcript) string {
	blocks := []string{fmt.Sprintf(`{"type":"text","text":%q}`, w.words(60))}
	if w.random.IntN(3) == 0 {
		blocks = append([]string{fmt.Sprintf(`{"type":"thinking","thinking":%q,"signature":"c2ln"}`, w.words(30))}, blocks...)
	}
	for range w.random.IntN(4) {
		t.call = fmt.Sprintf("toolu_%d_%d_%d", t.lines, len(blocks), w.random.Uint32())
		blocks = append(blocks, fmt.Sprintf(`{"type":"tool_use","id":%q,"name":"Bash","input":{"command":%q}}`, t.call, w.words(5)))
	}
	return w.line(t, "assistant", fmt.Sprintf(
		`{"id":"msg_%s_%d","type":"message","role":"assistant","model":"claude-test-1","content":[%s],"usage":{"input_tokens":%d,"output_tokens":%d,"cache_read_input_tokens":%d,"cache_creation_input_tokens":0}}`,
		t.file, t.lines, strings.Join(blocks, ","), w.random.IntN(1000), w.random.IntN(500), w.random.IntN(20000),
	))
}

func (w *workload) line(t *transcript, kind, message string) string {
	return fmt.Sprintf(`{"type":%q,"uuid":"%s-%d","sessionId":%q,"timestamp":%q,"cwd":"/home/dev/project","version":"1.0.0","message":%s}`,
		kind, t.file, t.lines, t.id, w.clock.Format("2006-01-02T15:04:05.000Z"), message)
}

// words returns a text of up to n words.
func (w *workload) words(n int) string {
	list := strings.Fields("the stream of events runs from a source to a consumer and nothing on its way is lost or told twice, said Zoë")
	out := make([]string, 1+w.random.IntN(n))
	for i := range out {
		out[i] = list[w.random.IntN(len(list))]
	}
	return strings.Join(out, " ")
}

// Publish stores records in the raw stream, in order. Records that are too large for a message become objects.
func Publish(tb testing.TB, js jetstream.JetStream, sent ...core.Record) {
	tb.Helper()
	awaitAnswer(tb.Context(), tb, js.Conn().FlushWithContext)
	claimStore := claims.NewStore(js)
	layout, err := readLayout(tb.Context(), js)
	if err != nil {
		tb.Fatalf("publish raw records: %v", err)
	}
	cells := make([][]*nats.Msg, layout.Cells)
	for _, r := range sent {
		m := records.Message(r)
		if claims.Claimed(len(r.Data), js.Conn().MaxPayload()) {
			if _, err := claimStore.Put(tb.Context(), r.Data); err != nil {
				tb.Fatalf("publish raw records: %v", err)
			}
			m = records.ClaimMessage(r)
		}
		c := layout.Place(m, r.Source, r.Session)
		cells[c] = append(cells[c], m)
	}
	for _, messages := range cells {
		PublishMessages(tb.Context(), tb, js, messages...)
	}
}

// readLayout reads how sessions are spread over cells.
func readLayout(ctx context.Context, js jetstream.JetStream) (streams.Layout, error) {
	state, err := streams.ReadRawState(ctx, js, 0)
	return state.Layout, err
}

// PublishMessages is [Publish] for messages, which need not hold records.
func PublishMessages(ctx context.Context, tb testing.TB, js jetstream.JetStream, messages ...*nats.Msg) {
	tb.Helper()
	awaitAnswer(ctx, tb, js.Conn().FlushWithContext)
	if len(messages) > 0 && js.Conn().ConnectedClusterName() != "" {
		awaitStream(ctx, tb, js.Conn(), messages[0].Subject)
	}
	for len(messages) > 0 {
		n := min(len(messages), 500)
		for _, m := range messages[:n] {
			if m.Header == nil {
				m.Header = nats.Header{}
			}
		}
		if _, err := broker.PublishBatch(ctx, js.Conn(), messages[:n]); err != nil {
			tb.Fatalf("publish raw records: %v", err)
		}
		messages = messages[n:]
	}
}

// awaitAnswer waits until the server answers to ask, because it may just have been restarted.
func awaitAnswer(ctx context.Context, tb testing.TB, ask func(context.Context) error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	retry := time.NewTicker(10 * time.Millisecond)
	defer retry.Stop()
	for ask(ctx) != nil {
		select {
		case <-retry.C:
		case <-ctx.Done():
			tb.Fatal("the server does not answer")
		}
	}
}

// awaitStream waits until a node of a cluster knows where messages of a subject are stored, which it learns only after the
// stream has its leader. It sends a message that is refused, because it expects another stream.
func awaitStream(ctx context.Context, tb testing.TB, nc *nats.Conn, subject string) {
	tb.Helper()
	awaitAnswer(ctx, tb, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, broker.RequestTimeout)
		defer cancel()
		_, err := nc.RequestMsgWithContext(ctx, &nats.Msg{Subject: subject, Header: nats.Header{jetstream.ExpectedStreamHeader: {"none"}}})
		return err
	})
}

// Ship stores records in the raw stream like a producer that survives its broker: in atomic batches with message ids,
// again and again until they are acknowledged, and one by one if the broker knows some of them. The message ids are
// ids followed by numbers from first on. The error is the cause of the end of ctx.
func Ship(ctx context.Context, js jetstream.JetStream, ids string, first int, sent ...core.Record) error {
	retry := time.NewTicker(50 * time.Millisecond)
	defer retry.Stop()
	again := func() error {
		select {
		case <-retry.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	layout, err := readLayout(ctx, js)
	for ; err != nil; layout, err = readLayout(ctx, js) {
		if err := again(); err != nil {
			return err
		}
	}
	for cell := range layout.Cells {
		messages := func() []*nats.Msg {
			var out []*nats.Msg
			for i, r := range sent {
				m := records.Message(r)
				m.Header[jetstream.MsgIDHeader] = []string{fmt.Sprintf("%s-%d", ids, first+i)}
				if layout.Place(m, r.Source, r.Session) == cell {
					out = append(out, m)
				}
			}
			return out
		}
		if err := shipAll(ctx, js, messages, again); err != nil {
			return err
		}
	}
	return nil
}

// shipAll stores messages of one cell, which it makes for each attempt. again waits before the next attempt.
func shipAll(ctx context.Context, js jetstream.JetStream, messages func() []*nats.Msg, again func() error) error {
	if len(messages()) == 0 {
		return nil
	}
	for singly := false; ; {
		var err error
		if !singly {
			_, err = broker.PublishBatch(ctx, js.Conn(), messages())
			if broker.IsDuplicate(err) {
				singly = true
				continue
			}
		} else {
			err = publishSingly(ctx, js, messages())
		}
		if err == nil {
			return nil
		}
		if err := again(); err != nil {
			return err
		}
	}
}

// publishSingly publishes messages one by one, up to the first failure.
func publishSingly(ctx context.Context, js jetstream.JetStream, messages []*nats.Msg) error {
	for _, m := range messages {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		_, err := js.PublishMsg(ctx, m)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}
