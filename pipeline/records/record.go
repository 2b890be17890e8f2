package records

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/broker"
	"tributary/pipeline/claims"
)

// MaxSessionBytes is the maximum length of a session id. Several headers of an event repeat it, and the broker
// accepts 64 KiB of headers.
const MaxSessionBytes = 1 << 10

// Message returns the message that a producer publishes for a record, without a Nats-Msg-Id. The message shares the
// data of r; the broker sets its sequence and time. A record that is too large for one message, see [claims.Claimed],
// needs [ClaimMessage].
func Message(r core.Record) *nats.Msg {
	m := nats.NewMsg(envelopes.RawSubject(r.Source, r.Session))
	m.Data = r.Data
	set := func(name, value string) {
		if value != "" {
			m.Header[name] = []string{value}
		}
	}
	if Hashed(r.Session) {
		set(envelopes.HeaderSession, envelopes.EncodeHeaderValue(r.Session))
	}
	if r.Origin.File != "" {
		set(envelopes.HeaderFile, envelopes.EncodeHeaderValue(r.Origin.File))
		if !r.Origin.End {
			set(envelopes.HeaderPosition, envelopes.FormatPosition(r.Origin.Position, r.Origin.Previous))
			set(envelopes.HeaderDigest, r.Origin.Digest)
		}
	}
	set(envelopes.HeaderParent, envelopes.EncodeHeaderValue(r.Origin.Parent))
	if r.Origin.Requeued != 0 {
		set(envelopes.HeaderRequeued, strconv.FormatUint(r.Origin.Requeued, 10))
	}
	if !r.Origin.Time.IsZero() {
		set(envelopes.HeaderTime, envelopes.FormatTime(r.Origin.Time))
	}
	if r.Origin.End {
		set(envelopes.HeaderEnd, "1")
	}
	setEdge(r.Origin.Edge, set)
	set(envelopes.HeaderTraceparent, r.Origin.Traceparent)
	set(envelopes.HeaderTracestate, r.Origin.Tracestate)
	return m
}

// ClaimMessage is [Message] for a record that travels by claim check: the body is empty, and a header names the
// object with its bytes, which [claims.Store.Put] must have stored first. A claim check and the header for the end of
// a file, whose body is empty too, exclude each other.
func ClaimMessage(r core.Record) *nats.Msg {
	claim := claims.Of(r.Data)
	r.Data = nil
	m := Message(r)
	m.Header[envelopes.HeaderClaim] = []string{claim.String()}
	return m
}

// Hashed reports whether the subject token of a session is a digest. The session id then travels in a header.
func Hashed(session string) bool {
	_, whole, err := envelopes.ParseToken(envelopes.Token(session))
	return err == nil && !whole
}

// Read is the inverse of [Message] and [ClaimMessage] for a message of the raw stream, with its sequence and the time
// at which the broker stored it. The record shares the data of m. If claim is not zero, its data must still be
// fetched with [claims.Store.Get].
//
// Every error is permanent, see [Reason]. With an error, the record has what is known, and enough for the subject of
// its dead letter: if its session is unknown, the source is [envelopes.UnknownSource] and the session is the subject
// of m. The record has a File only if it also has a position.
func Read(m *nats.Msg, sequence uint64, stored time.Time) (r core.Record, claim claims.Claim, err error) {
	r = core.Record{
		Source:   envelopes.UnknownSource,
		Session:  strings.ToValidUTF8(m.Subject, "\ufffd"),
		Sequence: sequence,
		Stored:   stored.UTC(),
		Data:     m.Data,
	}
	address, err := envelopes.ParseRawSubject(m.Subject)
	if err != nil {
		return r, claims.Claim{}, fmt.Errorf("%w: %w", errSubject, err)
	}
	header := m.Header
	stated, err := envelopes.DecodeHeaderValue(header.Get(envelopes.HeaderSession))
	if err != nil {
		return r, claims.Claim{}, fmt.Errorf("%w: header %s: %w", errSession, envelopes.HeaderSession, err)
	}
	session, err := envelopes.ResolveToken(address.Token, stated)
	if err != nil {
		return r, claims.Claim{}, fmt.Errorf("%w: %w", errSession, err)
	}
	if len(session) > MaxSessionBytes {
		return r, claims.Claim{}, fmt.Errorf("%w: longer than %d bytes", errSession, MaxSessionBytes)
	}
	r.Source, r.Session = address.Source, session
	if requeued := header.Get(envelopes.HeaderRequeued); requeued != "" {
		// Read before anything that can fail, because a copy of a settled record is a duplicate.
		if r.Origin.Requeued, err = strconv.ParseUint(requeued, 10, 64); err != nil || r.Origin.Requeued == 0 {
			r.Origin.Requeued = 0
			return r, claims.Claim{}, fmt.Errorf("%w: %s is not a sequence", errHeader, envelopes.HeaderRequeued)
		}
	}
	if !slices.Contains(envelopes.Sources, r.Source) {
		return r, claims.Claim{}, core.ErrUnknownSource
	}
	claim, badClaim := readClaim(m)
	err = readOrigin(&r, header) // even for a bad claim, so that the record's place in its file is known
	return r, claim, cmp.Or(badClaim, err)
}

// readClaim reads the claim check of a record; zero when m has the data.
func readClaim(m *nats.Msg) (claims.Claim, error) {
	values, ok := m.Header[envelopes.HeaderClaim]
	switch {
	case !ok:
		return claims.Claim{}, nil
	case len(values) != 1:
		return claims.Claim{}, fmt.Errorf("%w: %s occurs more than once", claims.ErrMalformed, envelopes.HeaderClaim)
	case len(m.Data) > 0:
		return claims.Claim{}, fmt.Errorf("%w: %s with a body", claims.ErrMalformed, envelopes.HeaderClaim)
	case m.Header.Get(envelopes.HeaderEnd) != "":
		return claims.Claim{}, fmt.Errorf("%w: %s with %s", claims.ErrMalformed, envelopes.HeaderClaim, envelopes.HeaderEnd)
	}
	return claims.Parse(values[0])
}

// readOrigin reads the stated origin of r.
func readOrigin(r *core.Record, header nats.Header) error {
	o := &r.Origin
	o.Traceparent, o.Tracestate = envelopes.TraceContext(header.Get(envelopes.HeaderTraceparent), header.Get(envelopes.HeaderTracestate))
	end := header.Get(envelopes.HeaderEnd)
	o.End = end == "1" && len(r.Data) == 0
	file, err := envelopes.DecodeHeaderValue(header.Get(envelopes.HeaderFile))
	if err != nil {
		return fmt.Errorf("%w: %s: %w", errHeader, envelopes.HeaderFile, err)
	}
	if position := header.Get(envelopes.HeaderPosition); position != "" {
		if o.Position, o.Previous, err = envelopes.ParsePosition(position); err != nil {
			return fmt.Errorf("%w: %w", errHeader, err)
		}
	} else if file != "" && !o.End {
		return fmt.Errorf("%w: %s without %s", errHeader, envelopes.HeaderFile, envelopes.HeaderPosition)
	}
	o.File = file // set last, when its position is known
	o.Digest = header.Get(envelopes.HeaderDigest)
	if end != "" && !o.End {
		return fmt.Errorf("%w: %s is not 1 with an empty body", errHeader, envelopes.HeaderEnd)
	}
	if t := header.Get(envelopes.HeaderTime); t != "" {
		if o.Time, err = envelopes.ParseTime(t); err != nil {
			return fmt.Errorf("%w: %s: %w", errHeader, envelopes.HeaderTime, err)
		}
	}
	switch o.Parent, err = envelopes.DecodeHeaderValue(header.Get(envelopes.HeaderParent)); {
	case err != nil:
		return fmt.Errorf("%w: %s: %w", errHeader, envelopes.HeaderParent, err)
	case len(o.Parent) > MaxSessionBytes:
		o.Parent = ""
		return fmt.Errorf("%w: %s is longer than %d bytes", errHeader, envelopes.HeaderParent, MaxSessionBytes)
	}
	o.Edge, err = ReadEdge(header)
	return err
}

// SessionKey names a session within a partition.
type SessionKey struct {
	Source envelopes.Source
	ID     string
}

// Size returns the bytes of a record, including its object.
func Size(m broker.Stored) int64 {
	header, err := nats.DecodeHeadersMsg(m.Header)
	if err == nil {
		if claim, err := readClaim(&nats.Msg{Header: header, Data: m.Data}); err == nil && claim != (claims.Claim{}) {
			return claim.Size
		}
	}
	return int64(len(m.Data))
}
