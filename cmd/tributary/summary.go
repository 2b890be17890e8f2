package main

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tributary/envelopes"
)

// summary sums up the events of sessions.
type summary struct {
	sessions map[sessionKey]*sessionSummary
}

// sessionSummary sums up the events of one session, or of all.
type sessionSummary struct {
	project     string
	name        string // that the agent gave the session
	prompt      string // the first one
	models      map[string]int
	first, last time.Time // of its events; zero if they have no times
	events      map[envelopes.EventType]int
	tools       map[string]int // calls by name
	failures    map[string]int // results with an error, by name of the tool
	usage       envelopes.Usage
	unread      int // dead letters
}

// longestName is the length from which a session_summary is no name of the session: some agents
// sum up a whole conversation in it.
const longestName = 160

func newSessionSummary() *sessionSummary {
	return &sessionSummary{models: map[string]int{}, events: map[envelopes.EventType]int{}, tools: map[string]int{}, failures: map[string]int{}}
}

// of returns the summary of a session.
func (s *summary) of(key sessionKey) *sessionSummary {
	if s.sessions == nil {
		s.sessions = map[sessionKey]*sessionSummary{}
	}
	of := s.sessions[key]
	if of == nil {
		of = newSessionSummary()
		s.sessions[key] = of
	}
	return of
}

// event adds an event.
func (s *summary) event(e *envelopes.AgentEventV1) {
	of := s.of(sessionKey{e.Source, e.SessionID})
	of.events[e.EventType]++
	if e.ProjectRoot != nil {
		of.project = *e.ProjectRoot
	}
	if e.Model != nil {
		of.models[*e.Model]++
	}
	if e.Text != nil && *e.Text != "" {
		switch {
		case e.EventType == envelopes.SessionSummary && len(*e.Text) <= longestName && !strings.Contains(*e.Text, "\n"):
			of.name = *e.Text
		case e.EventType == envelopes.UserMessage && of.prompt == "" && !e.IsInternal:
			of.prompt = *e.Text
		}
	}
	if at, err := e.Timestamp(); err == nil {
		of.during(at, at)
	}
	if e.ToolName != nil {
		switch {
		case e.EventType == envelopes.ToolCall:
			of.tools[*e.ToolName]++
		case failed(e):
			of.failures[*e.ToolName]++
		}
	}
	if e.Usage != nil {
		of.use(e.Usage)
	}
}

// use adds tokens.
func (of *sessionSummary) use(u *envelopes.Usage) {
	of.usage.Input += u.Input
	of.usage.CacheRead += u.CacheRead
	of.usage.CacheWrite += u.CacheWrite
	of.usage.Output += u.Output
	of.usage.Reasoning += u.Reasoning
}

// during extends the time of the session.
func (of *sessionSummary) during(first, last time.Time) {
	if of.first.IsZero() || first.Before(of.first) {
		of.first = first
	}
	if last.After(of.last) {
		of.last = last
	}
}

// title is what the session is about: the name that the agent gave it, else its first prompt.
func (of *sessionSummary) title() string { return oneLine(cmp.Or(of.name, of.prompt)) }

// model is the model of most events, and how many others there are.
func (of *sessionSummary) model() string {
	names := byCount(of.models)
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return fmt.Sprintf("%s +%d", names[0], len(names)-1)
}

// count is the number of events.
func (of *sessionSummary) count() int {
	n := 0
	for _, k := range of.events {
		n += k
	}
	return n
}

// byCount lists names, those with the highest count first.
func byCount(counts map[string]int) []string {
	return slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
}

// deadLetters adds records that could not be read.
func (s *summary) deadLetters(session sessionKey, n int) {
	if n > 0 {
		s.of(session).unread += n
	}
}

// total sums up all sessions.
func (s *summary) total() *sessionSummary {
	total := newSessionSummary()
	for _, of := range s.sessions {
		for _, counts := range []struct{ to, from map[string]int }{{total.models, of.models}, {total.tools, of.tools}, {total.failures, of.failures}} {
			for name, n := range counts.from {
				counts.to[name] += n
			}
		}
		for t, n := range of.events {
			total.events[t] += n
		}
		total.use(&of.usage)
		total.unread += of.unread
	}
	return total
}

// write prints the sessions as a table of a width, and what they have in total.
func (s *summary) write(p *printer) error {
	var b bytes.Buffer
	b.WriteByte('\n')
	s.table(&b, p)
	b.WriteByte('\n')
	total := s.total()
	line := func(name, list string) {
		if list != "" {
			writeList(&b, name, list, p.width)
		}
	}
	var kinds []string
	for _, t := range envelopes.EventTypes {
		if n := total.events[t]; n > 0 {
			kinds = append(kinds, fmt.Sprintf("%s %s", t, thousands(int64(n))))
		}
	}
	line("events", thousands(int64(total.count()))+": "+strings.Join(kinds, ", "))
	line("tools", total.toolText())
	line("tokens", total.tokenText())
	if total.unread > 0 {
		line("dead letters", thousands(int64(total.unread))+": tributary dlq ls lists them")
	}
	_, err := p.w.Write(b.Bytes())
	return err
}

// writeList writes a list with commas below each other in lines of a width, beside its name. A
// part that is too long for a line is broken between words.
func writeList(b *bytes.Buffer, name, list string, width int) {
	const indent = 14
	line := pad(name, indent)
	empty := true
	var add func(text, end string)
	add = func(text, end string) {
		words := strings.TrimRight(text, " ")
		switch {
		case terminalWidth.String(line+words) <= width:
		case end != " " && terminalWidth.String(words) > width-indent:
			for word := range strings.SplitAfterSeq(text, " ") {
				add(word, " ")
			}
			return
		case !empty:
			b.WriteString(strings.TrimRight(line, " ") + "\n")
			line = pad("", indent)
		}
		line += text
		empty = false
	}
	for part := range strings.SplitAfterSeq(list, ", ") {
		add(part, ", ")
	}
	b.WriteString(strings.TrimRight(line, " ") + "\n")
}

// toolText lists the tools, the most used first, with the count of their errors.
func (of *sessionSummary) toolText() string {
	names := byCount(of.tools)
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = oneLine(name) + " " + thousands(int64(of.tools[name]))
		if n := of.failures[name]; n > 0 {
			parts[i] += fmt.Sprintf(" (%s)", plural(n, "error"))
		}
	}
	return strings.Join(parts, ", ")
}

// tokenText lists the parts of the tokens, which never overlap.
func (of *sessionSummary) tokenText() string {
	u := &of.usage
	if u.Total() == 0 {
		return ""
	}
	var parts []string
	for _, part := range []struct {
		name string
		n    int64
	}{{"input", u.Input}, {"cache read", u.CacheRead}, {"cache write", u.CacheWrite}, {"output", u.Output}, {"reasoning", u.Reasoning}} {
		if part.n > 0 {
			parts = append(parts, part.name+" "+thousands(part.n))
		}
	}
	return thousands(u.Total()) + ": " + strings.Join(parts, ", ")
}
