package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"tributary/envelopes"
)

// summary sums up the events of sessions.
type summary struct {
	sessions map[sessionKey]*sessionSummary
}

// sessionSummary sums up the events of one session.
type sessionSummary struct {
	project  string
	title    string
	events   map[envelopes.EventType]int
	tools    map[string]int // calls by name
	failures map[string]int // results with an error, by name of the tool
	usage    envelopes.Usage
	unread   int // dead letters
}

// of returns the summary of a session.
func (s *summary) of(key sessionKey) *sessionSummary {
	if s.sessions == nil {
		s.sessions = map[sessionKey]*sessionSummary{}
	}
	of := s.sessions[key]
	if of == nil {
		of = &sessionSummary{events: map[envelopes.EventType]int{}, tools: map[string]int{}, failures: map[string]int{}}
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
	if e.EventType == envelopes.SessionSummary && e.Text != nil {
		of.title = *e.Text
	}
	if e.ToolName != nil {
		switch {
		case e.EventType == envelopes.ToolCall:
			of.tools[*e.ToolName]++
		case failed(e):
			of.failures[*e.ToolName]++
		}
	}
	if u := e.Usage; u != nil {
		of.usage.Input += u.Input
		of.usage.CacheRead += u.CacheRead
		of.usage.CacheWrite += u.CacheWrite
		of.usage.Output += u.Output
		of.usage.Reasoning += u.Reasoning
	}
}

// deadLetters adds records that could not be read.
func (s *summary) deadLetters(session sessionKey, n int) {
	if n > 0 {
		s.of(session).unread += n
	}
}

// unread counts the records of all sessions that could not be read.
func (s *summary) unread() int {
	n := 0
	for _, of := range s.sessions {
		n += of.unread
	}
	return n
}

// write prints the summary, sorted by session.
func (s *summary) write(w io.Writer) {
	keys := slices.SortedFunc(maps.Keys(s.sessions), func(a, b sessionKey) int {
		return cmp.Or(cmp.Compare(a.source, b.source), cmp.Compare(a.id, b.id))
	})
	for _, key := range keys {
		of := s.sessions[key]
		fmt.Fprintf(w, "\n%s\n", oneLine(string(key.source)+" "+key.id))
		line := func(name, text string) {
			if text != "" {
				fmt.Fprintf(w, "  %-12s %s\n", name, text)
			}
		}
		line("title", oneLine(of.title))
		line("project", oneLine(of.project))
		total, kinds := 0, []string{}
		for _, t := range envelopes.EventTypes {
			if n := of.events[t]; n > 0 {
				total += n
				kinds = append(kinds, fmt.Sprintf("%s %d", t, n))
			}
		}
		line("events", fmt.Sprintf("%s: %s", thousands(int64(total)), strings.Join(kinds, ", ")))
		line("tools", of.toolText())
		line("tokens", of.tokenText())
		if of.unread > 0 {
			line("dead letters", thousands(int64(of.unread)))
		}
	}
}

// toolText lists the tools, the most used first, with the count of their errors.
func (of *sessionSummary) toolText() string {
	names := slices.SortedFunc(maps.Keys(of.tools), func(a, b string) int {
		return cmp.Or(cmp.Compare(of.tools[b], of.tools[a]), cmp.Compare(a, b))
	})
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = fmt.Sprintf("%s %d", oneLine(name), of.tools[name])
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
