package events

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
	"tributary/pipeline/broker"
	"tributary/pipeline/claims"
	"tributary/pipeline/records"
	"tributary/pipeline/streams"
)

// LoadRecord returns the bytes of the raw record of e as its agent wrote them, for a large record those of its
// object. It returns [ErrRecordGone] if they are gone. For a dead letter, use [DeadLetter.LoadRecord].
func (e *Event) LoadRecord(ctx context.Context, js jetstream.JetStream) ([]byte, error) {
	data, err := e.loadRecord(ctx, js)
	if err != nil {
		return nil, fmt.Errorf("load record %d: %w", e.Provenance.RawSequence, err)
	}
	return data, nil
}

func (e *Event) loadRecord(ctx context.Context, js jetstream.JetStream) ([]byte, error) {
	m, err := broker.ReadStored(ctx, js, streams.RawStreamOf(e.Cell), broker.GetRequest{Sequence: e.Provenance.RawSequence})
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, ErrRecordGone
	}
	if err != nil {
		return nil, err
	}
	// A record with events was readable. An unreadable one at its sequence is another record.
	r, claim, err := records.Read(&nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data}, m.Sequence, m.Time)
	if err != nil || r.Source != e.Source || r.Session != e.SessionID || m.Time.After(e.Stored) {
		return nil, fmt.Errorf("%w, which was created anew", ErrRecordGone)
	}
	if claim == (claims.Claim{}) {
		return r.Data, nil
	}
	return loadClaimed(ctx, js, claim)
}

// loadClaimed returns the bytes of a large record.
func loadClaimed(ctx context.Context, js jetstream.JetStream, claim claims.Claim) ([]byte, error) {
	data, err := claims.NewStore(js).Get(ctx, claim)
	if _, permanent := records.Reason(err); permanent {
		err = fmt.Errorf("%w: %w", ErrRecordGone, err)
	}
	return data, err
}

// loadRaw sets the raw of e from the record that e refers to.
func (e *Event) loadRaw(ctx context.Context, js jetstream.JetStream) error {
	if !e.Provenance.RawReference {
		return nil
	}
	data, err := e.LoadRecord(ctx, js)
	switch {
	case errors.Is(err, ErrRecordGone):
		e.RecordGone = true
		return nil
	case err != nil:
		return err
	}
	raw := core.EventRaw(data)
	if raw == nil { // a line of text
		raw = lenient.AppendQuote(nil, string(data))
	}
	if len(raw) <= core.MaxEventBytes {
		e.Raw = raw
	}
	return nil
}
