package main

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/spf13/cobra"

	"tributary/envelopes"
	"tributary/pipeline/events"
)

// eventFilter has the flags that select events.
type eventFilter struct {
	source, session           string
	types, excluded           []string
	since, until, storedSince string
	grep                      string
	text                      *regexp.Regexp // of --grep; nil for none
}

// sinceAll is the value of --since for all events.
const sinceAll = "all"

// addFlags adds the flags of the filter to a command.
func (f *eventFilter) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.since, "since", "", "only events that happened since then: all, or a duration, date or time")
	flags.StringVar(&f.until, "until", "", "only events that happened before then: a duration, date or time")
	flags.StringVar(&f.storedSince, "stored-since", "", "only events that the broker has stored since then: a duration, date or time")
	sourceFlag(cmd, &f.source, "only events of this agent")
	flags.StringVar(&f.session, "session", "", "only events of this session: its id, or the beginning of ids")
	flags.StringSliceVar(&f.types, "type", nil, "only events of these `types`, separated by commas: "+joined(envelopes.EventTypes))
	flags.StringSliceVar(&f.excluded, "exclude-type", nil, "no events of these `types`, separated by commas")
	completeFlag(cmd, "type", texts(envelopes.EventTypes))
	completeFlag(cmd, "exclude-type", texts(envelopes.EventTypes))
	flags.StringVar(&f.grep, "grep", "", "only events whose text matches this regular `expression`; (?i) at its start ignores case")
}

// bounded reports whether a flag limits the time of the events.
func (f *eventFilter) bounded() bool { return f.since != "" || f.until != "" || f.storedSince != "" }

// query returns what the flags select.
func (f *eventFilter) query(now time.Time) (events.Query, error) {
	q := events.Query{SessionPrefix: f.session}
	var since, until time.Time
	var errs [6]error
	q.Types, errs[0] = parseTypes(f.types, f.excluded)
	q.Source, errs[1] = parseSource(f.source)
	if f.since != sinceAll {
		since, errs[2] = parseTime("since", f.since, now)
	}
	until, errs[3] = parseTime("until", f.until, now)
	q.Since, errs[4] = parseTime("stored-since", f.storedSince, now)
	if f.grep != "" {
		if f.text, errs[5] = regexp.Compile(f.grep); errs[5] != nil {
			errs[5] = usageError{fmt.Errorf("--grep %q: write a regular expression: %w", f.grep, errs[5])}
		}
	}
	if err := errors.Join(errs[:]...); err != nil {
		return q, err
	}
	if !since.IsZero() && q.Since.Before(since.Add(-events.ClockError)) {
		q.Since = since.Add(-events.ClockError)
	}
	if !since.IsZero() || !until.IsZero() || f.text != nil {
		q.Match = func(e *events.Event) bool {
			return e.During(since, until) && (f.text == nil || e.Text != nil && f.text.MatchString(*e.Text))
		}
	}
	return q, nil
}
