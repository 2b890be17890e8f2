package printer

import (
	"cmp"
	"io"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/pipeline/events"
)

// Form is a form of printed events, the value of --as.
type Form string

// The forms.
const (
	AsEvents  Form = "events"
	AsEntries Form = "entries" // envelopes.NormalizedEntry
	AsACP     Form = "acp"     // envelopes.ACPMessage
)

// Forms lists the forms.
var Forms = []Form{AsEvents, AsEntries, AsACP}

// Lines prints events in a form, one JSON object per line. Each session has its own projection. Lines have the order
// of their events. Lines of a projection also have the members source and session_id.
type Lines struct {
	w        io.Writer
	form     Form
	members  Members // of events
	sessions map[events.SessionID]*sessionProjection
	order    []events.SessionID // the sessions by their first event
	clock    uint64

	line []byte // buffer of a line
}

// sessionProjection is the projection of one session in the form of the writer.
type sessionProjection struct {
	entries envelopes.EntryProjection
	acp     envelopes.ACPProjection
	used    uint64 // clock of its last event
}

// maxProjected limits the sessions with a projection. Beyond it the least recently used projection ends; a later
// event of its session begins a new one.
const maxProjected = 1024

// NewLines returns a printer to w. members selects the members of events.
func NewLines(w io.Writer, f Form, members Members) *Lines {
	return &Lines{w: w, form: f, members: members, sessions: map[events.SessionID]*sessionProjection{}}
}

// Reset forgets all sessions and drops their pending messages: the next event is from another log.
func (l *Lines) Reset() {
	clear(l.sessions)
	l.order = nil
}

// Event prints the lines that become complete with an event.
func (l *Lines) Event(e *envelopes.AgentEventV1) error {
	return l.CheckedEvent(e, envelopes.Checked{})
}

// CheckedEvent is [Lines.Event] for an event whose native JSON was partly checked.
func (l *Lines) CheckedEvent(e *envelopes.AgentEventV1, c envelopes.Checked) error {
	if l.form == AsEvents {
		line, err := e.AppendCheckedJSON(l.line[:0], c)
		if err == nil {
			line, err = l.members.apply(line)
		}
		return l.print(line, err)
	}
	key := events.SessionID{Source: e.Source, Session: e.SessionID}
	session, err := l.session(key)
	if err != nil {
		return err
	}
	if l.form == AsACP {
		return l.messages(key, session.acp.Project(e))
	}
	if entry, ok := session.entries.Project(e); ok {
		line, err := entry.AppendJSON(l.line[:0])
		return l.printOf(key, line, err)
	}
	return nil
}

// End prints the incomplete messages: no event follows.
func (l *Lines) End() error {
	for len(l.order) > 0 {
		if err := l.endSession(l.order[0]); err != nil {
			return err
		}
	}
	return nil
}

// session returns the projection of a session.
func (l *Lines) session(key events.SessionID) (*sessionProjection, error) {
	l.clock++
	session := l.sessions[key]
	if session == nil {
		if err := l.makeRoom(); err != nil {
			return nil, err
		}
		session = &sessionProjection{}
		l.sessions[key] = session
		l.order = append(l.order, key)
	}
	session.used = l.clock
	return session, nil
}

// makeRoom ends the least recently used session if there are maxProjected.
func (l *Lines) makeRoom() error {
	if len(l.order) < maxProjected {
		return nil
	}
	return l.endSession(slices.MinFunc(l.order, func(a, b events.SessionID) int {
		return cmp.Compare(l.sessions[a].used, l.sessions[b].used)
	}))
}

// endSession prints the pending messages of a session and forgets it.
func (l *Lines) endSession(key events.SessionID) error {
	session := l.sessions[key]
	delete(l.sessions, key)
	l.order = slices.DeleteFunc(l.order, func(k events.SessionID) bool { return k == key })
	return l.messages(key, session.acp.End())
}

// messages prints messages of a session.
func (l *Lines) messages(key events.SessionID, messages []envelopes.ACPMessage) error {
	for i := range messages {
		line, err := messages[i].MarshalJSON()
		if err := l.printOf(key, line, err); err != nil {
			return err
		}
	}
	return nil
}

// printOf writes a line, a JSON object, with the members that name its session.
func (l *Lines) printOf(key events.SessionID, line []byte, err error) error {
	for _, m := range [...]struct{ name, value string }{{"source", string(key.Source)}, {"session_id", key.Session}} {
		if err == nil {
			line = append(append(append(line[:len(line)-1], `,"`...), m.name...), `":`...)
			line, err = jsontext.AppendQuote(line, m.value)
			line = append(line, '}')
		}
	}
	return l.print(line, err)
}

// print writes a line.
func (l *Lines) print(line []byte, err error) error {
	if err != nil {
		return err
	}
	l.line = append(line, '\n')
	_, err = l.w.Write(l.line)
	return err
}
