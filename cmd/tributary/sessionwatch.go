package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
	"tributary/pipeline/events"
	"tributary/pipeline/sessions"
	"tributary/pipeline/sessions/summaries"
	"tributary/pipeline/streams"
)

func sessionsWatchCommand(a *app) *cobra.Command {
	var f sessionFilter
	var output string
	var every time.Duration
	cmd := &cobra.Command{
		Use:   "watch [flags] [ID-PREFIX...]",
		Short: "Print sessions when they change",
		Long: `Print each session that has new events, or becomes idle, with all that it did: at most
once in --every. It shows the records that a worker keeps, of the live generation, also
after tributary replay promote and rollback. Arguments and flags select sessions as in
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
			return watchSessions(cmd.Context(), a, &f, output, every)
		},
	}
	f.flags(cmd)
	cmd.Flags().DurationVar(&every, "every", 2*time.Second, "the shortest time between two lines of a session")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	a.serverFlag(cmd)
	return cmd
}

// maxWatched limits the sessions in memory: those that changed last. A watch prints when they become idle.
const maxWatched = 512

// sessionWatch prints sessions when they change.
type sessionWatch struct {
	*app
	titles  *sessionTitles
	filter  *sessionFilter
	output  string
	since   time.Time         // about when another generation became live, or the records were made again; zero before
	through streams.Positions // where the events ended when the records were made again; nil before
	layout  streams.Layout    // set with through
	watched map[events.SessionID]*watchedSession
	recent  []events.SessionID // ordered by their last change, the latest last
}

// watchedSession is a session in memory.
type watchedSession struct {
	record  sessions.Summary
	printed sessions.Activity
	changed bool // since it was printed
}

// watchSessions prints sessions that change from now on, until ctx ends.
func watchSessions(ctx context.Context, a *app, f *sessionFilter, output string, every time.Duration) error {
	if err := f.parse(time.Now()); err != nil {
		return err
	}
	named := a.config.Generation != ""
	js, err := a.jetStreamLive(ctx)
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	w := &sessionWatch{app: a, titles: &sessionTitles{app: a, nc: js.Conn()}, filter: f, output: output, watched: map[events.SessionID]*watchedSession{}}
	watch := func(ctx context.Context) error { return w.watch(ctx, js, every) }
	if named {
		return watch(ctx)
	}
	for {
		next, err := streams.WhileLive(ctx, js, a.config.Generation, watch)
		if next == "" {
			return err
		}
		noteLive(a, a.config.Generation, next)
		a.config.Generation = next
		since, err := streams.LiveSince(ctx, js)
		if err != nil {
			return err
		}
		w.since, w.through = since.Add(-behindChange), nil
	}
}

// behindChange is how long before a change of the live generation the records of its sessions are read. It is longer
// than the records are behind the events.
const behindChange = 10 * time.Second

// watch prints the sessions of the live generation that change, until ctx ends.
func (w *sessionWatch) watch(ctx context.Context, js jetstream.JetStream, every time.Duration) error {
	for {
		err := w.follow(ctx, js, every)
		if !errors.Is(err, summaries.ErrAnew) {
			return err
		}
		if failed := w.begin(ctx, js); failed != nil {
			return w.noStream(failed)
		}
		fmt.Fprintf(w.stderr, "%v: watching those that change from now on\n", err)
	}
}

// begin begins anew with the sessions that have events from now on: records that are made again come, too.
func (w *sessionWatch) begin(ctx context.Context, js jetstream.JetStream) error {
	top, err := streams.StoredTopology(ctx, js, w.config.Generation)
	if err != nil {
		return err
	}
	if w.through, err = streams.LastPositions(ctx, js, w.config.Generation); err != nil {
		return err
	}
	now, err := streams.BrokerTime(ctx, js)
	if err != nil {
		return err
	}
	w.layout, w.since, w.recent = top.Layout(), now.Add(-behindChange), nil
	clear(w.watched)
	return nil
}

// follow prints the sessions that change, until ctx ends or the records are made again.
func (w *sessionWatch) follow(ctx context.Context, js jetstream.JetStream, every time.Duration) error {
	view, err := w.awaitSummaries(ctx, js)
	if err != nil || view == nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	records := make(chan summaries.Record)
	failed := make(chan error, 1)
	go func() {
		defer close(failed)
		for r, err := range view.Follow(ctx, w.filter.wanted, w.since) {
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

// awaitSummaries waits until a worker keeps the records of sessions. The result is nil if ctx ends first.
func (w *sessionWatch) awaitSummaries(ctx context.Context, js jetstream.JetStream) (*summaries.View, error) {
	look := time.NewTicker(time.Second)
	defer look.Stop()
	patience := 0
	if !w.since.IsZero() { // a worker takes a moment to notice the change, too
		patience = 10
	}
	for looks := 0; ; looks++ {
		view, _, err := openSummaries(ctx, w.app, js)
		if err != nil {
			return nil, w.noStream(err)
		}
		if status, err := view.Status(ctx); err != nil || !status.Silent {
			return view, err
		}
		if looks == patience {
			fmt.Fprintln(w.stderr, "no worker keeps the records of sessions: waiting for one (tributary run)")
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return nil, nil //nolint:nilnil // interrupted: no view and no error
		}
	}
}

// run collects records and prints changes, until ctx ends or the reader fails.
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

// note remembers a changed record.
func (w *sessionWatch) note(r *summaries.Record) {
	if r.Position <= w.through.In(w.layout.Cell(envelopes.Partition(r.Source, r.Session, max(w.layout.Partitions, 1)))) {
		return // it was made again, or is not yet as it was
	}
	id := events.SessionID{Source: r.Source, Session: r.Session}
	s := w.watched[id]
	if s == nil {
		s = &watchedSession{}
		w.watched[id] = s
	} else if !w.since.IsZero() && r.Events <= s.record.Events && !r.LastSeen.After(s.record.LastSeen) {
		return // the previous generation had as much of the session
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
		if !s.changed && record.Activity == s.printed {
			continue
		}
		s.changed, s.printed = false, record.Activity
		if w.filter.matches(&record) {
			list = append(list, w.titles.view(ctx, record))
		}
	}
	if len(list) == 0 {
		return nil
	}
	if w.output == "table" {
		width := terminal.TableWidth(w.stdout)
		return sessionTable(list, nil, nil, now, width).Write(w.stdout, width)
	}
	for i := range list {
		if err := terminal.WriteJSON(w.stdout, &list[i]); err != nil {
			return err
		}
	}
	return nil
}
