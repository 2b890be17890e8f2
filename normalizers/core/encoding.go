package core

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
)

// encodedState is the JSON part of an encoded session.
type encodedState struct {
	Source envelopes.Source `json:"source"`
	State  state            `json:"state"`
	Vendor any              `json:"vendor,omitzero"` // a [State]; decoded as its JSON
}

// Encode writes the session: a version byte, then four parts, each after its length as
// a uvarint: the id, the state as JSON, the event ids and the API calls, oldest first. Equal
// sessions give equal bytes. At most 128 KiB.
func (s *Session) Encode() []byte {
	body := s.encodeState()
	out := make([]byte, 0, len(body)+12*len(s.IDs.ring)+24*len(s.APICalls.ring)+len(s.id)+16)
	out = append(out, sessionVersion)
	out = appendPart(out, []byte(s.id))
	out = appendPart(out, body)
	var part []byte
	for k, v := range s.IDs.all() {
		part = append(append(part, k[:]...), v[:]...)
	}
	out = appendPart(out, part)
	part = part[:0]
	for k, v := range s.APICalls.all() {
		part = v.append(append(part, k[:]...))
	}
	return appendPart(out, part)
}

// encodeState writes the part that is JSON.
func (s *Session) encodeState() []byte {
	body, err := json.Marshal(encodedState{s.source, s.state, s.State}, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		// Every part of the state is made by this package from valid values.
		panic(fmt.Sprintf("encode session state: %v", err))
	}
	return body
}

// encodedSize is the length of what Encode writes. A long session is measured after each
// record, and most of it need not be written for that.
func (s *Session) encodedSize() int {
	calls := 0
	for _, v := range s.APICalls.all() {
		calls += len(Fingerprint{}) + v.encodedSize()
	}
	size := 1
	for _, part := range [...]int{len(s.id), len(s.encodeState()), 2 * len(Fingerprint{}) * len(s.IDs.ring), calls} {
		size += uvarintSize(uint64(part)) + part
	}
	return size
}

func appendPart(dst, part []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(part))), part...)
}

// uvarintSize is how many bytes v takes as a uvarint.
func uvarintSize(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }

// DecodeSession is the inverse of [Session.Encode]. It does not retain data. An error
// is [ErrSession].
// newState makes the empty state of the vendor of a source, nil where it has none.
func DecodeSession(data []byte, newState func(envelopes.Source) State) (*Session, error) {
	if len(data) == 0 || data[0] != sessionVersion {
		return nil, fmt.Errorf("%w: not version %d", ErrSession, sessionVersion)
	}
	var parts [4][]byte
	rest := data[1:]
	for i := range parts {
		n, w := binary.Uvarint(rest)
		if w <= 0 || n > uint64(len(rest)-w) {
			return nil, fmt.Errorf("%w: part %d is cut off", ErrSession, i)
		}
		parts[i], rest = rest[w:w+int(n)], rest[w+int(n):]
	}
	if len(rest) != 0 {
		return nil, fmt.Errorf("%w: %d bytes too many", ErrSession, len(rest))
	}
	var vendor jsontext.Value
	e := encodedState{Vendor: &vendor}
	if err := json.Unmarshal(parts[1], &e, jsontext.AllowInvalidUTF8(true)); err != nil {
		return nil, fmt.Errorf("%w: %T in its JSON part", ErrSession, err)
	}
	s := NewSession(e.Source, string(parts[0]), newState(e.Source))
	e.State.State = s.State
	s.state = e.State
	if len(vendor) > 0 && s.State != nil {
		if err := json.Unmarshal(vendor, s.State, jsontext.AllowInvalidUTF8(true)); err != nil {
			return nil, fmt.Errorf("%w: %T in the state of its vendor", ErrSession, err)
		}
	}
	for ids := parts[2]; len(ids) > 0; ids = ids[12:] {
		if len(ids) < 12 {
			return nil, fmt.Errorf("%w: its ids are cut off", ErrSession)
		}
		s.IDs.Put(Fingerprint(ids[:6]), Fingerprint(ids[6:12]))
	}
	for calls := parts[3]; len(calls) > 0; {
		if len(calls) < 6 {
			return nil, fmt.Errorf("%w: its API calls are cut off", ErrSession)
		}
		v, n := readConsumption(calls[6:])
		if n <= 0 {
			return nil, fmt.Errorf("%w: its API calls are damaged", ErrSession)
		}
		s.APICalls.Put(Fingerprint(calls[:6]), v)
		calls = calls[6+n:]
	}
	s.IDs.commit()
	s.APICalls.commit()
	return s, nil
}
