package worker_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/broker"
	"tributary/pipeline/claims"
	"tributary/pipeline/embedded"
	"tributary/pipeline/events"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/records"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

var (
	limitsLarge = flag.Bool("limits.large", false, "run the tests of large records and of abuse at their full size, about 1.5 GB in all")
	limitsLong  = flag.Bool("limits.long", false, "run TestFlood with 200,000 records of a session, TestSessions with a million sessions and TestYear with a year")
)

// scaled returns a size for a test: a small one that exceeds the same limits, or with
// -limits.large the full one.
func scaled(small, large int) int {
	if *limitsLarge {
		return large
	}
	return small
}

// wire is a client that speaks the protocol of NATS and follows none of its rules: it sends
// any bytes as subject, headers and body.
type wire struct {
	tb   testing.TB
	conn net.Conn
	in   *bufio.Reader
}

func dial(tb testing.TB, url string) *wire {
	tb.Helper()
	conn, err := (&net.Dialer{}).DialContext(tb.Context(), "tcp", strings.TrimPrefix(url, "nats://"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		tb.Fatal(err)
	}
	w := &wire{tb, conn, bufio.NewReader(conn)}
	w.line() // INFO of the server
	w.send("CONNECT {\"verbose\":false,\"headers\":true,\"no_responders\":true}\r\nSUB answer 1\r\n")
	return w
}

func (w *wire) send(s string) {
	w.tb.Helper()
	if _, err := io.WriteString(w.conn, s); err != nil {
		w.tb.Fatal(err)
	}
}

func (w *wire) line() string {
	w.tb.Helper()
	line, err := w.in.ReadString('\n')
	if err != nil {
		w.tb.Fatal(err)
	}
	return strings.TrimSuffix(line, "\r\n")
}

// publish publishes a message and returns its sequence, or why the server refuses it.
// headers are the bytes of all headers on the wire.
func (w *wire) publish(subject, headers, body string) (sequence uint64, refused string) {
	w.tb.Helper()
	if headers == "" {
		w.send(fmt.Sprintf("PUB %s answer %d\r\n%s\r\n", subject, len(body), body))
	} else {
		w.send(fmt.Sprintf("HPUB %s answer %d %d\r\n%s%s\r\n", subject, len(headers), len(headers)+len(body), headers, body))
	}
	for {
		switch line := w.line(); {
		case line == "PING":
			w.send("PONG\r\n")
		case strings.HasPrefix(line, "-ERR"):
			return 0, line
		case strings.HasPrefix(line, "HMSG"):
			w.line() // body of the status
			return 0, "no responders"
		case strings.HasPrefix(line, "MSG"):
			var ack struct {
				Sequence uint64              `json:"seq"`
				Error    *jetstream.APIError `json:"error"`
			}
			if err := json.Unmarshal([]byte(w.line()), &ack); err != nil {
				w.tb.Fatal(err)
			}
			if ack.Error != nil {
				return 0, strconv.Itoa(int(ack.Error.ErrorCode))
			}
			return ack.Sequence, ""
		}
	}
}

// headers returns headers as they are on the wire.
func headers(lines ...string) string {
	return "NATS/1.0\r\n" + strings.Join(append(lines, "", ""), "\r\n")
}

// answer returns an answer of Claude Code with n blocks.
func answer(block func(i int) string, n int) string {
	return `{"type":"assistant","uuid":"u","sessionId":"victim","timestamp":"2026-03-01T09:00:00Z","message":{"id":"m","role":"assistant","model":"x","content":[` + list(block, n) + `]}}`
}

// list returns a list of n elements of JSON.
func list(element func(i int) string, n int) string {
	elements := make([]string, n)
	for i := range elements {
		elements[i] = element(i)
	}
	return strings.Join(elements, ",")
}

func always(s string) func(int) string { return func(int) string { return s } }

// Whatever a client of the broker publishes at the subjects of raw records has an outcome with
// a name, and the records before and after it, of its session and of others, are as if it had
// not been there.
func TestAbuseCostsOnlyItsRecord(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("moves a hundred megabytes")
	}
	const (
		good = `{"type":"user","message":{"role":"user","content":"hello"}}`
		at   = "raw.claude_code.victim"
	)
	most := scaled(4<<20, embedded.MaxPayload) // bytes of a message
	long := strings.Repeat("Zoë ", 100)
	deep := func(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }
	cases := []struct {
		name                   string
		subject, headers, body string
		// want is "event", "duplicate", the reason of a dead letter, or why the server
		// refuses the message.
		want string
	}{
		// What would act on the stream.
		{"a purge of the stream", at, headers("Nats-Rollup: all"), good, "10111"},
		{"a purge of the subject", at, headers("Nats-Rollup: sub"), good, "10111"},
		{"a time to live", at, headers("Nats-TTL: 1s"), good, "10166"},
		{"a counter", at, headers("Nats-Incr: +1"), "", "10168"},
		{"a schedule", at, headers("Nats-Schedule: @every 1s", "Nats-Schedule-Target: raw.claude_code.other"), good, "10188"},
		{"for another stream", at, headers("Nats-Expected-Stream: EVENTS_v1"), good, "10060"},
		{"after a sequence that is not there", at, headers("Nats-Expected-Last-Sequence: 18446744073709551615"), good, "10071"},
		{"after an id that is not there", at, headers("Nats-Expected-Last-Msg-Id: none"), good, "10070"},
		{"headers of 64 KiB", at, headers("X: " + strings.Repeat("x", 64<<10)), good, "10097"},

		// Subjects.
		{"no session", "raw.claude_code", "", good, "no responders"},
		{"a token too many", "raw.claude_code.victim.x", "", good, "no responders"},
		{"the subject that is stored", "raw.0.claude_code.victim", "", good, "no responders"},
		{"a subject that is not UTF-8", "raw.claude_code.\xff\xfe", "", good, "bad_subject"},
		{"a subject with NUL and escapes", "raw.claude_code.a\x00b\x1b[2J", "", good, "bad_subject"},
		{"a subject of 3 KB", "raw.claude_code." + strings.Repeat("x", 3000), "", good, "bad_subject"},
		{"a long subject that is not UTF-8", "raw.claude_code." + strings.Repeat("\xff", 3000), "", good, "bad_subject"},
		{"a source of 3 KB", "raw." + strings.Repeat("x", 3000) + ".victim", "", good, "bad_subject"},
		{"a number for a source", "raw.0.victim", "", good, "unknown_source"},
		{"an id of spaces and line ends", "raw.claude_code." + envelopes.Token(" \r\n\x00\u2028*.>"), "", good, "event"},
		{"an id that is stated twice", "raw.claude_code." + envelopes.Token(long), headers("Tributary-Session: "+envelopes.EncodeHeaderValue(long), "Tributary-Session: x"), good, "event"},
		{"an id of another case", "raw.claude_code." + envelopes.Token(long), headers("tributary-session: " + envelopes.EncodeHeaderValue(long)), good, "bad_session"},

		// Headers.
		{"headers that are none", at, "NATS/1.0\r\nno colon\r\n\r\n", good, "event"},
		{"headers without an end", at, "NATS/1.0\r\nX: y", good, "event"},
		{"headers of garbage", at, "\x00\xff\r\n\r\n", good, "event"},
		{"1,000 headers", at, headers(strings.Split(strings.TrimSuffix(strings.Repeat("X-Custom: value,", 1000), ","), ",")...), good, "event"},
		{"control characters in a header", at, headers("X: a\x00\x1b]52;c;x\x07\rb", "ce-id: \x1b[2J"), good, "event"},
		{"a line that goes on", at, headers("X: a", " Nats-Rollup: all"), good, "event"},
		{"another content type", at, headers("Content-Type: application/cloudevents+json", "ce-type: forged", "ce-id: forged"), good, "event"},
		{"a trace of garbage", at, headers("traceparent: \x1b[2J", "tracestate: \xff"), good, "event"},
		{"a trace of 60 KB", at, headers("traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate: a="+strings.Repeat("x", 60<<10), "baggage: a=b"), good, "event"},
		{"a time of 10,000 years", at, headers("Tributary-Time: 9999-12-31T23:59:59.999999999Z"), good, "event"},
		{"a time beyond", at, headers("Tributary-Time: 10000-01-01T00:00:00Z"), good, "bad_header"},
		{"a position beyond", at, headers("Tributary-File: f", "Tributary-Position: 9223372036854775808 -1"), good, "bad_header"},
		{"a position before that before it", at, headers("Tributary-File: f1", "Tributary-Position: 5 9223372036854775807"), good, "event"},
		{"the last position", at, headers("Tributary-File: f2", "Tributary-Position: 9223372036854775807 -1"), good, "event"},
		{"behind the last position", at, headers("Tributary-File: f2", "Tributary-Position: 9223372036854775806 -1"), good, "event"},
		{"a file of 60 KB", at, headers("Tributary-File: "+strings.Repeat("f", 60<<10), "Tributary-Position: 0 -1"), good, "event"},
		{"a digest that is none", at, headers("Tributary-File: f3", "Tributary-Position: 0 -1", "Tributary-Digest: ../../etc"), good, "event"},
		{"requeued from nowhere", at, headers("Tributary-Requeued: 18446744073709551615"), good, "duplicate"},
		{"requeued from 0", at, headers("Tributary-Requeued: 0"), good, "bad_header"},
		{"requeued from below", at, headers("Tributary-Requeued: -1"), good, "bad_header"},
		{"requeued from beyond", at, headers("Tributary-Requeued: 18446744073709551616"), good, "bad_header"},
		{"a claim of a path", at, headers("Tributary-Claim: CLAIMS/../x;1"), "", "bad_claim"},
		{"a claim of a size beyond", at, headers("Tributary-Claim: CLAIMS/" + strings.Repeat("0", 64) + ";9223372036854775807"), "", "too_large"},
		{"the words of a dead letter", at, headers("Tributary-Reason: forged", "Tributary-Sequence: 1", "Tributary-Original-X: y"), "garbage", "malformed"},

		// Bodies.
		{"a message of the largest size", at, "", strings.Repeat("x", most), "malformed"},
		{"a text of the largest size", at, "", `{"type":"user","message":{"role":"user","content":"` + strings.Repeat("x", most-100) + `"}}`, "event"},
		{"129 levels", at, "", deep(129), "too_deep"},
		{"as many levels as fit", at, "", deep(most / 2), "too_deep"},
		{"as many levels as fit, that do not end", at, "", strings.Repeat("[", most), "too_deep"},
		{"levels in a text", at, "", `{"type":"user","message":{"role":"user","content":"` + strings.Repeat("[", 1<<20) + `"}}`, "event"},
		{"100,001 thoughts", at, "", answer(always(`{"type":"thinking","thinking":"x"}`), core.MaxEvents+1), "too_many_events"},
		{"200,000 empty blocks", at, "", answer(always("{}"), 200_000), "event"},
		{"a number of a million digits", at, "", `{"type":"user","x":` + strings.Repeat("9", 1_000_000) + `,"message":{"role":"user","content":"x"}}`, "event"},
		{"200,000 numbers beyond all", at, "", `{"type":"of-tomorrow","x":[` + list(always("1e400"), 200_000) + `]}`, "event"},
		{"200,000 times a name", at, "", `{` + strings.Repeat(`"type":"mode",`, 200_000) + `"type":"user","message":{"role":"user","content":"x"}}`, "event"},
		{"200,000 names", at, "", `{"type":"of-tomorrow","x":{` + list(func(i int) string { return fmt.Sprintf(`"n%d":"%s"`, i, "\xff") }, 200_000) + `}}`, "event"},
	}
	top := topology(1)
	server := pipelinetest.NewServer(t, func(c *embedded.Config) { c.MaxPayload = int32(most) })
	js := server.JetStream(nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})) // of headers that are damaged
	if err := streams.Provision(t.Context(), js, top); err != nil {
		t.Fatal(err)
	}
	w := dial(t, server.URL())
	around := pipelinetest.Workload(61, 5, 3*len(cases))
	got := make([]string, len(cases))
	sequences := make([]uint64, len(cases))
	for i, c := range cases {
		pipelinetest.Publish(t, js, around[3*i], around[3*i+1], around[3*i+2], user("victim", "in between"))
		sequences[i], got[i] = w.publish(c.subject, c.headers, c.body)
	}
	pipelinetest.Publish(t, js, around[3*len(cases):]...)
	pipelinetest.Publish(t, js, user("victim", "after"))
	s := start(t, js, worker.Config{Topology: top})
	r := pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	if err := s.Ready(); err != nil {
		t.Errorf("the worker is not ready: %v", err)
	}
	s.stop(t)
	if c, _, err := streams.ReadCheckpoint(t.Context(), js, "v1", 0); err != nil || c.Epoch != 1 {
		t.Errorf("the partition was acquired %d times, %v", c.Epoch, err)
	}
	t.Logf("%+v", r)
	outcome := outcomes(t, js)
	for i, c := range cases {
		if sequences[i] != 0 {
			got[i] = outcome(sequences[i])
		}
		if got[i] != c.want {
			t.Errorf("%s: %s, want %s", c.name, clipped(got[i]), c.want)
		}
	}
	checkHeaders(t, js)
}

func clipped(s string) string { return s[:min(len(s), 200)] }

// outcomes returns the outcome of a record of the raw stream.
func outcomes(tb testing.TB, js jetstream.JetStream) func(sequence uint64) string {
	tb.Helper()
	found := make(map[uint64]string)
	for _, l := range letters(tb, js, events.DeadLettersQuery{}) { // each can be read
		found[l.Sequence] = l.Reason
	}
	for e, err := range events.Read(tb.Context(), js, "v1", events.Query{}) {
		if err != nil {
			tb.Fatal(err)
		}
		found[e.Provenance.RawSequence] = "event"
	}
	return func(sequence uint64) string {
		if outcome, ok := found[sequence]; ok {
			return outcome
		}
		return "duplicate" // of which nothing is stored
	}
}

// checkHeaders checks that the headers of events are ours and printable, whatever those of
// the records are.
func checkHeaders(tb testing.TB, js jetstream.JetStream) {
	tb.Helper()
	for _, m := range stored(tb, js, "events.v1.>") {
		for name, values := range m.Header {
			ours := strings.HasPrefix(name, "ce-") || strings.HasPrefix(name, "Nats-") ||
				name == "Content-Type" && values[0] == "application/json" || name == envelopes.HeaderSession || name == envelopes.HeaderTraceparent || name == envelopes.HeaderTracestate
			if !ours || len(values) != 1 || values[0] == "forged" {
				tb.Errorf("event with %s: %.100q", name, values)
			}
			if strings.ContainsFunc(values[0], func(r rune) bool { return r < ' ' || r > '~' }) {
				tb.Errorf("event with %s: %.100q", name, values)
			}
		}
	}
}

// Bytes that are not of the protocol end the connection of the client, and store nothing.
func TestAbuseOfTheProtocolStoresNothing(t *testing.T) {
	t.Parallel()
	top := topology(1)
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	for name, sent := range map[string]string{
		"a subject with a space":    "PUB raw.claude_code.a b c answer 2\r\n{}\r\n",
		"a subject of 5 KB":         "PUB raw.claude_code." + strings.Repeat("x", 5000) + " answer 2\r\n{}\r\n",
		"a body larger than can be": fmt.Sprintf("PUB raw.claude_code.s answer %d\r\n", embedded.MaxPayload+1),
		"more headers than message": "HPUB raw.claude_code.s answer 20 10\r\n0123456789\r\n",
	} {
		w := dial(t, server.URL())
		w.send(sent)
		if _, err := io.Copy(io.Discard, w.in); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: the connection goes on", name)
		}
	}
	raw, err := js.Stream(t.Context(), streams.RawStream)
	if err != nil {
		t.Fatal(err)
	}
	if n := raw.CachedInfo().State.Msgs; n != 0 {
		t.Errorf("%d messages are stored", n)
	}
}

// Records that are too large for a message: their events are cut or refused, and their copies
// are in memory one after the other, not all at once.
func TestAbuseByLargeRecordsIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("moves 200 MB")
	}
	t.Parallel()
	top := topology(2)
	js := pipelinetest.NewServer(t).Provision(top)
	record := func(body string) core.Record {
		return core.Record{Source: envelopes.ClaudeCode, Session: "victim", Data: []byte(body)}
	}
	// The small sizes, too, are more than half of max_payload.
	text := `{"type":"user","message":{"role":"user","content":"` + strings.Repeat("word ", scaled(1<<20, 12<<20)) + `"}}`
	blob := `"` + strings.Repeat("QUFB", 2000) + `",`
	nested := `{"type":"of-tomorrow","x":` + strings.Repeat("[", 120) + blob + list(always(`"aaaaaaaaaa"`), scaled(400_000, 3<<20)) + strings.Repeat("]", 120) + "}"
	pipelinetest.Publish(t, js, user("victim", "before"), record(text), record(nested), record(strings.Repeat("[", scaled(5_000_000, 10_000_000))))
	if objects, _ := bucket(t, js); objects != 3 {
		t.Errorf("%d records travel by claim check, want 3", objects)
	}
	pipelinetest.PublishMessages(t.Context(), t, js, &nats.Msg{
		Subject: "raw.claude_code.victim",
		Header:  nats.Header{envelopes.HeaderClaim: {claims.Claim{Digest: strings.Repeat("0", 64), Size: core.MaxRecordBytes + 1}.String()}},
	})
	pipelinetest.Publish(t, js, user("victim", "after"))
	s := start(t, js, worker.Config{Topology: top})
	pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	s.stop(t)
	outcome := outcomes(t, js)
	lists := "event"
	if *limitsLarge {
		lists = "too_many_values" // three million strings
	}
	for sequence, want := range map[uint64]string{1: "event", 2: "event", 3: lists, 4: "too_deep", 5: "too_large", 6: "event"} {
		if got := outcome(sequence); got != want {
			t.Errorf("record %d: %s, want %s", sequence, got, want)
		}
	}
	for e, err := range events.Read(t.Context(), js, "v1", events.Query{Session: "victim"}) {
		if err != nil || e.TextTruncated != (e.Provenance.RawSequence == 2) {
			t.Errorf("event of record %d: cut is %v, %v", e.Provenance.RawSequence, e.TextTruncated, err)
		}
	}
}

// A short record of many events in a session with a long id, which several headers of each
// event repeat. They go out in many batches, each bounded, and exactly.
func TestAbuseByManyEventsIsBounded(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("moves a hundred megabytes")
	}
	top := topology(1)
	js := pipelinetest.NewServer(t).Provision(top)
	id := strings.Repeat("\x01", 1<<10)
	events := scaled(1000, 3000)
	record := func(body string) core.Record {
		return core.Record{Source: envelopes.ClaudeCode, Session: id, Data: []byte(body)}
	}
	const small = `{"type":"user","message":{"role":"user","content":"hello"}}`
	pipelinetest.Publish(t, js, record(small), record(answer(always(`{"type":"thinking","thinking":"x"}`), events)), record(small), user("other", "after"))
	s := start(t, js, worker.Config{Topology: top})
	r := pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	s.stop(t)
	if r.Events != events+3 {
		t.Errorf("%d events", r.Events)
	}
	if n := checkBatches(t, js); n < 4 {
		t.Errorf("%d batches: the record is too small", n)
	}
}

// checkBatches checks that no batch is much larger than one may be, and returns their number.
func checkBatches(tb testing.TB, js jetstream.JetStream) int {
	tb.Helper()
	consumer, err := js.OrderedConsumer(tb.Context(), streams.EventsStream("v1"), jetstream.OrderedConsumerConfig{})
	if err != nil {
		tb.Fatal(err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		tb.Fatal(err)
	}
	defer messages.Stop()
	sizes := make(map[string]int)
	for left := consumer.CachedInfo().NumPending; left > 0; left-- {
		m, err := messages.Next(jetstream.NextContext(deadline(tb)))
		if err != nil {
			tb.Fatal(err)
		}
		size := len(m.Data())
		for name, values := range m.Headers() {
			for _, v := range values {
				size += len(name) + len(v) + 4
			}
		}
		sizes[m.Headers().Get("Nats-Batch-Id")] += size
	}
	const most = 2*broker.BatchBytes + embedded.MaxPayload // its last record may exceed the limit
	for id, size := range sizes {
		if size > most {
			tb.Errorf("batch %s has %d bytes, more than %d", id, size, most)
		}
	}
	return len(sizes)
}

// flood returns records of one session, each of which adds to what the session remembers.
func flood(n int) []core.Record {
	out := make([]core.Record, n)
	for i := range out {
		var data string
		switch i % 8 {
		case 0: // a call of an unknown tool that is never answered
			data = answer(func(int) string {
				return fmt.Sprintf(`{"type":"tool_use","id":"call-%d","name":"tool-%d","input":{"file_path":"/home/ada/%d/%s"}}`, i, i, i, strings.Repeat("p", 200))
			}, 1)
		case 1: // usage that is never repeated
			data = fmt.Sprintf(`{"type":"assistant","uuid":"a%d","message":{"id":"msg-%d","role":"assistant","model":"model-%d","content":[{"type":"text","text":"x"}],"usage":{"input_tokens":%d,"output_tokens":7}}}`, i, i, i, i)
		case 2: // another agent each time
			data = fmt.Sprintf(`{"type":"user","uuid":"u%d","agentId":"agent-%d","isSidechain":true,"message":{"role":"user","content":"x"}}`, i, i)
		case 3: // a queued prompt that is never used
			data = fmt.Sprintf(`{"type":"queue-operation","operation":"enqueue","content":"queued %d"}`, i)
		case 4: // values that are stated anew
			data = fmt.Sprintf(`{"type":"user","uuid":"v%d","gitBranch":"branch-%d","version":"%d","permissionMode":"mode-%d","cwd":"/%d","message":{"role":"user","content":"x"}}`, i, i, i, i, i)
		case 5: // an unknown type
			data = fmt.Sprintf(`{"type":"of-tomorrow-%d","uuid":"w%d"}`, i, i)
		case 6: // the same id, and another content each time
			data = fmt.Sprintf(`{"type":"user","uuid":"same","message":{"role":"user","content":"revision %d"}}`, i)
		case 7: // not JSON
			data = "garbage"
		}
		out[i] = core.Record{
			Source: envelopes.ClaudeCode, Session: "flood", Data: []byte(data),
			Origin: core.Origin{File: "file-" + strconv.Itoa(i), Position: int64(i), Previous: -1},
		}
	}
	return out
}

// A flood of one session, whose state would grow with every record: the state is bounded, the
// batches are, and the other partitions go on meanwhile.
func TestFloodOfOneSessionIsBounded(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("moves a hundred megabytes")
	}
	n, most := 2000, 88<<10 // the limit is reached by many more
	if *limitsLong {
		n, most = 200_000, 128<<10
	}
	top := topology(4)
	js := pipelinetest.NewServer(t).Provision(top)
	pipelinetest.Publish(t, js, flood(n)...)
	others := pipelinetest.Workload(63, 20, 100)
	pipelinetest.Publish(t, js, others...)
	// The flood waits until all other partitions are done.
	raw, err := js.Stream(t.Context(), streams.RawStream)
	if err != nil {
		t.Fatal(err)
	}
	victim := partitionOf(t, raw, 1)
	var mu sync.Mutex
	left, done := make(map[uint64]bool), make(chan struct{})
	for i := range others {
		if at := uint64(n + 1 + i); partitionOf(t, raw, at) != victim {
			left[at] = true
		}
	}
	s := start(t, js, worker.Config{Topology: top, RecordTimeout: time.Hour, Normalize: func(s *core.Session, r core.Record) (core.Result, error) {
		if r.Sequence == 1 {
			<-done
		}
		mu.Lock()
		if left[r.Sequence] {
			if delete(left, r.Sequence); len(left) == 0 {
				close(done)
			}
		}
		mu.Unlock()
		return normalizers.Normalize(s, r)
	}})
	pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	s.stop(t)
	for _, m := range stored(t, js, envelopes.StateSubject("v1", victim, envelopes.ClaudeCode, "flood")) {
		t.Logf("%d records: a state of %d bytes", n, len(m.Data))
		if len(m.Data) > most {
			t.Errorf("a state of %d bytes", len(m.Data))
		}
	}
	checkBatches(t, js)
}

func partitionOf(tb testing.TB, raw jetstream.Stream, sequence uint64) int {
	tb.Helper()
	m, err := raw.GetMsg(tb.Context(), sequence)
	if err != nil {
		tb.Fatal(err)
	}
	a, err := envelopes.ParseRawSubject(m.Subject)
	if err != nil {
		tb.Fatal(err)
	}
	return a.Partition
}

// A worker takes as much memory for the states of sessions as it is allowed to, however many
// sessions there are.
func TestSessionsWithoutNumberTakeBoundedMemory(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("moves 40 MB")
	}
	sessions, fat, more := 2000, 2000, int64(12<<20)
	if *limitsLong {
		sessions, fat, more = 1_000_000, 1, 24<<20
	}
	top := topology(4)
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	w := pipelinetest.StartWorker(t, pipelinetest.Worker{
		URL: server.URL(), Name: "worker", Generation: top.Generation, Partitions: top.Partitions, SessionBytes: 1 << 20, Frugal: true,
	})
	batch := make([]core.Record, 0, 500)
	step := sessions / 8 // at a time, so that the backlog does not count
	var before int64
	for i := range sessions {
		some := fmt.Appendf(nil, `{"type":"user","cwd":"/%s","gitBranch":"%[1]s","version":"%[1]s","permissionMode":"%[1]s","message":{"role":"user","content":"x"}}`, strings.Repeat("x", fat))
		batch = append(batch, core.Record{Source: envelopes.ClaudeCode, Session: "session-" + strconv.Itoa(i), Data: some})
		if len(batch) == 500 || (i+1)%step == 0 {
			if err := pipelinetest.Ship(t.Context(), js, "sessions", i+1-len(batch), batch...); err != nil {
				t.Fatal(err)
			}
			batch = batch[:0]
		}
		if (i+1)%step != 0 {
			continue
		}
		if err := replay.CatchUp(t.Context(), js, top); err != nil {
			t.Fatal(err)
		}
		if i < step {
			before = pipelinetest.PeakMemory(w.PID())
		}
	}
	after := pipelinetest.PeakMemory(w.PID())
	if code := w.Stop(); code != 0 {
		t.Errorf("the worker ended with %d:\n%s", code, w.Output())
	}
	stream, err := js.Stream(t.Context(), streams.EventsStream("v1"))
	if err != nil {
		t.Fatal(err)
	}
	if n, want := stream.CachedInfo().State.NumSubjects, uint64(2*sessions+2*top.Partitions); n != want {
		t.Errorf("%d subjects, want %d: an event and a state of each session, two of each partition", n, want)
	}
	runtime.GC()
	var broker runtime.MemStats
	runtime.ReadMemStats(&broker)
	state := stream.CachedInfo().State
	t.Logf("broker: a heap of %d MiB for %d subjects, shared with other tests; %d MiB stored", broker.HeapInuse>>20, state.NumSubjects, state.Bytes>>20)
	t.Logf("worker at its peak: %d MiB after %d sessions, %d MiB after %d", before>>20, step, after>>20, sessions)
	// The work in progress may differ, but not by as much as all states take.
	if most := before + more; after > most {
		t.Errorf("the worker took %d MiB at its peak, more than %d", after>>20, most>>20)
	}
}

// FuzzReadRecord checks that any message of the raw stream is a record or has a permanent
// error, that its dead letter has a subject that can be parsed, and that its headers are
// checked.
//
//	go test ./pipeline/worker -run '^$' -fuzz FuzzReadRecord -fuzztime 60s
func FuzzReadRecord(f *testing.F) {
	f.Add("raw.0.claude_code.s1", []byte(headers("Tributary-File: f", "Tributary-Position: 0 -1")), []byte(`{"type":"user"}`))
	f.Add("raw.3.codex.~YSBi", []byte(headers("Tributary-Requeued: 7", "Tributary-Time: 2026-03-01T09:00:00Z", "traceparent: x")), []byte{})
	f.Add("raw.*.>", []byte(headers("Tributary-Claim: CLAIMS/"+strings.Repeat("a", 64)+";1")), []byte{})
	f.Add("raw.1.acp."+envelopes.Token(strings.Repeat("x", 200)), []byte(headers("Tributary-Session: "+strings.Repeat("x", 200), "Tributary-End: 1")), []byte{})
	f.Fuzz(func(t *testing.T, subject string, header, body []byte) {
		m := &nats.Msg{Subject: subject, Data: body}
		m.Header, _ = nats.DecodeHeadersMsg(header) // as a client decodes damaged headers
		var bits [8]byte
		copy(bits[:], body)
		sequence := binary.BigEndian.Uint64(bits[:]) % math.MaxInt64
		r, claim, err := records.Read(m, sequence, time.Unix(1, 0))
		if r.Sequence != sequence || !bytes.Equal(r.Data, body) {
			t.Error("not the record of the message")
		}
		if _, permanent := records.Reason(err); err != nil && !permanent {
			t.Fatalf("an error without a reason: %v", err)
		}
		letter := envelopes.DeadLetterSubject("v1", 0, r.Source, r.Session)
		if _, err := envelopes.ParseDeadLetterSubject(letter); err != nil {
			t.Errorf("dead letter at %q: %v", letter, err)
		}
		if err != nil {
			return
		}
		if claim != (claims.Claim{}) {
			if again, err := claims.Parse(claim.String()); err != nil || again != claim {
				t.Errorf("claim %v: %v", claim, err)
			}
			r.Data = nil
		}
		if r.Origin.Position < 0 || len(r.Origin.Traceparent) > 512 || len(r.Origin.Tracestate) > 512 {
			t.Errorf("origin %+v", r.Origin)
		}
		s := normalizers.NewSession(r.Source, r.Session)
		result, err := normalizers.Normalize(s, r)
		if _, permanent := records.Reason(err); err != nil && !permanent {
			t.Fatalf("an error without a reason: %v", err)
		}
		for _, e := range result.Events {
			if _, err := envelopes.ParseEventSubject(envelopes.EventSubject("v1", &e.Event)); err != nil {
				t.Errorf("event: %v", err)
			}
		}
	})
}
