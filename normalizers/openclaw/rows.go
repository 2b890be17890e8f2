package openclaw

import (
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/klauspost/compress/zstd"

	"tributary/normalizers/chat"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
	"tributary/normalizers/pi"
)

// database is what is read of the database of an agent: each row has an entry of a session's log. The other tables have
// secrets, memories, and indexes of the entries.
var database = core.Database{
	Later: true,
	Tables: []core.Table{{
		Name: "transcript_events", Key: "seq", Order: "seq", Parent: "session_id", InParent: true,
		Columns: []string{"session_id", "event_json"}, Optional: []string{"event_zstd"}, JSON: []string{"event_json"},
		Packed: map[string]string{"event_json": "event_zstd"}, Decode: map[string]func([]byte) []byte{"event_zstd": unpack},
	}},
}

// maxUnpacked is the size of the largest entry that OpenClaw packs.
const maxUnpacked = 4 << 20

var unpacker = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxUnpacked))
})

// unpack returns the JSON of a packed entry; nil for other bytes.
func unpack(blob []byte) []byte {
	d, err := unpacker()
	if err != nil {
		return nil
	}
	entry, err := d.DecodeAll(blob, nil)
	if err != nil {
		return nil
	}
	return entry
}

// isRow recognizes a row of the database.
func isRow(s *core.Shape) bool {
	return s.Text("table") == "transcript_events" && s.Kind("row", "event_json") != 0
}

// sessionOf returns the session: each row states it, of a log the first line.
func sessionOf(s *core.Shape) string {
	if isRow(s) {
		return s.Text("row", "session_id")
	}
	return pi.SessionOf(s)
}

// timeOf returns the time that an entry states.
func timeOf(s *core.Shape) time.Time {
	return s.Time([]string{"timestamp"}, []string{"row", "event_json", "timestamp"})
}

// record is an entry, or a row with an entry.
type record struct {
	pi.Record `json:",embed"`

	Table lenient.Text        `json:"table"`
	Row   lenient.Object[row] `json:"row"`
}

type row struct {
	Entry jsontext.Value `json:"event_json"`
}

// read writes what a record states. The events of a row are those of its entry in a log.
func read(w *chat.Writer, r *record) {
	if r.Table != "transcript_events" {
		readOnce(w, &r.Record, w.Remembered(firstRow), w.Remembered(lastRow))
		return
	}
	w.Raw = r.Row.Value.Entry
	if w.Raw.Kind() != '{' {
		w.Raw = w.Record.Data
		w.UnknownRecord(r.Table)
		return
	}
	var entry pi.Record
	lenient.ReadObject(w.Raw, &entry)
	if w.Remembered(lastRow) == "" {
		w.Remember(lastLine, w.Session.TS)
		w.Remember(firstRow, string(entry.Timestamp))
	}
	readOnce(w, &entry, "", w.Remembered(lastLine))
	if between(w.Remembered(lastRow), w.Session.TS) >= 0 {
		w.Remember(lastRow, w.Session.TS)
	}
}

// What a session with rows remembers: the time of the last event before its first row, and of the first and last row.
const (
	lastLine = "line"
	firstRow = "first"
	lastRow  = "row"
)

// margin is how far entries of parallel runs may be out of order.
const margin = time.Minute

// readOnce writes what an entry states, unless its time is between those of the first and last entry that the session has
// from its other form: OpenClaw moves logs to the database. Within the margin an entry is known by its id, as are all of
// a short session; of a long one not all ids are remembered.
func readOnce(w *chat.Writer, entry *pi.Record, first, last string) {
	w.At(core.ParseTime(string(entry.Timestamp)))
	if between(first, w.TS) >= 0 && between(w.TS, last) > margin {
		w.Skip = core.SkipMirror
		return
	}
	dialect.Read(w, entry)
}

// between returns the time from one time of an event to another; 0 if one is empty.
func between(from, to string) time.Duration {
	a, err := time.Parse(time.RFC3339Nano, from)
	b, otherErr := time.Parse(time.RFC3339Nano, to)
	if err != nil || otherErr != nil {
		return 0
	}
	return b.Sub(a)
}
