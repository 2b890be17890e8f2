package worker

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/broker"
	"tributary/pipeline/events"
	"tributary/pipeline/records"
	"tributary/pipeline/redact"
	"tributary/pipeline/sessions"
	"tributary/pipeline/streams"
)

// encoder encodes the events and dead letters of the records of a partition.
type encoder struct {
	stage      *Stage
	cell       *cell
	partition  int
	maxPayload int64 // of the broker; reading it from the connection waits for a batch that is being sent
}

// events returns the messages of the events of one record. Once they exceed the bytes of a batch, further messages
// keep the event and are encoded when sent: the events of a record share repeated values but their messages do not,
// so those of a short record could take gigabytes.
func (c *encoder) events(events []core.Emitted, b *blocks) ([]message, error) {
	messages := make([]message, len(events))
	bytes := 0
	var measured blocks // memory of events encoded only to measure them
	for i := range events {
		var err error
		if messages[i], err = c.event(&events[i], b); err != nil {
			return nil, err
		}
		if bytes += messages[i].size; bytes > broker.BatchBytes {
			messages[i].Msg, messages[i].event = nil, &events[i]
			measured.free()
			b = &measured
		}
	}
	return messages, nil
}

// event encodes an event in blocks.
func (c *encoder) event(e *core.Emitted, b *blocks) (message, error) {
	cfg := c.stage.config
	header, data, err := envelopes.AppendEvent(b.room(lengthOf(&e.Event)), b.header(), &e.Event, e.Checked, envelopes.Provenance{
		Generation:   cfg.Topology.Generation,
		Partition:    c.partition,
		RawStream:    c.cell.raw,
		RawSequence:  e.Sequence,
		RawReference: e.Referenced,
		Traceparent:  e.Traceparent,
		Tracestate:   e.Tracestate,
	}, c.stage.generation.Settings.CloudEvents)
	if err != nil {
		return message{}, err
	}
	data = b.keep(data)
	h := nats.Header(header)
	if records.Hashed(e.Event.SessionID) {
		h[envelopes.HeaderSession] = []string{envelopes.EncodeHeaderValue(e.Event.SessionID)}
	}
	if c.stage.ttl != "" {
		h[jetstream.MsgTTLHeader] = []string{c.stage.ttl}
	}
	broker.SetTrace(h, e.Traceparent, e.Tracestate)
	m := &nats.Msg{Subject: envelopes.EventSubject(c.cell.name, &e.Event), Header: h, Data: data}
	size := broker.HeaderSize(h)
	if size > broker.MaxHeaderBytes || int64(size+len(data)+broker.BatchHeaderBytes) > c.maxPayload {
		return message{}, records.ErrUnpublishable
	}
	out := message{Msg: m, size: size + len(data)}
	if cfg.Handover.Wanted(c.cell.name) {
		out.step = sessions.NewStep(&e.Event, 0).Detached()
	}
	return out, nil
}

// letter returns the message of a record that becomes a dead letter. For a large record it keeps the reference (a
// header), not the bytes. For a record that could not be redacted it keeps neither.
func (c *encoder) letter(ctx context.Context, r received, cause error) message {
	s := c.stage
	r.Data = r.raw.Data
	unredacted := s.redactor != nil && records.Fatal(cause)
	if !unredacted {
		data, _, err := s.redactor.Search(ctx, r.Data)
		if unredacted = err != nil; !unredacted {
			r.Data = data
		}
	}
	header := records.RedactHeader(s.redactor, r.raw.Header)
	by := events.LetterWriter{Generation: s.config.Topology.Generation, Cell: c.cell.name, Raw: c.cell.raw, Partition: c.partition, Revision: s.config.Revision}
	m := events.NewDeadLetter(by, r.Record, header, cause, c.maxPayload)
	if unredacted {
		m.Data = nil
	}
	if s.redactor != nil {
		m.Header[envelopes.HeaderRedacted] = []string{string(s.redactor.Mode())}
	}
	return message{Msg: m, size: broker.HeaderSize(m.Header) + len(m.Data), letter: true}
}

// newRedactor returns the redactor of a generation; nil when the generation redacts nothing.
func newRedactor(g streams.Generation, create func(redact.Mode) (*redact.Redactor, error)) (*redact.Redactor, error) {
	if !g.Settings.Redacted() {
		return nil, nil //nolint:nilnil // redacts nothing
	}
	if create == nil {
		return nil, fmt.Errorf("%w: generation %s has redact=%s, but this worker has no key: %s", streams.ErrTopology, g.Name, g.Settings.Redact, streams.RedactKeyCure)
	}
	r, err := create(g.Settings.Redact)
	if err != nil {
		return nil, fmt.Errorf("generation %s has redact=%s: %w", g.Name, g.Settings.Redact, err)
	}
	return r, g.Settings.Contradiction(g.Name, streams.Settings{RedactKey: r.Fingerprint(), RedactRules: r.RulesFingerprint()})
}

// CheckUnredacted returns [records.ErrRedacted] when a generation redacts its records, so that the raw records must
// not be shown in their place.
func CheckUnredacted(ctx context.Context, js jetstream.JetStream, generation string) error {
	g, err := streams.ReadGeneration(ctx, js, generation)
	if err == nil && g.Settings.Redacted() {
		err = fmt.Errorf("%w: generation %s has redact=%s, and the raw stream has the records as they were: leave --raw out, the events have the redacted ones",
			records.ErrRedacted, generation, g.Settings.Redact)
	}
	return err
}
