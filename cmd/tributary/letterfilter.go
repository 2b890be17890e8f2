package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/events"
)

// letterFilter has the flags that select dead letters.
type letterFilter struct {
	source, session, reason, status string
	since, until                    string
	partitions                      []int
}

// allLetters is the value of --status that selects every dead letter.
const allLetters = "all"

var letterStatuses = []string{string(core.StandingOpen), string(core.StandingSettled), string(core.StandingForgotten), allLetters}

// letterFlags adds the flags that select dead letters; status is the default of --status.
func letterFlags(cmd *cobra.Command, a *app, status string) *letterFilter {
	f := &letterFilter{}
	flags := cmd.Flags()
	sourceFlag(cmd, &f.source, "only of this agent, or of any other source that a subject names")
	flags.StringVar(&f.session, "session", "", "only of this session: its whole id")
	flags.StringVar(&f.reason, "reason", "", "only with this reason: malformed, panic, ...; ls --group lists them")
	flags.StringVar(&f.since, "since", "", "only those stored since then: a duration, date or time")
	flags.StringVar(&f.until, "until", "", "only those stored before then: a duration, date or time")
	flags.IntSliceVar(&f.partitions, "partition", nil, "only of these partitions")
	flags.StringVar(&f.status, "status", status, "open: not read yet; settled: requeued, then read or a new dead letter; forgotten: its session does not remember it; or all")
	completeFlag(cmd, "status", letterStatuses)
	a.serverFlag(cmd)
	return f
}

// query returns what the flags and the arguments select.
func (f *letterFilter) query(args []string, now time.Time) (events.DeadLettersQuery, error) {
	q := events.DeadLettersQuery{
		Source: envelopes.Source(f.source), Session: f.session, Reason: f.reason, Partitions: f.partitions,
	}
	if _, err := parseEnum("status", f.status, letterStatuses); err != nil {
		return q, err
	}
	if f.status != allLetters {
		q.Standing = core.Standing(f.status)
	}
	var err error
	if q.Since, err = parseSince(f.since, now); err != nil {
		return q, err
	}
	if q.Until, err = parseSince(f.until, now); err != nil {
		return q, usageError{fmt.Errorf("--until %q: write a duration, date or time, as for --since", f.until)}
	}
	for _, arg := range args {
		n, err := strconv.ParseUint(arg, 10, 64)
		if err != nil || n == 0 {
			return q, usageError{fmt.Errorf("%q is not a sequence: write a number that dlq ls shows", arg)}
		}
		q.Sequences = append(q.Sequences, n)
	}
	return q, nil
}

// isSet reports whether any flag or argument selects dead letters.
func (f *letterFilter) isSet(cmd *cobra.Command, args []string) bool {
	for _, name := range []string{"source", "session", "reason", "since", "until", "partition", "status"} {
		if cmd.Flags().Changed(name) {
			return true
		}
	}
	return len(args) > 0
}

// letterSelection is a selection of the dead letters of a broker.
type letterSelection struct {
	*app
	js      jetstream.JetStream
	q       events.DeadLettersQuery
	missing missing
}

// selectLetters connects to the broker and passes the selected dead letters to work. Sequences select dead letters of
// any status.
func (f *letterFilter) selectLetters(cmd *cobra.Command, a *app, args []string, work func(context.Context, *letterSelection) error) error {
	if len(args) > 0 && !cmd.Flags().Changed("status") {
		f.status = allLetters
	}
	q, err := f.query(args, time.Now())
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	js, err := a.jetStreamLive(ctx)
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	return a.noStream(work(ctx, &letterSelection{a, js, q, missingOf(q)}))
}

// letters iterates over the selection. It reports and skips messages that are no valid dead letters.
func (s *letterSelection) letters(ctx context.Context) iter.Seq2[events.DeadLetter, error] {
	return func(yield func(events.DeadLetter, error) bool) {
		for l, err := range events.DeadLetters(ctx, s.js, s.config.Generation, s.q) {
			if errors.Is(err, events.ErrDeadLetter) {
				fmt.Fprintf(s.stderr, "skipped: %v\n", err)
				continue
			}
			if !yield(l, err) {
				return
			}
		}
	}
}

// missed returns the error of a sequence that was not found, nil if all were.
func (s *letterSelection) missed() error {
	if len(s.missing) == 0 {
		return nil
	}
	return fmt.Errorf("no such dead letter in generation %s: %d: dlq ls --status all lists all", s.config.Generation, s.missing[0])
}

// missing are the sequences among the arguments that have not been found.
type missing []uint64

// missingOf returns the sequences of a query before any is found.
func missingOf(q events.DeadLettersQuery) missing { return slices.Clone(q.Sequences) }

func (m *missing) found(l *events.DeadLetter) {
	*m = slices.DeleteFunc(*m, func(n uint64) bool { return n == l.Sequence })
}
