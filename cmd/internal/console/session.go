package console

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"tributary/cmd/internal/metadata"
	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
	"tributary/pipeline/events"
	"tributary/pipeline/sessions"
	"tributary/pipeline/sessions/summaries"
	set "tributary/pipeline/sessions/titles"
	"tributary/pipeline/sessions/transcript"
)

// sessionRequest is a request of the pages of a session.
type sessionRequest struct{ *request }

// A page of a session has whole turns, up to pageEvents events, or a part of a longer turn. The events of a page depend
// only on the prompts before them, so that the address of a page stays valid while the session grows.
const (
	pageEvents = 300
	pageBytes  = 16 << 20 // of events that are read for a page
)

// sessionPage is the data of the template "session".
type sessionPage struct {
	*sessionHeading
	Turns    []*turnPart
	Problems []*conversationItem // calls that failed, and errors, on the page
	Changes  []*conversationItem // edits on the page
	Timeline []timelineRow
	First    string // addresses of pages; empty if there is none
	Previous string
	Next     string
	Latest   string
	From, To uint64 // sequences of the events on the page
	Live     string // address of the stream of new events; only on the last page
	Unread   int    // events that cannot be read
	Raw      rawRange
}

// rawRange is the range of the raw records of a page.
type rawRange struct {
	Stream      string
	Partition   int
	First, Last uint64 // sequences in the stream
}

// sessionHeading is the heading of each page of a session.
type sessionHeading struct {
	sessions.Summary

	Name string // its title, or its id
	Path string
	Cost string // empty if no token has a price
	Now  time.Time

	Pinned   bool
	Untitled string // why the title and the pin that users set are unknown; empty if they are known
	Write    bool   // whether title and pin can be set here

	id events.SessionID
}

// ID returns the id of the session.
func (h *sessionHeading) ID() string { return h.id.Session }

// Active returns how long the session was active.
func (h *sessionHeading) Active() time.Duration { return time.Duration(h.ActiveMS) * time.Millisecond }

// StateText returns what the session does.
func (h *sessionHeading) StateText() string { return terminal.OneLine(h.Text()) }

// Badge returns the class of the state.
func (h *sessionHeading) Badge() string { return stateBadges[h.Phase] }

// turnPart is the part of a turn that is on the page, often all of it.
type turnPart struct {
	Number    int
	Facts     *sectionFacts
	Continued bool // it began on an earlier page
	Goes      bool // it continues on the next page
	Trace     string
	Items     []*conversationItem
}

// turnStart is the first event of a turn of the main conversation.
type turnStart struct {
	sequence uint64
	event    string
}

// turnStarts returns the first events of the turns of a session. It reads only prompts.
func turnStarts(ctx context.Context, r *request, generation string, id events.SessionID) ([]turnStart, error) {
	var main, sub []turnStart
	agent := ""
	q := events.Query{Source: id.Source, Session: id.Session, Types: []envelopes.EventType{envelopes.UserMessage}}
	for e, err := range events.Outlines(ctx, r.config.JetStream, generation, q) {
		switch {
		case err != nil && e.Position > 0: // the page of its turn counts it
		case err != nil:
			return nil, err
		case e.Supersedes != "":
		case !e.IsInternal:
			main = append(main, turnStart{e.Sequence, e.EventID})
		case len(sub) == 0 || agent == orZero(e.AgentID):
			agent = orZero(e.AgentID)
			sub = append(sub, turnStart{e.Sequence, e.EventID})
		}
	}
	if len(main) == 0 { // the session belongs to a subagent
		main = sub
	}
	return main, context.Cause(ctx)
}

// pageStarts returns the first sequence of each page of a session that ends with the sequence last.
func pageStarts(turns []turnStart, last uint64) []uint64 {
	starts := []uint64{1}
	page, begin := uint64(1), uint64(1) // of the page and of the turn
	for n := range len(turns) + 1 {
		end := last + 1
		if n < len(turns) {
			end = turns[n].sequence
		}
		if end > page+pageEvents && begin > page {
			page = begin
			starts = append(starts, page)
		}
		for end > page+pageEvents {
			page += pageEvents
			starts = append(starts, page)
		}
		begin = end
	}
	return starts
}

// opened returns the session that the address names, its generation and its heading.
func (r sessionRequest) opened(ctx context.Context) (generation string, id events.SessionID, heading *sessionHeading, err error) {
	if id, err = r.sessionID(); err != nil {
		return "", id, nil, err
	}
	if generation, err = r.generation(ctx); err != nil {
		return "", id, nil, err
	}
	heading, err = r.heading(ctx, generation, id)
	return generation, id, heading, err
}

// session answers with a page of the conversation of a session.
func (r sessionRequest) session() error {
	ctx := r.Context()
	generation, id, heading, err := r.opened(ctx)
	if err != nil {
		return err
	}
	turns, err := turnStarts(ctx, r.request, generation, id)
	if err != nil {
		return err
	}
	turns = turns[:turnsBefore(turns, heading.Sequence+1)] // events that came after the heading was read are left out
	starts := pageStarts(turns, heading.Sequence)
	query := r.URL.Query()
	if query.Has("at") {
		at, err := sequenceOf("at", query.Get("at"))
		if err != nil {
			return err
		}
		return r.seeOther(heading.Path + "?from=" + strconv.FormatUint(starts[pageAt(starts, at)], 10) + "#" + anchorOf(at))
	}
	from := uint64(1)
	switch value := query.Get("from"); value {
	case "":
	case "last":
		from = starts[len(starts)-1]
	default:
		if from, err = sequenceOf("from", value); err != nil {
			return err
		}
	}
	p := &sessionPage{sessionHeading: heading}
	if err := r.readPage(ctx, p, generation, turns, starts, from); err != nil {
		return err
	}
	if query.Get("part") == "live" { // for the script that follows the session
		parts := map[string]string{}
		for _, block := range []string{"heading", "turns"} {
			if parts[block], err = r.fragment("session", block, p); err != nil {
				return err
			}
		}
		return r.json(parts)
	}
	return r.page("session", heading.Name, p)
}

// heading reads the heading of a session. A session without events is not found.
func (r sessionRequest) heading(ctx context.Context, generation string, id events.SessionID) (*sessionHeading, error) {
	view, err := summaries.Open(ctx, r.config.JetStream, generation, func(error) {}) // the page that has the event counts it
	if err != nil {
		return nil, err
	}
	fold, err := view.Session(ctx, id)
	if err != nil {
		return nil, err
	}
	h := &sessionHeading{Summary: fold.Summary(r.now), Path: sessionPath(id.Source, id.Session), Now: r.now, id: id}
	if h.Events == 0 {
		return nil, notFound("there is no such session in generation "+generation, "choose one in the list of sessions")
	}
	h.FirstSeen, h.LastSeen = h.FirstSeen.In(r.filter.Zone), h.LastSeen.In(r.filter.Zone)
	h.Write = r.config.Write
	h.setTitle(ctx, r.request)
	h.Name = cmp.Or(terminal.OneLine(h.Title), terminal.OneLine(id.Session))
	models := map[string]*sessions.Billed{}
	for _, m := range h.Models {
		models[m.Model] = &sessions.Billed{Usage: m.Tokens.Usage(), Large: m.Large}
	}
	h.Cost = r.costOf(models)
	return h, nil
}

// titleWait bounds the wait for a title and a pin; pages are shown without them.
const titleWait = time.Second

// storedTitle asks for the title and the pin that users set for a session.
func (c *Console) storedTitle(ctx context.Context, id events.SessionID) (stored set.Session, err error) {
	ctx, cancel := context.WithTimeout(ctx, titleWait)
	defer cancel()
	err = metadata.Ask(ctx, c.config.JetStream.Conn(), "get", metadata.Request{Source: id.Source, SessionID: id.Session}, &stored)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = errors.New("no worker has answered within " + titleWait.String() + ": load the page again")
	}
	return stored, err
}

// setTitle sets the title and the pin that users set.
func (h *sessionHeading) setTitle(ctx context.Context, r *request) {
	stored, err := r.storedTitle(ctx, h.id)
	if err != nil {
		h.Untitled = err.Error()
		return
	}
	h.Pinned = stored.Pinned
	if stored.Title != "" {
		h.Title, h.TitleSource = stored.Title, sessions.TitleSource(stored.TitleSource)
	}
}

// costOf returns the cost of tokens, empty if none of them has a price.
func (r sessionRequest) costOf(models map[string]*sessions.Billed) string {
	c := r.config.Pricing.Cost(models)
	if !c.Priced || len(models) == 0 {
		return ""
	}
	return c.Text()
}

// sequenceOf parses a sequence of the query.
func sequenceOf(name, value string) (uint64, error) {
	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil || n == 0 {
		return 0, invalid(name+" is no number of an event", "write a number from 1 on")
	}
	return n, nil
}

// pageAt returns the index of the page with a sequence.
func pageAt(starts []uint64, sequence uint64) int {
	n, found := slices.BinarySearch(starts, sequence)
	if !found {
		n--
	}
	return max(n, 0)
}

// readPage reads the page that begins at a sequence.
func (r sessionRequest) readPage(ctx context.Context, p *sessionPage, generation string, turns []turnStart, starts []uint64, from uint64) error {
	n := pageAt(starts, from)
	end := p.Sequence + 1 // the first sequence of the next page
	if n+1 < len(starts) {
		end = starts[n+1]
	}
	w := newWindow(r.request, generation, p.id, from, end)
	if before := turnsBefore(turns, from); before > 0 {
		w.begin(turns[before-1])
	}
	t, err := transcript.Read(w.events(ctx), "")
	if err != nil {
		return err
	}
	if err := w.findCalls(ctx); err != nil {
		return errors.Join(err, t.Close())
	}
	p.From, p.To, p.Unread = from, w.last, w.unread
	at := func(sequence uint64) string { return p.Path + "?from=" + strconv.FormatUint(sequence, 10) }
	if n > 0 || from > starts[n] {
		p.First = p.Path
		p.Previous = at(starts[max(n-1, 0)])
		if from > starts[n] {
			p.Previous = at(starts[n])
		}
	}
	if w.last < p.Sequence && w.last > 0 {
		p.Next, p.Latest = at(w.last+1), p.Path+"?from=last"
	} else {
		p.Live = p.Path + "/live?after=" + strconv.FormatUint(max(w.last, p.Sequence), 10)
	}
	err = r.fillPage(p, w, t, turns)
	return errors.Join(err, t.Close())
}

// fillPage adds the turns to the page.
func (r sessionRequest) fillPage(p *sessionPage, w *window, t *transcript.Transcript, turns []turnStart) error {
	before := turnsBefore(turns, p.From)
	traces := w.traces(turns)
	c := &conversationPage{session: p.id, zone: r.filter.Zone, left: shownTogether, calls: w.byCall, shown: map[uint64]bool{}, goesOn: w.last < p.Sequence}
	for _, turn := range t.Turns() {
		part := &turnPart{Number: before + turn.Number, Facts: factsOf(&turn.Section)}
		begin, end := uint64(1), p.Sequence+1 // sequences of the turn
		if part.Number > 0 {
			begin = turns[min(part.Number, len(turns))-1].sequence
		}
		if part.Number < len(turns) {
			end = turns[part.Number].sequence
		}
		part.Continued, part.Goes = begin < p.From, end > w.last+1
		part.Facts.Cost = r.costOf(turn.Models)
		part.Facts.Context = w.context(begin, end)
		part.Facts.Begin = part.Facts.Begin.In(r.filter.Zone)
		part.Trace = traces[part.Number]
		var err error
		if part.Items, err = c.items(t, turn.Number); err != nil {
			return err
		}
		p.Turns = append(p.Turns, part)
		p.note(part.Items)
	}
	c.addOthers(w.places)
	p.Timeline = w.calls.rows(func(sequence uint64) string { return "#" + anchorOf(sequence) })
	p.Raw = w.raw
	return nil
}

// turnsBefore returns how many turns begin before a sequence.
func turnsBefore(turns []turnStart, sequence uint64) int {
	n, _ := slices.BinarySearchFunc(turns, sequence, func(s turnStart, sequence uint64) int { return cmp.Compare(s.sequence, sequence) })
	return n
}

// note collects failed calls, errors and edits, which the page links to.
func (p *sessionPage) note(items []*conversationItem) {
	for _, i := range items {
		switch i.Class {
		case "failed":
			p.Problems = append(p.Problems, i)
		case "edit":
			p.Changes = append(p.Changes, i)
		}
		p.note(i.Children)
	}
}
