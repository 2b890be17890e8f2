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

// Encode encodes the session: a version byte, then four parts, each preceded by its length as a uvarint: the id, the
// state as JSON, the event ids and the API calls, oldest first. Equal sessions give equal bytes, at most 128 KiB.
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

// encodeState encodes the JSON part.
func (s *Session) encodeState() []byte { return encodeJSON(encodedState{s.source, s.state, s.State}) }

func encodeJSON(v any) []byte {
	body, err := json.Marshal(v, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		// All parts of the state are made by this package from valid values.
		panic(fmt.Sprintf("encode session state: %v", err))
	}
	return body
}

// encodedSize returns the length of the result of Encode. A long session is measured after each record, and most of
// it need not be encoded for that.
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

// uvarintSize returns how many bytes v takes as a uvarint.
func uvarintSize(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }

// DecodeSession is the inverse of [Session.Encode]. It does not retain data. The error is [ErrSession]. newState
// returns the empty state for a source; nil if its vendor has none.
func DecodeSession(data []byte, newState func(envelopes.Source) State) (*Session, error) {
	switch {
	case len(data) == 0 || data[0] == 0 || data[0] > mostVersion:
		return nil, fmt.Errorf("%w: not version %d", ErrSession, sessionVersion)
	case data[0] != sessionVersion:
		return nil, fmt.Errorf("%w: %w", ErrSession, ErrSessionVersion)
	}
	parts, err := cutParts(data[1:])
	if err != nil {
		return nil, err
	}
	s := &Session{id: string(parts[0]), IDs: newMemory[Fingerprint](maxIDs), APICalls: newMemory[Consumption](maxAPICalls)}
	s.IDs.reserve(len(parts[2]) / (2 * len(Fingerprint{})))
	if err := s.decodeState(parts[1], newState); err != nil {
		return nil, err
	}
	return s, s.decodeMemories(parts[2], parts[3])
}

// cutParts splits an encoded session into its four parts.
func cutParts(data []byte) (parts [4][]byte, err error) {
	for i := range parts {
		if parts[i], data, err = cutPart(data); err != nil {
			return parts, err
		}
	}
	if len(data) != 0 {
		return parts, fmt.Errorf("%w: %d extra bytes", ErrSession, len(data))
	}
	return parts, nil
}

// cutPart is the inverse of appendPart.
func cutPart(data []byte) (part, rest []byte, err error) {
	n, w := binary.Uvarint(data)
	if w <= 0 || n > uint64(len(data)-w) {
		return nil, nil, fmt.Errorf("%w: truncated", ErrSession)
	}
	return data[w : w+int(n)], data[w+int(n):], nil
}

// decodeState sets the source and state of s from the JSON part.
func (s *Session) decodeState(data []byte, newState func(envelopes.Source) State) error {
	var vendor jsontext.Value
	e := encodedState{Vendor: &vendor}
	if err := json.Unmarshal(data, &e, jsontext.AllowInvalidUTF8(true)); err != nil {
		return fmt.Errorf("%w: %T in its JSON part", ErrSession, err)
	}
	s.source, s.state = e.Source, e.State
	s.State = newState(e.Source)
	if len(vendor) > 0 && s.State != nil {
		if err := json.Unmarshal(vendor, s.State, jsontext.AllowInvalidUTF8(true)); err != nil {
			return fmt.Errorf("%w: %T in the state of its vendor", ErrSession, err)
		}
	}
	return nil
}

// decodeMemories sets the event ids and API calls of s from their parts.
func (s *Session) decodeMemories(ids, calls []byte) error {
	for ; len(ids) > 0; ids = ids[12:] {
		if len(ids) < 12 {
			return fmt.Errorf("%w: its ids are truncated", ErrSession)
		}
		s.IDs.Put(Fingerprint(ids[:6]), Fingerprint(ids[6:12]))
		s.IDs.commit()
	}
	for len(calls) > 0 {
		if len(calls) < 6 {
			return fmt.Errorf("%w: its API calls are truncated", ErrSession)
		}
		v, n := readConsumption(calls[6:])
		if n <= 0 {
			return fmt.Errorf("%w: its API calls are damaged", ErrSession)
		}
		s.APICalls.Put(Fingerprint(calls[:6]), v)
		s.APICalls.commit()
		calls = calls[6+n:]
	}
	return nil
}
