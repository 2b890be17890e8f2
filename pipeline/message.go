package pipeline

import (
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/pipeline/sessions"
)

// maxHeaderBytes bounds the headers of every message that a stage stores. The broker has
// 64 KiB for them; the batch and the delivery add headers of their own.
const maxHeaderBytes = 60 << 10

// batchHeaderBytes is room for the headers of a batch and of the transport hop, and for the
// first line.
const batchHeaderBytes = 1 << 10

// headerSize returns the length of h on the wire, without the first line.
func headerSize(h nats.Header) int {
	n := 0
	for name, values := range h {
		for _, v := range values {
			n += len(name) + len(v) + len(": \r\n")
		}
	}
	return n
}

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
		if bytes += messages[i].size; bytes > batchBytes {
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
	if hashed(e.Event.SessionID) {
		h[envelopes.HeaderSession] = []string{envelopes.EncodeHeaderValue(e.Event.SessionID)}
	}
	if o.p.stage.ttl != "" {
		h[jetstream.MsgTTLHeader] = []string{o.p.stage.ttl}
	}
	setTrace(h, e.Traceparent, e.Tracestate)
	m := &nats.Msg{Subject: envelopes.EventSubject(o.p.cell.name, &e.Event), Header: h, Data: data}
	size := headerSize(h)
	if size > maxHeaderBytes || int64(size+len(data)+batchHeaderBytes) > o.maxPayload {
		return message{}, errUnpublishable
	}
	out := message{Msg: m, size: size + len(data)}
	if cfg.Handover.wanted(o.p.cell.name) {
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
	unredacted := s.redactor != nil && fatal(cause)
	if !unredacted {
		data, _, err := s.redactor.Search(o.ctx, r.Data)
		if unredacted = err != nil; !unredacted {
			r.Data = data
		}
	}
	header := redactHeader(s.redactor, r.raw.Header)
	by := letterWriter{s.config.Topology.Generation, o.p.cell.name, o.p.cell.raw, o.p.number, s.config.Revision}
	m := deadLetter(by, r.Record, header, cause, o.maxPayload)
	if unredacted {
		m.Data = nil
	}
	if s.redactor != nil {
		m.Header[envelopes.HeaderRedacted] = []string{string(s.redactor.Mode())}
	}
	return message{Msg: m, size: headerSize(m.Header) + len(m.Data), letter: true}
}
