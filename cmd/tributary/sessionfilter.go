package main

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tributary/envelopes"
	"tributary/pipeline/sessions"
)

// sessionFilter has the flags that select sessions.
type sessionFilter struct {
	source, project, model, state string
	since, until                  string
	prefixes                      []string // of ids; none for all

	from, to time.Time
	wanted   envelopes.Source // empty for all
}

// flags adds the flags of the filter.
func (f *sessionFilter) flags(cmd *cobra.Command) {
	sourceFlag(cmd, &f.source, "only sessions of this agent")
	flags := cmd.Flags()
	flags.StringVar(&f.project, "project", "", "only sessions of this project: its path, or the end of it")
	flags.StringVar(&f.model, "model", "", "only sessions that used this model: its name, or a part of it")
	enumFlag(cmd, &f.state, "state", "", "only sessions in this state or phase", sessions.StateNames())
}

// parse checks the flags.
func (f *sessionFilter) parse(now time.Time) error {
	var err error
	if f.state != "" {
		if _, err = parseEnum("state", f.state, sessions.StateNames()); err != nil {
			return err
		}
	}
	if f.from, err = parseTime("since", f.since, now); err != nil {
		return err
	}
	if f.to, err = parseTime("until", f.until, now); err != nil {
		return err
	}
	f.wanted, err = parseSource(f.source)
	return err
}

// matches reports whether the filter selects a session.
func (f *sessionFilter) matches(s *sessions.Summary) bool {
	begins := func(prefix string) bool { return strings.HasPrefix(s.Session, prefix) }
	uses := func(m sessions.ModelUse) bool { return strings.Contains(m.Model, f.model) }
	return (f.source == "" || string(s.Source) == f.source) &&
		(f.state == "" || s.Is(f.state)) &&
		(f.model == "" || slices.ContainsFunc(s.Models, uses)) &&
		(len(f.prefixes) == 0 || slices.ContainsFunc(f.prefixes, begins)) &&
		(f.from.IsZero() || !s.LastSeen.Before(f.from)) && (f.to.IsZero() || s.LastSeen.Before(f.to)) &&
		s.InProject(f.project)
}
