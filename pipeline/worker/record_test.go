package worker_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"pgregory.net/rapid"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/embedded"
	"tributary/pipeline/events"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/records"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// A record arrives as the producer stated it, whatever its bytes.
func TestRecordArrivesAsItWasPublished(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringN(1, 80, 300)
		r := core.Record{
			Source:  rapid.SampledFrom(envelopes.Sources).Draw(t, "source"),
			Session: text.Draw(t, "session"),
			Data:    rapid.SliceOf(rapid.Byte()).Draw(t, "data"),
		}
		if rapid.Bool().Draw(t, "in a file") {
			r.Origin.File = text.Draw(t, "file")
			r.Origin.Position = rapid.Int64Min(0).Draw(t, "position")
			r.Origin.Previous = rapid.Int64Range(-1, r.Origin.Position).Draw(t, "previous")
			r.Origin.Digest = rapid.StringMatching("|[0-9a-f]{64}").Draw(t, "digest")
		}
		if rapid.Bool().Draw(t, "with a time") {
			r.Origin.Time = time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "seconds"), 1).UTC()
		}
		if rapid.Bool().Draw(t, "with a sender") {
			name := rapid.StringMatching(`[^\pC,]{1,40}`)
			r.Origin.Edge = &envelopes.Edge{Host: name.Draw(t, "host"), User: strings.TrimSpace(name.Draw(t, "user"))}
			if value := strings.TrimSpace(name.Draw(t, "label")); value != "" {
				r.Origin.Edge.Labels = map[string]string{"team": value, "a.b": value}
			}
		}
		if rapid.Bool().Draw(t, "the end") {
			r.Origin.End, r.Data = true, nil
			r.Origin.Position, r.Origin.Previous, r.Origin.Digest = 0, 0, ""
		}
		m := records.Message(r)
		// As the stream stores it: behind the transform, headers through the wire.
		m.Subject = strings.Replace(m.Subject, "raw.", "raw.3.", 1)
		r.Sequence, r.Stored = 17, time.Unix(1, 2).UTC()
		got, _, err := records.Read(m, r.Sequence, r.Stored)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(r, got, cmpopts.IgnoreUnexported(r)); diff != "" {
			t.Errorf("record (-sent +received):\n%s", diff)
		}
	})
}

// Each record that cannot be read is one dead letter with its reason, and all others are as
// if it had not been there.
func TestBadRecordCostsOnlyItself(t *testing.T) {
	t.Parallel()
	claude := func(session, data string, headers ...string) *nats.Msg {
		m := records.Message(core.Record{Source: envelopes.ClaudeCode, Session: session, Data: []byte(data)})
		for i := 0; i < len(headers); i += 2 {
			m.Header[headers[i]] = []string{headers[i+1]}
		}
		return m
	}
	long := strings.Repeat("long", 50)
	good := `{"type":"user","uuid":"u","message":{"role":"user","content":"hello"}}`
	for name, c := range map[string]struct {
		message *nats.Msg
		reason  string
		subject string // of the dead letter, without the partition
	}{
		"wildcard for a session":    {rawMessage("raw.claude_code.*", good), "bad_subject", "unknown." + envelopes.Token("raw.claude_code.*")},
		"wildcard for the rest":     {rawMessage("raw.claude_code.>", good), "bad_subject", "unknown." + envelopes.Token("raw.claude_code.>")},
		"wildcard for a source":     {rawMessage("raw.*.s1", good), "bad_subject", "unknown." + envelopes.Token("raw.*.s1")},
		"unknown source":            {rawMessage("raw.mystery.s1", good), "unknown_source", "mystery.s1"},
		"source in the wrong case":  {rawMessage("raw.Claude_Code.s1", good), "unknown_source", "Claude_Code.s1"},
		"source that is no name":    {rawMessage("raw.cl~aude.s1", good), "bad_subject", "unknown."},
		"token that is no base64":   {rawMessage("raw.claude_code.~!!", good), "bad_subject", "unknown."},
		"token of a plain id":       {rawMessage("raw.claude_code.~czE", good), "bad_subject", "unknown."},
		"token with bad characters": {rawMessage("raw.claude_code.a+b", good), "bad_subject", "unknown."},
		"digest without session":    {rawMessage("raw.claude_code."+envelopes.Token(long), good), "bad_session", "unknown."},
		"digest of another session": {claude(long, good, "Tributary-Session", long+"x"), "bad_session", "unknown."},
		"session beside its token":  {claude("s1", good, "Tributary-Session", "s2"), "bad_session", "unknown."},
		"session that is not UTF-8": {claude(long, good, "Tributary-Session", "%FF"), "bad_session", "unknown."},
		"session of 2 KiB": {
			claude(strings.Repeat("s", 2<<10), good), "bad_session", "unknown.",
		},
		"position that is no number": {claude("s1", good, "Tributary-File", "f", "Tributary-Position", "ten -1"), "bad_header", "claude_code.s1"},
		"position below zero":        {claude("s1", good, "Tributary-File", "f", "Tributary-Position", "-5 -1"), "bad_header", "claude_code.s1"},
		"file without position":      {claude("s1", good, "Tributary-File", "f"), "bad_header", "claude_code.s1"},
		"file that is not UTF-8":     {claude("s1", good, "Tributary-File", "%C3", "Tributary-Position", "0 -1"), "bad_header", "claude_code.s1"},
		"time that is none":          {claude("s1", good, "Tributary-Time", "yesterday"), "bad_header", "claude_code.s1"},
		"parent that is not UTF-8":   {claude("s1", good, "Tributary-Parent", "%C3"), "bad_header", "claude_code.s1"},
		"parent of 2 KiB":            {claude("s1", good, "Tributary-Parent", strings.Repeat("p", 2<<10)), "bad_header", "claude_code.s1"},
		"end with a body":            {claude("s1", good, "Tributary-End", "1"), "bad_header", "claude_code.s1"},
		"end of another kind":        {claude("s1", "", "Tributary-End", "2"), "bad_header", "claude_code.s1"},
		"host of 60 KiB":             {claude("s1", good, "Tributary-Host", strings.Repeat("h", 60<<10)), "bad_header", "claude_code.s1"},
		"user with a line end":       {claude("s1", good, "Tributary-User", "ada%0D%0ANats-Rollup: all"), "bad_header", "claude_code.s1"},
		"host with an escape":        {claude("s1", good, "Tributary-Host", "\x1b]52;c;AAAA\x07"), "bad_header", "claude_code.s1"},
		"labels without values":      {claude("s1", good, "Tributary-Labels", "team"), "bad_header", "claude_code.s1"},
		"garbage":                    {claude("s1", "\x00\x01garbage"), "malformed", "claude_code.s1"},
		"empty":                      {claude("s1", ""), "malformed", "claude_code.s1"},
		"two documents":              {claude("s1", good+good), "malformed", "claude_code.s1"},
		"NUL between tokens":         {claude("s1", "{\"type\":\x00\"user\"}"), "malformed", "claude_code.s1"},
		"too deep": {
			claude("s1", `{"type":"user","x":`+strings.Repeat("[", 200)+strings.Repeat("]", 200)+"}"), "too_deep", "claude_code.s1",
		},
		"a word of the server": {claude("s1", "", "Status", "409", "Description", "Consumer Deleted"), "malformed", "claude_code.s1"},
		"a heartbeat":          {claude("s1", "", "Status", "100"), "malformed", "claude_code.s1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := topology(2)
			js := pipelinetest.NewServer(t).Provision(top)
			around := pipelinetest.Workload(30, 4, 40)
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
			if _, rest, _ := strings.Cut(strings.TrimPrefix(m.Subject, "deadletters.v1."), "."); !strings.HasPrefix(rest, c.subject) {
				t.Errorf("subject %s, want %s", rest, c.subject)
			}
			if _, err := envelopes.ParseDeadLetterSubject(m.Subject); err != nil {
				t.Errorf("subject %s: %v", m.Subject, err)
			}
			if string(m.Data) != string(c.message.Data) {
				t.Error("the bytes of the record are not those of the dead letter")
			}
		})
	}
}

// rawMessage is a message of a producer that knows no rules.
func rawMessage(subject, data string) *nats.Msg {
	return &nats.Msg{Subject: subject, Header: nats.Header{}, Data: []byte(data)}
}

// letter finds the dead letter of a record.
func letter(tb testing.TB, js jetstream.JetStream, sequence uint64) *jetstream.RawStreamMsg {
	tb.Helper()
	for _, m := range stored(tb, js, "deadletters.v1.>") {
		if m.Header.Get(envelopes.HeaderSequence) == strconv.FormatUint(sequence, 10) {
			return m
		}
	}
	tb.Fatalf("no dead letter of record %d", sequence)
	return nil
}

// stored are the messages of the first generation at a filter, as they lie in the stream.
func stored(tb testing.TB, js jetstream.JetStream, filter string) []*jetstream.RawStreamMsg {
	tb.Helper()
	return storedIn(tb, js, "v1", filter)
}

// storedIn is [stored] for any generation.
func storedIn(tb testing.TB, js jetstream.JetStream, generation, filter string) []*jetstream.RawStreamMsg {
	tb.Helper()
	stream, err := js.Stream(tb.Context(), streams.EventsStream(generation))
	if err != nil {
		tb.Fatal(err)
	}
	var out []*jetstream.RawStreamMsg
	for next := uint64(1); ; next = out[len(out)-1].Sequence + 1 {
		m, err := stream.GetMsg(tb.Context(), next, jetstream.WithGetMsgSubject(filter))
		if err != nil {
			return out
		}
		out = append(out, m)
	}
}

// No header of a producer acts on our streams: neither those of the broker, nor ours, nor
// those of CloudEvents.
func TestHeadersOfProducersReachNoStreamOfOurs(t *testing.T) {
	t.Parallel()
	top := topology(1)
	js := pipelinetest.NewServer(t).Provision(top)
	hostile := map[string]string{
		"Nats-Msg-Id": "one", "Nats-Expected-Stream": "RAW", "Nats-Marker-Reason": "MaxAge",
		"Tributary-Reason": "forged", "ce-id": "forged", "Ce-Source": "/forged", "Content-Type": "application/cloudevents+json",
		"X-Custom": "kept", "Tributary-Host": "forged", "Tributary-Labels": "team=forged", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=b",
	}
	for i, data := range []string{`{"type":"user","uuid":"u","message":{"role":"user","content":"hello"}}`, "garbage"} {
		m := records.Message(core.Record{Source: envelopes.ClaudeCode, Session: "s", Data: []byte(data)})
		for name, value := range hostile {
			m.Header[name] = []string{value}
		}
		m.Header["Nats-Msg-Id"] = []string{strconv.Itoa(i)}
		if _, err := js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	s := start(t, js, worker.Config{Topology: top})
	pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	s.stop(t)

	for _, m := range stored(t, js, "events.v1.>") {
		for name, values := range m.Header {
			switch {
			case name == "Nats-Batch-Id", name == "Nats-Batch-Sequence": // ours
			case name == "Nats-Stream", name == "Nats-Subject", name == "Nats-Sequence", name == "Nats-Time-Stamp": // of the answer
			case strings.HasPrefix(name, "ce-") && values[0] != "forged", name == "Content-Type" && values[0] == "application/json":
			case name == "traceparent", name == "tracestate":
				if values[0] != hostile[name] {
					t.Errorf("event has %s: %s, want that of its record", name, values[0])
				}
			default:
				t.Errorf("event has %s: %s", name, values[0])
			}
		}
	}
	l := letter(t, js, 2)
	for name, value := range hostile {
		if name == "Nats-Msg-Id" {
			value = "1"
		}
		if got := l.Header.Get(envelopes.HeaderOriginal + name); got != value {
			t.Errorf("dead letter has %s%s: %q, want %q", envelopes.HeaderOriginal, name, got, value)
		}
	}
	for name, want := range map[string]string{
		envelopes.HeaderReason: "malformed", envelopes.HeaderStream: "RAW", envelopes.HeaderSequence: "2",
		envelopes.HeaderGeneration: "v1", envelopes.HeaderNormalizer: strconv.Itoa(normalizers.Revision),
	} {
		if got := l.Header.Get(name); got != want {
			t.Errorf("dead letter has %s: %q, want %q", name, got, want)
		}
	}
	if _, err := envelopes.ParseTime(l.Header.Get(envelopes.HeaderFirstSeen)); err != nil {
		t.Errorf("first seen: %v", err)
	}
	if text := l.Header.Get(envelopes.HeaderError); text == "" || strings.Contains(text, "garbage") {
		t.Errorf("error text %q", text)
	}
}

// A dead letter that would not fit a message names its record instead of repeating it.
func TestDeadLetterThatDoesNotFitNamesItsRecord(t *testing.T) {
	pipelinetest.SkipShort(t)
	t.Parallel()
	top := topology(1)
	js := pipelinetest.NewServer(t).Provision(top)
	big := strings.Repeat("x", embedded.MaxPayload-512)
	pipelinetest.PublishMessages(t.Context(), t, js,
		records.Message(core.Record{Source: envelopes.ClaudeCode, Session: "s", Data: []byte(big)}))
	m := records.Message(core.Record{Source: envelopes.ClaudeCode, Session: "s", Data: []byte("small")})
	for i := range 600 {
		m.Header[fmt.Sprintf("X-%03d", i)] = []string{strings.Repeat("v", 90)}
	}
	pipelinetest.PublishMessages(t.Context(), t, js, m)
	pipelinetest.Publish(t, js, pipelinetest.Workload(31, 2, 10)...)
	s := start(t, js, worker.Config{Topology: top})
	pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	s.stop(t)
	if l := letter(t, js, 1); len(l.Data) != 0 {
		t.Errorf("%d bytes are repeated", len(l.Data))
	}
	l := letter(t, js, 2)
	if string(l.Data) != "small" {
		t.Error("a small body was left out")
	}
	kept := 0
	for name := range l.Header {
		if strings.HasPrefix(name, envelopes.HeaderOriginal) {
			kept++
		}
	}
	if kept < 400 || kept >= 600 {
		t.Errorf("%d of 600 headers are kept", kept)
	}
}

// A session id whose token is a digest travels in a header, to the event and back.
func TestLongSessionIDTravelsInAHeader(t *testing.T) {
	t.Parallel()
	top := topology(1)
	js := pipelinetest.NewServer(t).Provision(top)
	id := strings.Repeat("Zoë ", 200)
	pipelinetest.Publish(t, js, core.Record{
		Source: envelopes.ClaudeCode, Session: id,
		Data: []byte(`{"type":"user","uuid":"u","message":{"role":"user","content":"hello"}}`),
	})
	s := start(t, js, worker.Config{Topology: top})
	pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	s.stop(t)
	for e, err := range events.Read(t.Context(), js, "v1", events.Query{Session: id}) {
		if err != nil || e.SessionID != id {
			t.Errorf("session %q, %v", e.SessionID, err)
		}
	}
	m := stored(t, js, "events.v1.>")[0]
	if got, err := envelopes.DecodeHeaderValue(m.Header.Get(envelopes.HeaderSession)); err != nil || got != id {
		t.Errorf("header %s: %q, %v", envelopes.HeaderSession, got, err)
	}
}
