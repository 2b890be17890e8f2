package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"tributary/pipeline/events"
	"tributary/pipeline/sessions"
	"tributary/pipeline/sessions/summaries"
)

func (a *app) sessionsWatchCommand() *cobra.Command {
	var f sessionFilter
	var output string
	var every time.Duration
	cmd := &cobra.Command{
		Use:   "watch [flags] [ID-PREFIX...]",
		Short: "Print sessions when they change",
		Long: `Print each session that has new events, or that becomes idle, with what it did so
far: at most once in --every. It shows the records that a worker keeps. Arguments and flags select sessions as in
tributary sessions ls. -o json prints one record per line. Ctrl-C ends it.`,
		Example: `  tributary sessions watch --project ledger
  tributary sessions watch -o json | jq -r 'select(.state == "waiting") | .title'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output, "table", "json"); err != nil {
				return err
			}
			if every <= 0 {
				return usageError{fmt.Errorf("--every %v: write a duration such as 2s", every)}
			}
			f.prefixes = args
			return a.watchSessions(cmd.Context(), &f, output, every)
		},
	}
	f.flags(cmd)
	cmd.Flags().DurationVar(&every, "every", 2*time.Second, "print a session at most so often")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	a.serverFlag(cmd)
	return cmd
}

// maxWatched is the number of sessions whose end a watch waits for: those that changed last.
const maxWatched = 512

// sessionWatch prints sessions when they change.
type sessionWatch struct {
	*app
	labels  *sessionLabels
	filter  *sessionFilter
	output  string
	watched map[events.SessionID]*watchedSession
	recent  []events.SessionID // the one that changed last at the end
}

// watchedSession is a session in memory.
type watchedSession struct {
	record  sessions.Summary
	state   sessions.State // that was printed
	changed bool           // since then
}

// watchSessions prints sessions that change from now on, until ctx ends.
func (a *app) watchSessions(ctx context.Context, f *sessionFilter, output string, every time.Duration) error {
	if err := f.parse(time.Now()); err != nil {
		return err
	}
	js, err := a.jetStreamLive(ctx)
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	view, err := a.awaitSummaries(ctx, js)
	if err != nil || view == nil {
		return err
	}
	w := &sessionWatch{app: a, labels: &sessionLabels{app: a, nc: js.Conn()}, filter: f, output: output, watched: map[events.SessionID]*watchedSession{}}
	ctx, stop := context.WithCancel(ctx)
	records := make(chan summaries.Record)
	failed := make(chan error, 1)
	go func() {
		defer close(failed)
		for r, err := range view.Follow(ctx, f.wanted) {
			if err != nil {
				failed <- err
				return
			}
			select {
			case records <- r:
			case <-ctx.Done():
				return
			}
		}
	}()
	err = w.run(ctx, records, failed, every)
	stop()
	for range failed { // until the reader has ended
	}
	return err
}

// awaitSummaries waits until a worker keeps the records of sessions. The result is nil when ctx ends before.
func (a *app) awaitSummaries(ctx context.Context, js jetstream.JetStream) (*summaries.View, error) {
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for noted := false; ; noted = true {
		view, _, err := a.openSummaries(ctx, js)
		if err != nil {
			return nil, a.noStream(err)
		}
		if status, err := view.Status(ctx); err != nil || !status.Silent {
			return view, err
		}
		if !noted {
			fmt.Fprintln(a.stderr, "no worker keeps the records of sessions: waiting for one (tributary run)")
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return nil, nil //nolint:nilnil // interrupted: no view and no error
		}
	}
}

// run notes records and prints what changed, until ctx ends or the reader fails.
func (w *sessionWatch) run(ctx context.Context, records <-chan summaries.Record, failed <-chan error, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case r := <-records:
			w.note(&r)
		case <-tick.C:
			if err := w.print(ctx, time.Now()); err != nil {
				return err
			}
		case err := <-failed:
			if ctx.Err() != nil {
				return nil
			}
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

// note remembers a record that has changed.
func (w *sessionWatch) note(r *summaries.Record) {
	id := events.SessionID{Source: r.Source, Session: r.Session}
	s := w.watched[id]
	if s == nil {
		s = &watchedSession{}
		w.watched[id] = s
	}
	w.recent = append(slices.DeleteFunc(w.recent, func(r events.SessionID) bool { return r == id }), id)
	if len(w.recent) > maxWatched {
		delete(w.watched, w.recent[0])
		w.recent = w.recent[1:]
	}
	s.record, s.changed = r.Summary, true
}

// print prints the sessions that have changed.
func (w *sessionWatch) print(ctx context.Context, now time.Time) error {
	var list []sessionView
	for _, id := range w.recent {
		s := w.watched[id]
		record := s.record.At(now)
		if !s.changed && record.State == s.state {
			continue
		}
		s.changed, s.state = false, record.State
		if w.filter.matches(&record) {
			list = append(list, w.labels.view(ctx, record))
		}
	}
	if len(list) == 0 {
		return nil
	}
	if w.output == "table" {
		return sessionTable(list, nil, now).write(w.stdout, w.tableWidth())
	}
	for i := range list {
		if err := writeJSON(jsonWriter(w.stdout), &list[i]); err != nil {
			return err
		}
	}
	return nil
}
