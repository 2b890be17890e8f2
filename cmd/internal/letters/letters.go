// Package letters describes dead letters for people.
package letters

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
	"tributary/pipeline/claims"
	"tributary/pipeline/events"
	"tributary/pipeline/records"
	"tributary/pipeline/streams"
)

// Field is a line of the description of a dead letter.
type Field struct{ Name, Value string }

// Fields describes a dead letter for people. gone is set if no stream has its bytes any more. Values come from logs:
// the caller makes them safe.
func Fields(l *events.DeadLetter, gone bool) []Field {
	fields := []Field{
		{"record", fmt.Sprintf("%d of stream %s, first seen %s", l.Sequence, l.Stream, terminal.DateTime(l.FirstSeen))},
		{"status", string(l.Standing)},
		{"reason", l.Reason},
		{"error", l.Error},
		{"agent", string(l.Source)},
		{"session", l.Session},
		{"sender", Sender(l.Edge)},
	}
	if l.Requeued != 0 {
		fields = append(fields, Field{"requeued", fmt.Sprintf("it repeats record %d, the dead letter before it", l.Requeued)})
	}
	fields = append(fields,
		Field{"generation", fmt.Sprintf("%s, partition %d, revision %d of the normalizers", l.Generation, l.Partition, l.Revision)},
		Field{"dead letter", fmt.Sprintf("message %d of stream %s, stored %s", l.Position, l.EventsStream(), terminal.DateTime(l.Stored))},
		Field{"position", position(l)})
	for _, name := range slices.Sorted(maps.Keys(l.Header)) {
		fields = append(fields, Field{"header", name + ": " + strings.Join(l.Header[name], ", ")})
	}
	where := "in the dead letter"
	switch {
	case gone && l.Claim != (claims.Claim{}):
		where = "gone: the bucket " + streams.ClaimsBucket + " does not have their object any more"
	case l.Claim != (claims.Claim{}):
		where = "in an object of the bucket " + streams.ClaimsBucket
	case gone:
		where = "gone: they did not fit into the dead letter, and the raw stream does not have them any more"
	case !l.Whole:
		where = "in the raw stream only, because they did not fit into the dead letter"
	}
	return append(fields, Field{"bytes", terminal.Size(l.RecordSize()) + ", " + where})
}

// position returns the position of the record in its file, empty if unknown.
func position(l *events.DeadLetter) string {
	file := l.Header.Get(envelopes.HeaderFile)
	if file == "" {
		return ""
	}
	if offset, _, err := envelopes.ParsePosition(l.Header.Get(envelopes.HeaderPosition)); err == nil {
		return fmt.Sprintf("byte %s of file %s", terminal.Thousands(offset), file)
	}
	return "file " + file
}

// Sender describes a sender for people, empty for nil.
func Sender(e *envelopes.Edge) string {
	if e == nil {
		return ""
	}
	text := e.Host
	if e.User != "" {
		text = strings.TrimSuffix(e.User+" on "+e.Host, " on ")
	}
	if len(e.Labels) > 0 {
		text += " (" + records.FormatLabels(e.Labels) + ")"
	}
	return strings.TrimSpace(text)
}

// group is the key of a count.
type group struct {
	reason string
	source envelopes.Source
}

// Count is the count of a group.
type Count struct {
	Reason  string           `json:"reason"`
	Source  envelopes.Source `json:"source"`
	Records int              `json:"records"`
	Bytes   int64            `json:"bytes"`
	First   time.Time        `json:"first"` // when the first was stored
	Last    time.Time        `json:"last"`
	Example uint64           `json:"example"` // sequence of the newest
}

// Counts counts dead letters by reason and source.
type Counts map[group]*Count

// Add counts a dead letter.
func (counts Counts) Add(l *events.DeadLetter) {
	key := group{l.Reason, l.Source}
	c := counts[key]
	if c == nil {
		c = &Count{Reason: l.Reason, Source: l.Source, First: l.Stored}
		counts[key] = c
	}
	c.Records++
	c.Bytes += l.RecordSize()
	c.Last, c.Example = l.Stored, l.Sequence
}

// Sorted returns the counts, the largest first.
func (counts Counts) Sorted() []*Count {
	return slices.SortedFunc(maps.Values(counts), func(a, b *Count) int {
		return cmp.Or(b.Records-a.Records, strings.Compare(a.Reason, b.Reason), strings.Compare(string(a.Source), string(b.Source)))
	})
}
