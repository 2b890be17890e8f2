package transcript

import (
	"cmp"
	"errors"
	"iter"
	"time"

	"tributary/envelopes"
)

// Transcript is the conversation of one session. It is not safe for concurrent use.
type Transcript struct {
	spool spool
	turns []*section
}

// section is a [Section] with the places of its items.
type section struct {
	Section
	thread   thread
	items    []entry
	prompted bool               // it begins with a prompt
	spoken   bool               // it has an item that is not noise
	parent   *section           // for a subagent
	children map[int][]*section // subagents by the item that began them
}

// thread is a line of conversation: the main one, or that of a subagent.
type thread struct {
	internal bool
	agent    string
}

// entry is the place of an item and its time.
type entry struct {
	place
	at int64 // nanoseconds since 1970; 0 if unknown
}

// Read makes the conversation from the events of one session, which must be in order. It stops at the first error.
// What does not fit in memory goes to a temporary file in dir, or in the system's folder if dir is empty;
// [Transcript.Close] removes it.
func Read(events iter.Seq2[*envelopes.AgentEventV1, error], dir string) (*Transcript, error) {
	r := &reader{Transcript: &Transcript{spool: spool{dir: dir}}, threads: map[thread][]*section{}, links: newLinks()}
	for e, err := range events {
		if err == nil {
			err = r.add(e)
		}
		if err != nil {
			return nil, errors.Join(err, r.Close())
		}
	}
	if err := r.finish(); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r.Transcript, nil
}

// Close removes the temporary file.
func (t *Transcript) Close() error { return t.spool.close() }

// first is the number of the first turn.
func (t *Transcript) first() int {
	if len(t.turns) > 0 && t.turns[0].prompted {
		return 1
	}
	return 0
}

// Turns returns the turns in order, without their items.
func (t *Transcript) Turns() []Turn {
	turns := make([]Turn, len(t.turns))
	for i, s := range t.turns {
		turns[i] = Turn{t.first() + i, s.Section}
	}
	return turns
}

// Items iterates over the items of a turn; the work of a subagent follows the call that began it. It stops at the
// first error.
func (t *Transcript) Items(turn int) iter.Seq2[*Item, error] {
	return func(yield func(*Item, error) bool) {
		if n := turn - t.first(); n >= 0 && n < len(t.turns) {
			t.each(t.turns[n], turn, 0, yield)
		}
	}
}

// each yields the items of a section. It returns false if yield did.
func (t *Transcript) each(s *section, turn, depth int, yield func(*Item, error) bool) bool {
	if !t.subagents(s.children[atBegin], turn, depth+1, yield) {
		return false
	}
	for n, e := range s.items {
		i, err := t.spool.get(e.place)
		if err != nil {
			yield(nil, err)
			return false
		}
		i.Turn, i.Depth = turn, depth
		if !yield(i, nil) || !t.subagents(s.children[n], turn, depth+1, yield) {
			return false
		}
	}
	return true
}

// subagents yields the headings and the items of subagents.
func (t *Transcript) subagents(list []*section, turn, depth int, yield func(*Item, error) bool) bool {
	for _, s := range list {
		heading := &Item{Type: Subagent, Turn: turn, Depth: depth, Agent: s.thread.agent, Section: &s.Section}
		if !yield(heading, nil) || !t.each(s, turn, depth, yield) {
			return false
		}
	}
	return true
}

// reader makes a transcript.
type reader struct {
	*Transcript
	entries  envelopes.EntryProjection
	byEntry  []location // items of entries, by index of the entry
	last     *Item      // item that changed last, which is not in the spool; nil for none
	lastAt   location
	threads  map[thread][]*section
	sections []*section // in order of their first events
	links    links
	model    string // last model used
	begun    string // first model used
}

// location is an item of a section.
type location struct {
	section *section
	item    int
}

// add adds the next event.
func (r *reader) add(e *envelopes.AgentEventV1) error {
	n, shown := r.entries.Project(e)
	if shown && n.Index < len(r.byEntry) {
		return r.complete(r.byEntry[n.Index], e, &n)
	}
	if at, ok := r.links.result(e); ok { // a log may have a result before its call
		r.byEntry = append(r.byEntry, at)
		return r.complete(at, e, &n)
	}
	s := r.sectionOf(e)
	at := location{s, len(s.items)}
	if err := r.begin(at, newItem(e)); err != nil {
		return err
	}
	when := int64(0)
	if t, err := e.Timestamp(); err == nil {
		when = t.UnixNano()
	}
	s.items = append(s.items, entry{at: when})
	if !shown {
		return r.change(at, e, nil)
	}
	r.byEntry = append(r.byEntry, at)
	return r.change(at, e, &n)
}

// sectionOf returns the section of an event that begins an item. A prompt begins a section, unless the present
// section of its thread only has noise.
func (r *reader) sectionOf(e *envelopes.AgentEventV1) *section {
	key := thread{internal: e.IsInternal}
	if e.IsInternal {
		key.agent = value(e.AgentID)
	}
	list := r.threads[key]
	prompts := e.EventType == envelopes.UserMessage
	if n := len(list); n > 0 && (!prompts || n == 1 && !list[0].prompted && !list[0].spoken) {
		s := list[n-1]
		if prompts {
			s.prompted, s.Begin = true, time.Time{}
			s.Copied = e.Origin == envelopes.OriginCopied
		}
		return s
	}
	s := &section{thread: key, prompted: prompts}
	s.Copied = prompts && e.Origin == envelopes.OriginCopied
	r.threads[key] = append(list, s)
	r.sections = append(r.sections, s)
	return s
}

// begin makes i the item that changed last.
func (r *reader) begin(at location, i *Item) error {
	err := r.flush()
	r.last, r.lastAt = i, at
	return err
}

// flush moves the item that changed last to the spool.
func (r *reader) flush() error {
	if r.last == nil {
		return nil
	}
	at, err := r.spool.put(r.last)
	r.lastAt.section.items[r.lastAt.item].place = at
	r.last = nil
	return err
}

// complete updates an item with a later event of its entry.
func (r *reader) complete(at location, e *envelopes.AgentEventV1, n *envelopes.NormalizedEntry) error {
	if r.last == nil || r.lastAt != at {
		if err := r.flush(); err != nil {
			return err
		}
		i, err := r.spool.get(at.section.items[at.item].place)
		if err != nil {
			return err
		}
		r.last, r.lastAt = i, at
	}
	s, i := at.section, r.last
	s.count(i, -1)
	return r.change(at, e, n)
}

// change adds an event to its item, which must be the last one, and to the sums of its section. n is nil for an event
// without an entry.
func (r *reader) change(at location, e *envelopes.AgentEventV1, n *envelopes.NormalizedEntry) error {
	s, i := at.section, r.last
	if n != nil {
		i.take(e, n)
	}
	s.count(i, 1)
	s.spoken = s.spoken || Speaks(e)
	if t, err := e.Timestamp(); err == nil {
		if s.Begin.IsZero() || t.Before(s.Begin) {
			s.Begin = t
		}
		if t.After(s.End) {
			s.End = t
		}
	}
	if e.Metadata != nil {
		r.model = cmp.Or(value(e.Metadata.Model), r.model)
	}
	r.model = cmp.Or(value(e.Model), r.model)
	r.begun = cmp.Or(r.begun, r.model)
	if e.Usage != nil {
		s.billed(r.model).Add(e.Usage)
	}
	r.links.note(e, at)
	return nil
}
