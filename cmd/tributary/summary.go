package main

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"tributary/cmd/internal/figures"
	"tributary/cmd/internal/printer"
	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
	"tributary/pipeline/events"
	"tributary/pipeline/sessions"
	"tributary/pipeline/sessions/titles"
)

// summary sums up sessions from their events.
type summary struct {
	folds  map[events.SessionID]*sessions.Fold
	unread map[events.SessionID]int64 // dead letters of each session
}

func newSummary() *summary {
	return &summary{folds: map[events.SessionID]*sessions.Fold{}, unread: map[events.SessionID]int64{}}
}

// event adds the next event of a session.
func (s *summary) event(e *events.Event) {
	id := events.SessionID{Source: e.Source, Session: e.SessionID}
	if s.folds[id] == nil {
		s.folds[id] = sessions.NewFold(sessions.WholeSession)
	}
	s.folds[id].Add(new(sessions.NewStep(&e.AgentEventV1, e.Position)))
}

// deadLetter adds a record that could not be read.
func (s *summary) deadLetter(id events.SessionID) { s.unread[id]++ }

// count is the number of sessions.
func (s *summary) count() int {
	n := len(s.folds)
	for id := range s.unread {
		if s.folds[id] == nil {
			n++
		}
	}
	return n
}

// views returns the sessions in the order of their first events, pinned ones first. set has the titles and pins that
// users set.
func (s *summary) views(now time.Time, set map[titles.Key]titles.Session) []sessionView {
	list := make([]sessionView, 0, s.count())
	for id, fold := range s.folds {
		list = append(list, sessionView{Summary: fold.Summary(now), unread: s.unread[id]})
	}
	for id, unread := range s.unread {
		if s.folds[id] == nil {
			list = append(list, sessionView{Summary: sessions.Summary{Source: id.Source, Session: id.Session, Activity: sessions.Activity{State: sessions.Idle, Phase: sessions.PhaseNone}}, unread: unread})
		}
	}
	for i := range list {
		stored := set[titles.Key{Source: list[i].Source, SessionID: list[i].Session}]
		list[i].set(&stored)
	}
	slices.SortFunc(list, func(a, b sessionView) int {
		return cmp.Or(comparePins(&a, &b), a.FirstSeen.Compare(b.FirstSeen), cmp.Compare(a.Source, b.Source), cmp.Compare(a.Session, b.Session))
	})
	return list
}

// rowsAtMost limits the rows of a summary, if up did not print all events.
const rowsAtMost = 20

// write prints the sessions as a table, only the last ones if there are more than rows, 0 for all, and the total of all
// sessions, with costs if pricing is not nil. set has the titles and pins that users set.
func (s *summary) write(p *printer.Pretty, set map[titles.Key]titles.Session, pricing *figures.Pricing, now time.Time, rows int) error {
	list := s.views(now, set)
	shown := lastRows(list, rows)
	ids := make([]string, len(list))
	for i := range list {
		ids[i] = terminal.OneLine(list[i].Session)
	}
	t := sessionTable(shown, ids, pricing, now, p.Width())
	t.Style = func(line string) string { return p.Style(terminal.Bold, line) }
	total := totalOf(list)
	if len(list) > 1 {
		t.Foot = sessionFoot(t, total, list, pricing)
	}
	var b bytes.Buffer
	b.WriteByte('\n')
	if err := t.Write(&b, p.Width()); err != nil {
		return err
	}
	b.WriteByte('\n')
	line := func(name, list string) {
		if list != "" {
			writeList(&b, name, list, p.Width())
		}
	}
	var kinds []string
	for _, kind := range envelopes.EventTypes {
		if n := total.Types[kind]; n > 0 {
			kinds = append(kinds, fmt.Sprintf("%s %s", kind, terminal.Thousands(n)))
		}
	}
	if more := len(list) - len(shown); more > 0 {
		line("sessions", terminal.Thousands(int64(len(list)))+": the last "+terminal.Thousands(int64(rows))+" are shown")
	}
	line("events", terminal.Thousands(total.Events)+": "+strings.Join(kinds, ", "))
	line("tools", toolText(total.Tools))
	line("tokens", tokenText(&total.Usage))
	if total.unread > 0 {
		line("dead letters", terminal.Thousands(total.unread)+": tributary dlq ls lists them")
	}
	if pricing != nil {
		reportPrices(&b, pricing, list)
	}
	_, err := p.Write(b.Bytes())
	return err
}

// lastRows returns at most rows sessions of a list, 0 for all: the pinned ones, and the last others.
func lastRows(list []sessionView, rows int) []sessionView {
	if rows == 0 || len(list) <= rows {
		return list
	}
	pinned := 0
	for pinned < rows && list[pinned].Pinned {
		pinned++
	}
	return slices.Concat(list[:pinned], list[len(list)-rows+pinned:])
}

// totalOf sums up sessions.
func totalOf(list []sessionView) *sessionView {
	total := &sessionView{Summary: sessions.Summary{Types: map[envelopes.EventType]int64{}}}
	tools := map[string]*sessions.ToolUse{}
	for i := range list {
		v := &list[i]
		for kind, n := range v.Types {
			total.Types[kind] += n
		}
		for _, u := range v.Tools {
			if tools[u.Tool] == nil {
				tools[u.Tool] = &sessions.ToolUse{Tool: u.Tool}
			}
			tools[u.Tool].Calls += u.Calls
			tools[u.Tool].Failures += u.Failures
		}
		total.Usage.Add(v.Usage)
		total.Events += v.Events
		total.Calls += v.Calls
		total.Failures += v.Failures
		total.Errors += v.Errors
		total.ActiveMS += v.ActiveMS
		total.unread += v.unread
	}
	for _, u := range tools {
		total.Tools = append(total.Tools, *u)
	}
	slices.SortFunc(total.Tools, func(a, b sessions.ToolUse) int {
		return cmp.Or(cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.Tool, b.Tool))
	})
	return total
}

// writeList writes a comma-separated list in lines of at most width columns beside its name. It breaks a part that is
// longer than a line between words.
func writeList(b *bytes.Buffer, name, list string, width int) {
	const indent = 14
	line := terminal.Pad(name, indent)
	empty := true
	var add func(text, end string)
	add = func(text, end string) {
		words := strings.TrimRight(text, " ")
		switch {
		case terminal.WidthOf(line+words) <= width:
		case end != " " && terminal.WidthOf(words) > width-indent:
			for word := range strings.SplitAfterSeq(text, " ") {
				add(word, " ")
			}
			return
		case !empty:
			b.WriteString(strings.TrimRight(line, " ") + "\n")
			line = terminal.Pad("", indent)
		}
		line += text
		empty = false
	}
	for part := range strings.SplitAfterSeq(list, ", ") {
		add(part, ", ")
	}
	b.WriteString(strings.TrimRight(line, " ") + "\n")
}

// toolText lists tools and how many of their calls failed.
func toolText(tools []sessions.ToolUse) string {
	parts := make([]string, len(tools))
	for i, u := range tools {
		parts[i] = terminal.OrDash(u.Tool) + " " + terminal.Thousands(u.Calls)
		if u.Failures > 0 {
			parts[i] += fmt.Sprintf(" (%s failed)", terminal.Thousands(u.Failures))
		}
	}
	return strings.Join(parts, ", ")
}

// tokenText lists the parts of the tokens, which never overlap.
func tokenText(u *sessions.Tokens) string {
	if u.Total == 0 {
		return ""
	}
	var parts []string
	for _, part := range []struct {
		name string
		n    int64
	}{{"input", u.Input}, {"cache read", u.CacheRead}, {"cache write", u.CacheWrite}, {"output", u.Output}, {"reasoning", u.Reasoning}} {
		if part.n > 0 {
			parts = append(parts, part.name+" "+terminal.Thousands(part.n))
		}
	}
	return terminal.Thousands(u.Total) + ": " + strings.Join(parts, ", ")
}
