package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"tributary/envelopes"
)

// form is what events are printed as, the value of --as.
type form string

// The forms.
const (
	asEvents  form = "events"
	asEntries form = "entries" // envelopes.NormalizedEntry
	asACP     form = "acp"     // envelopes.ACPMessage
)

var forms = []form{asEvents, asEntries, asACP}

// asFlag adds --as to a command.
func asFlag(cmd *cobra.Command, as *string) {
	names := formNames()
	cmd.Flags().StringVar(as, "as", string(asEvents), "what to print: "+strings.Join(names, ", "))
	// The only error is a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("as", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
}

func formNames() []string {
	names := make([]string, len(forms))
	for i, f := range forms {
		names[i] = string(f)
	}
	return names
}

// parseForm reads the value of --as.
func parseForm(name string) (form, error) {
	if !slices.Contains(forms, form(name)) {
		return "", usageError{fmt.Errorf("--as %q: write one of %s", name, strings.Join(formNames(), ", "))}
	}
	return form(name), nil
}

// lineWriter prints events in a form, one JSON value per line. Each session has its own
// projection; the lines keep the order of the events that they come of.
type lineWriter struct {
	w        io.Writer
	form     form
	sessions map[sessionKey]*sessionProjection
	order    []sessionKey // of sessions, as they were first heard of
	clock    uint64
	line     []byte // the buffer of a line
}

// sessionProjection is the projection of one session in the form that is asked for.
type sessionProjection struct {
	entries envelopes.EntryProjection
	acp     envelopes.ACPProjection
	heard   uint64 // when there was an event last
}

// maxProjected is how many sessions have a projection at a time. Beyond it the one that
// has been silent for longest is ended; should it speak again, it begins anew.
const maxProjected = 1024

func newLineWriter(w io.Writer, f form) *lineWriter {
	return &lineWriter{w: w, form: f, sessions: map[sessionKey]*sessionProjection{}}
}

// event prints what comes of an event.
func (l *lineWriter) event(e *envelopes.AgentEventV1) error {
	if l.form == asEvents {
		return l.print(e.AppendJSON(l.line[:0]))
	}
	session, err := l.session(sessionKey{e.Source, e.SessionID})
	if err != nil {
		return err
	}
	if l.form == asACP {
		return l.messages(session.acp.Project(e))
	}
	if entry, ok := session.entries.Project(e); ok {
		return l.print(entry.AppendJSON(l.line[:0]))
	}
	return nil
}

// end prints what is still open, for no event follows.
func (l *lineWriter) end() error {
	for len(l.order) > 0 {
		if err := l.endSession(l.order[0]); err != nil {
			return err
		}
	}
	return nil
}

// session is the projection of a session.
func (l *lineWriter) session(key sessionKey) (*sessionProjection, error) {
	l.clock++
	session := l.sessions[key]
	if session == nil {
		if len(l.order) >= maxProjected {
			silent := slices.MinFunc(l.order, func(a, b sessionKey) int {
				return cmp.Compare(l.sessions[a].heard, l.sessions[b].heard)
			})
			if err := l.endSession(silent); err != nil {
				return nil, err
			}
		}
		session = &sessionProjection{}
		l.sessions[key] = session
		l.order = append(l.order, key)
	}
	session.heard = l.clock
	return session, nil
}

// endSession ends a session and forgets it.
func (l *lineWriter) endSession(key sessionKey) error {
	session := l.sessions[key]
	delete(l.sessions, key)
	l.order = slices.DeleteFunc(l.order, func(k sessionKey) bool { return k == key })
	return l.messages(session.acp.End())
}

// messages prints messages.
func (l *lineWriter) messages(messages []envelopes.ACPMessage) error {
	for i := range messages {
		if err := l.print(messages[i].MarshalJSON()); err != nil {
			return err
		}
	}
	return nil
}

// print writes a line.
func (l *lineWriter) print(line []byte, err error) error {
	if err != nil {
		return err
	}
	l.line = append(line, '\n')
	_, err = l.w.Write(l.line)
	return err
}
