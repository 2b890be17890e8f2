package core

import (
	"encoding/binary"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
)

// maxRecorded is the maximum number of entries of a [Memory] in a change. With more, it would hardly be shorter than
// the whole session.
const maxRecorded = 512

// Mark makes the present session the reference for [Session.EncodeChange].
func (s *Session) Mark() {
	s.marked = true
	s.markedCalls = s.Calls
	s.IDs.record()
	s.APICalls.record()
}

// EncodeChange encodes the difference from the session at the last [Session.Mark], for [DecodeChanged]. It returns
// nil if there was no mark, or if too much differs.
//
// A change has four parts, each preceded by its length as a uvarint: the state as JSON without its calls; the calls,
// each as 1 + its index among the calls at the mark, or 0 and its JSON; the event ids and the API calls added since,
// in order. These three lists are most of a long session, and a record changes little of them.
func (s *Session) EncodeChange() []byte {
	if !s.marked || !s.IDs.recording || !s.APICalls.recording {
		return nil
	}
	rest := s.state
	rest.Calls = nil
	out := appendPart(nil, encodeJSON(encodedState{s.source, rest, s.State}))
	out = appendPart(out, appendCalls(nil, s.Calls, s.markedCalls))
	var part []byte
	for _, e := range s.IDs.recorded {
		part = append(append(part, e.key[:]...), e.value[:]...)
	}
	out = appendPart(out, part)
	part = part[:0]
	for _, e := range s.APICalls.recorded {
		part = e.value.append(append(part, e.key[:]...))
	}
	return appendPart(out, part)
}

// appendCalls encodes the calls for [Session.EncodeChange]. Calls are never changed in place, so equal pointers mean
// equal calls; remaining calls keep their order.
func appendCalls(out []byte, calls, marked Window[*Call]) []byte {
	at := 0
	for _, c := range calls {
		next := at
		for next < len(marked) && marked[next] != c {
			next++
		}
		if next == len(marked) {
			out = appendPart(append(out, 0), encodeJSON(c))
			continue
		}
		out = binary.AppendUvarint(out, uint64(next)+1)
		at = next + 1
	}
	return out
}

// DecodeChanged decodes a session from the results of [Session.Encode] at a mark and of a later
// [Session.EncodeChange]. The session has the same mark. The error is [ErrSession].
func DecodeChanged(whole, change []byte, newState func(envelopes.Source) State) (*Session, error) {
	s, err := DecodeSession(whole, newState)
	if err != nil {
		return nil, err
	}
	s.Mark()
	parts, err := cutParts(change)
	if err != nil {
		return nil, err
	}
	if err := s.decodeState(parts[0], newState); err != nil {
		return nil, err
	}
	if s.Calls, err = decodeCalls(parts[1], s.markedCalls); err != nil {
		return nil, err
	}
	return s, s.decodeMemories(parts[2], parts[3])
}

// decodeCalls is the inverse of appendCalls.
func decodeCalls(data []byte, marked Window[*Call]) (calls Window[*Call], err error) {
	for len(data) > 0 {
		n, w := binary.Uvarint(data)
		if w <= 0 || n > uint64(len(marked)) {
			return nil, fmt.Errorf("%w: a call of its change is damaged", ErrSession)
		}
		data = data[w:]
		if n > 0 {
			calls = append(calls, marked[n-1])
			continue
		}
		var part []byte
		if part, data, err = cutPart(data); err != nil {
			return nil, err
		}
		c := new(Call)
		if err := json.Unmarshal(part, c, jsontext.AllowInvalidUTF8(true)); err != nil {
			return nil, fmt.Errorf("%w: %T in a call of its change", ErrSession, err)
		}
		calls = append(calls, c)
	}
	return calls, nil
}
