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

// Perturb inserts lines of garbage and records of unknown types between records of the file, and returns what else
// changes. A line of garbage adds one dead letter. An unknown record adds its one meta event, after which the numbers of
// records and events are higher by one. The first line is inserted at a position, the others as far from it and from
// each other as can be: over all positions, each gets every one of its lines. These are some of each kind, others at
// each position; all of them if [MaxPositions] is 0.
func (l *Log) Perturb(position int) error {
	for _, list := range l.insertions(position) {
		if err := l.perturb(list); err != nil {
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

// insertion is a line to insert before a line of the file.
type insertion struct {
	start     int
	of        string // the line without a session and a time
	line      string
	isGarbage bool
}

func (i insertion) String() string { return fmt.Sprintf("line %d: %q", i.start+1, i.line) }

// insertions spreads lines over the file. A list has no position twice, and no line, which can be a duplicate of the
// first.
func (l *Log) insertions(position int) [][]insertion {
	var lists [][]insertion
	garbage := len(someOf(l.garbage, position))
	n := garbage + len(someOf(l.suite.Unknown, position))
	for i := range n {
		at := (position + i*len(l.starts)/n) % len(l.starts)
		in := insertion{start: l.starts[at], isGarbage: i < garbage}
		if in.isGarbage {
			in.of = someOf(l.garbage, at)[i]
		} else {
			in.of = someOf(l.suite.Unknown, at)[i-garbage]
		}
		in.line = in.of
		if !in.isGarbage && strings.Contains(in.of, "$") {
			session, ts, ok := l.lastBefore(in.start)
			if !ok {
				continue
			}
			in.line = unknownLine(in.of, session, ts)
		}
		fits := slices.IndexFunc(lists, func(list []insertion) bool {
			return !slices.ContainsFunc(list, func(o insertion) bool { return o.start == in.start || o.of == in.of })
		})
		if fits < 0 {
			fits, lists = len(lists), append(lists, nil)
		}
		lists[fits] = append(lists[fits], in)
	}
	for _, list := range lists {
		slices.SortFunc(list, func(a, b insertion) int { return a.start - b.start })
	}
	return lists
}

// perturb inserts lines, and compares. If something else changes with several lines but with none of them alone, it
// names them all.
func (l *Log) perturb(list []insertion) error {
	err := l.inserted(list)
	if err == nil || len(list) < 2 {
		return err
	}
	for i := range list {
		if err := l.inserted(list[i : i+1]); err != nil {
			return err
		}
	}
	return fmt.Errorf("only together, %v: %w", list, err)
}

// inserted inserts lines and returns the first change.
func (l *Log) inserted(list []insertion) error {
	lines := make([][]byte, 0, len(l.lines)+len(list))
	from := 0
	for _, in := range list {
		lines = append(append(lines, l.lines[from:in.start]...), []byte(in.line+"\n"))
		from = in.start
	}
	steps := l.fold(append(lines, l.lines[from:]...))
	for i, in := range slices.Backward(list) {
		line := in.start + i + 1
		extra := slices.IndexFunc(steps, func(s Step) bool { return s.Line == line && string(s.Record.Data) == in.line })
		if extra < 0 {
			return fmt.Errorf("%s: is no record", in)
		}
		s := steps[extra]
		steps = slices.Delete(steps, extra, extra+1)
		if in.isGarbage != s.Failed() {
			return fmt.Errorf("%s: is a dead letter: %t", in, s.Failed())
		}
		if !in.isGarbage {
			if !isOneMeta(s.Result.Events) {
				return fmt.Errorf("%s: yields not one meta event:\n%s", in, Outcomes(s, false))
			}
			renumber(steps, s)
		}
	}
	if err := Differ(l.Steps, steps, false); err != nil {
		return fmt.Errorf("%v: %w", list, err)
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
