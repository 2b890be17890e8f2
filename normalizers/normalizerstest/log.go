package normalizerstest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"tributary/envelopes"
	"tributary/normalizers"
)

// Log is a file whose records are lines, and what it yields. Tests insert lines to see what they change.
type Log struct {
	Steps []Step // the records of the file

	suite  Suite
	file   normalizers.File
	lines  [][]byte
	starts []int // indexes of lines before which a record begins or the file ends

	garbage []string // lines that no normalizer of the vendor can read
}

// openEnded are lines that begin like a document over several lines.
var openEnded = []string{
	`[1,2,`,
	`{"type":"user","message":{"content":[`,
	`{"timestamp":"2026-03-01T10:00:0`,
	`{`,
}

// NewLog reads a file. It returns false if no line can be inserted between records, because the file is a document
// rewritten in place, plain text, or a stream of server-sent events.
func NewLog(s Suite, file normalizers.File, data []byte) (*Log, bool) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")) // nothing can precede it
	l := &Log{suite: s, file: file, garbage: garbageOf(s), lines: bytes.SplitAfter(data, []byte("\n"))}
	if last := len(l.lines) - 1; len(l.lines[last]) == 0 {
		l.lines = l.lines[:last]
	} else {
		l.lines[last] = append(slices.Clone(l.lines[last]), '\n')
	}
	l.Steps = l.fold(l.lines)
	for _, st := range l.Steps {
		switch o := st.Record.Origin; {
		case o.End:
			continue
		case o.Digest != "", bytes.HasSuffix(st.Record.Data, []byte("\n")), bytes.HasPrefix(l.lines[st.Line-1], []byte("data:")):
			return nil, false
		}
		if len(l.starts) == 0 || l.starts[len(l.starts)-1] != st.Line-1 {
			l.starts = append(l.starts, st.Line-1)
		}
	}
	if len(l.Steps) == 0 {
		return nil, false // an empty file has not even an end
	}
	l.starts = append(l.starts, len(l.lines))
	return l, true
}

func (l *Log) fold(lines [][]byte) []Step {
	return Fold(normalizers.Normalize, Frame(l.file, bytes.Join(lines, nil)))
}

// garbageOf returns lines that no normalizer of the vendor can read.
func garbageOf(s Suite) []string {
	var out []string
	framing := normalizers.VendorOf(s.Source).Framing
	if !framing.PlainLines {
		out = append(out, openEnded...)
	}
	if framing.PrintedText != nil {
		out = append(out, "not json at all", "%PDF-1.7\xff\xfe", `"type":"user"}`, "}")
	}
	const most = 1 << 10 // a longer one takes too long for every position
	for _, bad := range s.Bad {
		if statesNothing := bad[0] != '{' || !json.Valid(bad); statesNothing && len(bad) <= most {
			out = append(out, string(bad))
		}
	}
	return out
}

// Positions returns in how many places a line can be inserted.
func (l *Log) Positions() int { return len(l.starts) }

// Perturb inserts a line of garbage, and a record of an unknown type, between two records of the file, and returns
// what else changes. A line of garbage adds one dead letter. An unknown record adds its one meta event, after which
// the numbers of records and events are higher by one. It tries some lines of each kind, others at each position; all
// of them if [MaxPositions] is 0.
func (l *Log) Perturb(position int) error {
	for _, line := range someOf(l.garbage, position) {
		if err := l.perturb(position, line, true); err != nil {
			return err
		}
	}
	for _, line := range someOf(l.suite.Unknown, position) {
		if err := l.perturb(position, line, false); err != nil {
			return err
		}
	}
	return nil
}

// someOf returns the lines to try in a position.
func someOf(lines []string, position int) []string {
	const some = 3
	if MaxPositions == 0 || len(lines) <= some {
		return lines
	}
	out := make([]string, some)
	for i := range out {
		out[i] = lines[(position+i*len(lines)/some)%len(lines)]
	}
	return out
}

// perturb inserts a line before the record at an index of starts, and compares.
func (l *Log) perturb(position int, line string, isGarbage bool) error {
	start := l.starts[position]
	if strings.Contains(line, "$") {
		session, at, ok := l.lastBefore(start)
		if !ok {
			return nil
		}
		line = unknownLine(line, session, at)
	}
	id := fmt.Sprintf("line %d: %q", start+1, line)
	steps := l.fold(slices.Insert(slices.Clone(l.lines), start, []byte(line+"\n")))
	extra := slices.IndexFunc(steps, func(s Step) bool { return s.Line == start+1 && string(s.Record.Data) == line })
	if extra < 0 {
		return fmt.Errorf("%s: is no record", id)
	}
	s := steps[extra]
	steps = slices.Delete(steps, extra, extra+1)
	if isGarbage != s.Failed() {
		return fmt.Errorf("%s: is a dead letter: %t", id, s.Failed())
	}
	if !isGarbage {
		if !isOneMeta(s.Result.Events) {
			return fmt.Errorf("%s: yields not one meta event:\n%s", id, Outcomes(s, false))
		}
		renumber(steps, s)
	}
	if err := Differ(l.Steps, steps, false); err != nil {
		return fmt.Errorf("%s: %w", id, err)
	}
	return nil
}

// Litter inserts a line of garbage before every n-th record of the file, and returns what changes besides the dead
// letters. The lines differ from place to place.
func (l *Log) Litter(n int) error {
	var lines [][]byte
	litter := make(map[int]bool) // lines, from 1
	from := 0
	for i, start := range l.starts {
		lines = append(lines, l.lines[from:start]...)
		from = start
		if i%n == 0 {
			lines = append(lines, []byte(l.garbage[(i/n+i)%len(l.garbage)]+"\n"))
			litter[len(lines)] = true
		}
	}
	lines = append(lines, l.lines[from:]...)
	steps := l.fold(lines)
	kept := slices.DeleteFunc(slices.Clone(steps), func(s Step) bool { return litter[s.Line] && s.Failed() })
	if dead := len(steps) - len(kept); dead != len(litter) {
		return fmt.Errorf("%d dead letters of %d lines of garbage", dead, len(litter))
	}
	return Differ(l.Steps, kept, false)
}

// lastBefore returns the session and the time of the last event before a line, or false unless its record is the last
// one before the line and states both.
func (l *Log) lastBefore(start int) (session string, at time.Time, ok bool) {
	var ts string
	var framed time.Time
	for _, s := range l.Steps {
		if s.Record.Origin.End || s.Line > start {
			break
		}
		session, ts, framed = s.Record.Session, "", s.Record.Origin.Time
		if n := len(s.Result.Events); n > 0 {
			ts = s.Result.Events[n-1].Event.TS
		}
		if !bytes.Contains(s.Record.Data, []byte(strconv.Quote(session))) || !bytes.Contains(s.Record.Data, []byte(ts)) {
			ts = ""
		}
	}
	at, err := time.Parse("2006-01-02T15:04:05.000Z", ts)
	return session, at, err == nil && at.Equal(framed)
}

// renumber reverts what an extra record changes in the later events of its session: their positions, and ids that are
// record numbers.
func renumber(steps []Step, extra Step) {
	n := 1 // the number of the extra record in its session
	for _, s := range steps {
		if s.Record.Session == extra.Record.Session && s.Line < extra.Line && s.Err == nil && !s.Record.Origin.End {
			n++
		}
	}
	event := extra.Result.Events[0].Event
	back := func(id string) string { return backID(id, n) }
	for _, s := range steps {
		if s.Record.Session != event.SessionID {
			continue
		}
		for i := range s.Result.Events {
			renumberEvent(&s.Result.Events[i].Event, event.Sequence, back)
		}
	}
}

// renumberEvent reverts this in one event.
func renumberEvent(e *envelopes.AgentEventV1, sequence uint64, back func(string) string) {
	e.EventID, e.Supersedes = back(e.EventID), back(e.Supersedes)
	for _, id := range []**string{&e.ParentEventID, &e.ToolCallID} {
		if *id != nil {
			*id = new(back(**id))
		}
	}
	if e.Usage != nil {
		usage := *e.Usage
		usage.Key = back(usage.Key)
		e.Usage = &usage
	}
	if e.Sequence > sequence {
		e.Sequence--
	}
}

// backID returns an id as it would be without the n-th record, if the id begins with the number of a later record.
func backID(id string, n int) string {
	number := strings.TrimPrefix(id, "@")
	digits := len(number) - len(strings.TrimLeft(number, "0123456789"))
	m, err := strconv.Atoi(number[:digits])
	if err != nil || number == id || m <= n {
		return id
	}
	return "@" + strconv.Itoa(m-1) + number[digits:]
}
