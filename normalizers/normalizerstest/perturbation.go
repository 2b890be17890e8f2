package normalizerstest

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"tributary/envelopes"
	"tributary/normalizers"
)

// LawUnknownRecord holds that one more record of an unknown type, in front of any record of a
// session, yields its one meta event and changes nothing that the session remembers but the
// number of its records and events: what is pending stays pending. It is put in front of about
// 20 records of a session, for each costs an encoded session.
func LawUnknownRecord(f Folding) error {
	if len(f.Suite.Unknown) == 0 {
		return nil
	}
	perSession := make(map[string]int)
	for _, r := range f.Records {
		perSession[r.Record.Session]++
	}
	seen := make(map[string]int)
	sessions := make(map[string]*normalizers.Session)
	for i, r := range f.Records {
		session := r.Record.Session
		step := max(1, perSession[session]/20)
		if state := sessions[session]; state != nil && seen[session]%step == 0 {
			for _, unknown := range f.Suite.Unknown {
				if err := unknownRecord(f.Normalize, state, r, unknown); err != nil {
					return fmt.Errorf("record %d (line %d): %s in front of it: %w", i+1, r.Line, unknown, err)
				}
			}
		}
		seen[session]++
		FoldOne(f.Normalize, sessions, r)
	}
	return nil
}

// unknownRecord checks what one more record does to a copy of a session.
func unknownRecord(normalize NormalizeFunc, state *normalizers.Session, next normalizers.Framed, unknown string) error {
	before := state.Encode()
	copied, err := normalizers.DecodeSession(before)
	if err != nil {
		return err
	}
	r := next.Record
	r.Origin, r.Data = normalizers.Origin{Time: next.Record.Origin.Time}, []byte(unknown)
	result, err := normalize(copied, r)
	if err != nil {
		return err
	}
	if len(result.Events) != 1 || result.Events[0].Event.EventType != envelopes.Meta {
		var types []envelopes.EventType
		for _, e := range result.Events {
			types = append(types, e.Event.EventType)
		}
		return fmt.Errorf("yields %v, want one meta", types)
	}
	was, is := remembered(before), remembered(copied.Encode())
	for _, name := range slices.Sorted(maps.Keys(is)) {
		if !reflect.DeepEqual(was[name], is[name]) {
			return fmt.Errorf("the session remembers as %q %s, not %s", name, Clip(fmt.Sprint(is[name])), Clip(fmt.Sprint(was[name])))
		}
	}
	return nil
}

// remembered returns what an encoded session remembers, but for the numbers of its records and
// events and the time of the last event.
func remembered(encoded []byte) map[string]any {
	rest := encoded[1:]
	_, rest = part(rest) // the id
	body, _ := part(rest)
	var e struct {
		State  map[string]any `json:"state"`
		Vendor map[string]any `json:"vendor"`
	}
	if err := json.Unmarshal(body, &e); err != nil {
		panic(err) // Encode writes JSON
	}
	out := make(map[string]any)
	for name, v := range e.State {
		if name != "n" && name != "e" && name != "ts" { // counters, and the time
			out[name] = v
		}
	}
	for name, v := range e.Vendor {
		if name != "unknown" { // the number of records of unknown types
			out["vendor."+name] = v
		}
	}
	return out
}

// part cuts the first part from an encoded session.
func part(b []byte) (first, rest []byte) {
	n, w := binary.Uvarint(b)
	return b[w : w+int(n)], b[w+int(n):]
}
