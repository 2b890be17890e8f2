package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"tributary/pipeline"
	"tributary/pipeline/sessions"
)

func (a *app) sessionsWatchCommand() *cobra.Command {
	var f sessionFilter
	var output string
	var every time.Duration
	cmd := &cobra.Command{
		Use:   "watch [flags] [ID-PREFIX...]",
		Short: "Print sessions when they change",
		Long: `Print each session that has new events, or that becomes idle, with what it did so
far: at most once in --every. Arguments and flags select sessions as in
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

// maxWatched is the number of sessions that a watch has in memory. One that was changed longest ago is
// folded again when it changes.
const maxWatched = 512

// sessionWatch prints sessions when they change.
type sessionWatch struct {
	*app
	js     jetstream.JetStream
	labels *sessionLabels
	filter *sessionFilter
	output string
	folds  map[pipeline.SessionID]*watchedSession
	recent []pipeline.SessionID // the one that changed last at the end
}

// watchedSession is a session in memory.
type watchedSession struct {
	fold    *sessions.Fold
	state   sessions.State // that was printed
	changed bool           // since then
}

// watchSessions prints sessions that change from now on, until ctx ends.
func (a *app) watchSessions(ctx context.Context, f *sessionFilter, output string, every time.Duration) error {
	q, err := f.parse(time.Now())
	if err != nil {
		return err
	}
	js, err := a.jetStreamLive(ctx)
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	q.Follow = true
	if q.After, err = a.lastPosition(ctx, js); err != nil {
		return err
	}
	w := &sessionWatch{app: a, js: js, labels: &sessionLabels{app: a, nc: js.Conn()}, filter: f, output: output, folds: map[pipeline.SessionID]*watchedSession{}}
	ctx, stop := context.WithCancel(ctx)
	events := make(chan pipeline.Event)
	failed := make(chan error, 1)
	go func() {
		defer close(failed)
		for e, err := range pipeline.Outlines(ctx, js, a.config.Generation, q) {
			if err != nil && e.Position == 0 {
				failed <- err
				return
			}
			if err != nil {
				fmt.Fprintf(a.stderr, "skipped: %v\n", err)
				continue
			}
			select {
			case events <- e:
			case <-ctx.Done():
				return
			}
		}
	}()
	err = w.run(ctx, events, failed, every)
	stop()
	for range failed { // until the reader has ended
	}
	return err
}

// run notes events and prints what changed, until ctx ends or the reader fails.
func (w *sessionWatch) run(ctx context.Context, events <-chan pipeline.Event, failed <-chan error, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case e := <-events:
			if err := w.note(ctx, &e); err != nil && ctx.Err() == nil {
				return err
			}
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

// note adds an event to its session, whose earlier events it reads if it is not in memory.
func (w *sessionWatch) note(ctx context.Context, e *pipeline.Event) error {
	id := pipeline.SessionID{Source: e.Source, Session: e.SessionID}
	s := w.folds[id]
	if s == nil {
		fold, err := w.foldSession(ctx, w.js, id, e.Position)
		if err != nil {
			return err
		}
		s = &watchedSession{fold: fold}
		w.folds[id] = s
	}
	w.recent = append(slices.DeleteFunc(w.recent, func(r pipeline.SessionID) bool { return r == id }), id)
	if len(w.recent) > maxWatched {
		delete(w.folds, w.recent[0])
		w.recent = w.recent[1:]
	}
	s.fold.Add(&e.AgentEventV1)
	s.changed = true
	return nil
}

// print prints the sessions that have changed.
func (w *sessionWatch) print(ctx context.Context, now time.Time) error {
	var list []sessionView
	for _, id := range w.recent {
		s := w.folds[id]
		record := s.fold.Summary(now)
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
		return sessionTable(list, now).write(w.stdout, w.tableWidth())
	}
	for i := range list {
		if err := writeJSON(jsonWriter(w.stdout), &list[i]); err != nil {
			return err
		}
	}
	return nil
}
