package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
	"tributary/pipeline/events"
	"tributary/pipeline/sessions/summaries"
)

// unreadable counts events that cannot be read, and prints their errors.
type unreadable struct {
	*app
	seen map[string]bool // errors that were printed
}

func (u *unreadable) add(err error) {
	text := err.Error()
	if u.seen[text] {
		return // read again for another period
	}
	if u.seen == nil {
		u.seen = map[string]bool{}
	}
	u.seen[text] = true
	fmt.Fprintf(u.stderr, "skipped: %v\n", err)
}

// err is nil if every event was read.
func (u *unreadable) err() error {
	if len(u.seen) == 0 {
		return nil
	}
	return partlyError(terminal.Plural(len(u.seen), "event") + " could not be read")
}

// findSession returns the session with this id, else the only session whose id begins with it.
func findSession(ctx context.Context, a *app, js jetstream.JetStream, source envelopes.Source, id string) (events.SessionID, error) {
	var none events.SessionID
	if id == "" {
		return none, usageError{errors.New("the id is empty: name one session")}
	}
	// The server finds a whole id; a beginning needs the subjects of all events.
	const shown = 5
	found, err := events.FindSessions(ctx, js, a.config.Generation, events.Query{Source: source, Session: id}, id, 0)
	if err == nil && len(found) == 0 {
		found, err = events.FindSessions(ctx, js, a.config.Generation, events.Query{Source: source}, id, shown+1)
	}
	switch {
	case err != nil:
		return none, err
	case len(found) == 0:
		return none, fmt.Errorf("no such session in generation %s: %s: tributary sessions ls lists them", a.config.Generation, terminal.OneLine(id))
	case len(found) == 1:
		return found[0], nil
	}
	slices.SortFunc(found, func(a, b events.SessionID) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Session, b.Session))
	})
	count := terminal.Plural(len(found), "session")
	if len(found) > shown {
		found, count = found[:shown], "many sessions"
	}
	names := make([]string, len(found))
	for i, s := range found {
		names[i] = terminal.OneLine(string(s.Source) + " " + s.Session)
	}
	return none, fmt.Errorf("%s names %s: %s: write more of the id, or pass --source", terminal.OneLine(id), count, strings.Join(names, ", "))
}

// openSummaries opens the records of sessions. It prints and counts events that cannot be read.
func openSummaries(ctx context.Context, a *app, js jetstream.JetStream) (*summaries.View, *unreadable, error) {
	u := &unreadable{app: a}
	v, err := summaries.Open(ctx, js, a.config.Generation, u.add)
	return v, u, err
}

// manyEvents is how many events the records of sessions may be behind before a command prints a note.
const manyEvents = 20_000

// noteBehind prints that the command takes long if the records of sessions are far behind the events.
func noteBehind(ctx context.Context, a *app, v *summaries.View) error {
	s, err := v.Status(ctx)
	if err != nil || s.Behind < manyEvents {
		return err
	}
	note := ""
	if s.Silent {
		note = "; no worker keeps them: start one (tributary run)"
	}
	fmt.Fprintf(a.stderr, "the records of sessions are %s events behind: reading those first%s\n", terminal.Thousands(int64(s.Behind)), note)
	return nil
}
