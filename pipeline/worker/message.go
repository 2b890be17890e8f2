package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/pipeline/broker"
	"tributary/pipeline/events"
	"tributary/pipeline/records"
	"tributary/pipeline/redact"
	"tributary/pipeline/sessions"
	"tributary/pipeline/streams"
)

// eventMessages returns the messages of the events of one record. Beyond the bytes of a
// batch, a message keeps the event and is encoded when it is sent: the events of a record
// share what they repeat and their messages do not, so those of a short record could take
// gigabytes.
func (o *ownership) eventMessages(events []normalizers.Emitted) ([]message, error) {
	messages := make([]message, len(events))
	bytes := 0
	b := &o.building.blocks
	var measured blocks // of events that are encoded for their size alone
	for i := range events {
		var err error
		if messages[i], err = o.eventMessage(&events[i], b); err != nil {
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

// eventMessage encodes an event in blocks.
func (o *ownership) eventMessage(e *normalizers.Emitted, b *blocks) (message, error) {
	cfg := o.p.stage.config
	header, data, err := envelopes.AppendEvent(b.room(lengthOf(&e.Event)), b.header(), &e.Event, e.Checked, envelopes.Provenance{
		Generation:   cfg.Topology.Generation,
		Partition:    o.p.number,
		RawStream:    o.p.cell.raw,
		RawSequence:  e.Sequence,
		RawReference: e.Referenced,
		Traceparent:  e.Traceparent,
		Tracestate:   e.Tracestate,
	}, o.p.stage.generation.Settings.CloudEvents)
	if err != nil {
		return message{}, err
	}
	data = b.keep(data)
	h := nats.Header(header)
	if records.Hashed(e.Event.SessionID) {
		h[envelopes.HeaderSession] = []string{envelopes.EncodeHeaderValue(e.Event.SessionID)}
	}
	if o.p.stage.ttl != "" {
		h[jetstream.MsgTTLHeader] = []string{o.p.stage.ttl}
	}
	broker.SetTrace(h, e.Traceparent, e.Tracestate)
	m := &nats.Msg{Subject: envelopes.EventSubject(o.p.cell.name, &e.Event), Header: h, Data: data}
	size := broker.HeaderSize(h)
	if size > broker.MaxHeaderBytes || int64(size+len(data)+broker.BatchHeaderBytes) > o.maxPayload {
		return message{}, records.ErrUnpublishable
	}
	out := message{Msg: m, size: size + len(data)}
	if cfg.Handover.Wanted(o.p.cell.name) {
		out.step = sessions.NewStep(&e.Event, 0).Detached()
	}
	return out, nil
}

// deadLetterMessage returns the message of a record that becomes a dead letter. Of a record
// that travels by claim check it keeps the reference, which is a header, and not the bytes; of one
// that could not be redacted it keeps neither.
func (o *ownership) deadLetterMessage(r received, cause error) message {
	s := o.p.stage
	r.Data = r.raw.Data
	unredacted := s.redactor != nil && records.Fatal(cause)
	if !unredacted {
		data, _, err := s.redactor.Search(o.ctx, r.Data)
		if unredacted = err != nil; !unredacted {
			r.Data = data
		}
	}
	header := records.RedactHeader(s.redactor, r.raw.Header)
	by := events.LetterWriter{Generation: s.config.Topology.Generation, Cell: o.p.cell.name, Raw: o.p.cell.raw, Partition: o.p.number, Revision: s.config.Revision}
	m := events.NewDeadLetter(by, r.Record, header, cause, o.maxPayload)
	if unredacted {
		m.Data = nil
	}
	if s.redactor != nil {
		m.Header[envelopes.HeaderRedacted] = []string{string(s.redactor.Mode())}
	}
	return message{Msg: m, size: broker.HeaderSize(m.Header) + len(m.Data), letter: true}
}

// newRedactor returns the redactor of a generation, nil when its records are not redacted.
func newRedactor(g streams.Generation, create func(redact.Mode) (*redact.Redactor, error)) (*redact.Redactor, error) {
	if !g.Settings.Redacted() {
		return nil, nil //nolint:nilnil // redacts nothing
	}
	if create == nil {
		return nil, fmt.Errorf("%w: generation %s has redact=%s, and this worker no key: %s", streams.ErrTopology, g.Name, g.Settings.Redact, streams.RedactKeyCure)
	}
	r, err := create(g.Settings.Redact)
	if err != nil {
		return nil, fmt.Errorf("generation %s has redact=%s: %w", g.Name, g.Settings.Redact, err)
	}
	return r, g.Settings.Contradiction(g.Name, streams.Settings{RedactKey: r.Fingerprint(), RedactRules: r.RulesFingerprint()})
}

// redact replaces what the generation replaces in a record. It may take as long as the normalizer, and ends soon after
// the ownership does. A record that takes too much work becomes a dead letter, and so does one at which it took too
// long, or that ended workers, without another try: its bytes are left out.
func (o *ownership) redact(r *received) error {
	redactor := o.p.stage.redactor
	switch {
	case redactor == nil:
		return nil
	case records.Fatal(r.err):
		r.Data = nil
		return nil
	}
	call := o.calls.begin(r.Sequence)
	o.p.normalizing.Begin()
	data, hits, err := redactor.Search(o.ctx, r.Data)
	o.p.normalizing.End()
	if !o.calls.end(call) {
		return errLeftBehind
	}
	if err != nil && !errors.Is(err, redact.ErrUnsearched) {
		return err
	}
	r.Data, r.hits, r.err = data, hits, cmp.Or(r.err, err)
	return nil
}

// CheckUnredacted returns an [records.ErrRedacted] when a generation redacts its records, so that those
// of the raw stream must not be shown in their place.
func CheckUnredacted(ctx context.Context, js jetstream.JetStream, generation string) error {
	g, err := streams.ReadGeneration(ctx, js, generation)
	if err == nil && g.Settings.Redacted() {
		err = fmt.Errorf("%w: generation %s has redact=%s, and the raw stream has the records as they were: leave --raw out, the events have the redacted ones",
			records.ErrRedacted, generation, g.Settings.Redact)
	}
	return err
}
