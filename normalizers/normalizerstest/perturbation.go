package normalizerstest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
)

// MaxPositions limits the records of a file before which [lawUnknownRecord] inserts a record, evenly spread; 0 for
// all.
var MaxPositions = 2000

// tomorrow is the time of an unknown record that must change nothing: long after any other time.
var tomorrow = time.Date(2061, 1, 2, 3, 4, 5, 0, time.UTC)

// unknownLine returns a record of [Suite.Unknown] that states a session and a time.
func unknownLine(of, session string, at time.Time) string {
	quoted := strconv.Quote(session)
	return strings.NewReplacer(
		"$SESSION", quoted[1:len(quoted)-1], // also as a part of a name
		"$TIME", at.Format("2006-01-02T15:04:05.000Z"),
		`"$MILLIS"`, strconv.FormatInt(at.UnixMilli(), 10),
	).Replace(of)
}

// lawUnknownRecord: a record of an unknown type, inserted before any record of a session, yields one meta event. It
// changes nothing that the session remembers except the number of records and events, and the id of that event: what
// is pending stays pending. A session with the same memory yields the same later events.
func lawUnknownRecord(f Folding) func(Point) error {
	tried := 0
	return func(p Point) error {
		if MaxPositions != 0 && p.Index*MaxPositions < tried*len(f.Records) {
			return nil
		}
		tried++
		if err := unknownRecords(f, p.Before, p.Record.Record); err != nil {
			return fmt.Errorf("record %d (line %d): in front of it %w", p.Index+1, p.Record.Line, err)
		}
		return nil
	}
}

// unknownRecords checks what a record of each unknown type does to a copy of an encoded session.
func unknownRecords(f Folding, before []byte, next core.Record) error {
	was := readMemory(before)
	err := changedBy(f, before, was, next, f.Suite.Unknown)
	if err == nil {
		return nil
	}
	for _, of := range f.Suite.Unknown { // the first type that changes something by itself
		if err := changedBy(f, before, was, next, []string{of}); err != nil {
			return err
		}
	}
	return err
}

// changedBy checks what further records do to a copy of an encoded session.
func changedBy(f Folding, before []byte, was memory, next core.Record, unknown []string) error {
	copied, err := normalizers.DecodeSession(before)
	if err != nil {
		return err
	}
	for _, of := range unknown {
		r := next
		r.Data = []byte(unknownLine(of, next.Session, tomorrow))
		r.Origin = core.Origin{Time: next.Origin.Time}
		result, err := f.Normalize(copied, r)
		if err != nil {
			return fmt.Errorf("%s: %w", r.Data, err)
		}
		if !isOneMeta(result.Events) {
			return fmt.Errorf("%s: yields not one meta event:\n%s", r.Data, Outcomes(Step{Result: result}, false))
		}
	}
	if err := was.unchanged(readMemory(copied.Encode()), len(unknown)); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(unknown, " and "), err)
	}
	return nil
}

// isOneMeta reports whether the only event is a meta event.
func isOneMeta(events []core.Emitted) bool {
	return len(events) == 1 && events[0].Event.EventType == envelopes.Meta
}

// memory is what an encoded session remembers.
type memory struct {
	state, vendor map[string]jsontext.Value
	ids, calls    []byte
}

// readMemory reads an encoded session. If that fails, Encode is wrong.
func readMemory(encoded []byte) memory {
	var parts [4][]byte
	rest := encoded[1:]
	for i := range parts {
		n, w := binary.Uvarint(rest)
		parts[i], rest = rest[w:w+int(n)], rest[w+int(n):]
	}
	var e struct {
		State  map[string]jsontext.Value `json:"state"`
		Vendor map[string]jsontext.Value `json:"vendor"`
	}
	if err := json.Unmarshal(parts[1], &e, jsontext.AllowInvalidUTF8(true)); err != nil {
		panic(err)
	}
	for _, counter := range []string{"n", "e", "forgotten"} { // of records, events, and what the limits dropped
		delete(e.State, counter)
	}
	delete(e.Vendor, "unknown") // the number of records of unknown types
	return memory{e.State, e.Vendor, parts[2], parts[3]}
}

// unchanged returns the first difference in the memory of another session, nil if it only remembers the ids of some
// more records.
func (m memory) unchanged(is memory, records int) error {
	if err := sameMembers(m.state, is.state); err != nil {
		return err
	}
	if err := sameMembers(m.vendor, is.vendor); err != nil {
		return err
	}
	if !m.keepsIDs(is, records) {
		return fmt.Errorf("the session remembers %d ids, not its %d and those of %d records", len(is.ids)/idBytes, len(m.ids)/idBytes, records)
	}
	if !bytes.Equal(m.calls, is.calls) {
		return fmt.Errorf("the session remembers other API calls: %q, not %q", is.calls, m.calls)
	}
	return nil
}

// idBytes is the size of an id and its details in an encoded session.
const idBytes = 12

// keepsIDs reports whether another session remembers the ids of m, then those of some more records: of the event, and
// of the message if the vendor asks for that. The oldest may have been dropped.
func (m memory) keepsIDs(is memory, records int) bool {
	for n := records; n <= 2*records; n++ {
		dropped := len(m.ids) + n*idBytes - len(is.ids)
		if dropped >= 0 && dropped <= len(m.ids) && bytes.HasPrefix(is.ids, m.ids[dropped:]) {
			return true
		}
	}
	return false
}

// sameMembers returns the first member that differs.
func sameMembers(was, is map[string]jsontext.Value) error {
	for _, name := range slices.Sorted(maps.Keys(mergedNames(was, is))) {
		if name == "resume" && was[name] == nil {
			continue // the session that the record itself states
		}
		if !bytes.Equal(was[name], is[name]) {
			return fmt.Errorf("the session remembers as %q %s, not %s", name, Clip(string(is[name])), Clip(string(was[name])))
		}
	}
	return nil
}
