package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/cmd/internal/terminal"
	"tributary/pipeline/sessions/summaries"
	"tributary/pipeline/streams"
)

// sessions finds how far the records of sessions are, and whether titles and pins can be stored.
func (x *examination) sessions(ctx context.Context) error {
	view, err := summaries.Open(ctx, x.js, x.d.Generation, func(error) {})
	if err != nil {
		return err
	}
	if x.d.Records, err = view.Status(ctx); err != nil {
		return err
	}
	x.d.recordsRead = true
	all, err := streams.ReadGenerations(ctx, x.js)
	if err != nil {
		return err
	}
	// For a moment, a worker that has just started has no keeper of records, and neither has a generation that just
	// became live.
	begun := all.LiveSince
	if g, err := all.Find(x.d.Generation); err == nil && g.Started.After(begun) {
		begun = g.Started
	}
	overdue := slices.ContainsFunc(x.d.Workers, func(w streams.Worker) bool {
		return !w.Silent(x.d.At) && x.d.At.Sub(w.Since) > summaries.Patience && x.d.At.Sub(begun) > summaries.Patience
	})
	if x.d.Records.Silent && x.d.Records.Behind > 0 && overdue { // without a worker, that is the problem
		x.d.Problems = append(x.d.Problems, fmt.Sprintf("no worker keeps the records of sessions, which are %s behind, so that lists of sessions read these events each time: "+
			"see the log of the workers, and update those of an older version", terminal.Plural(int(x.d.Records.Behind), "event")))
	}
	_, err = x.js.Stream(ctx, streams.SessionsStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		x.d.Problems = append(x.d.Problems, "stream "+streams.SessionsStream+" is missing: titles and pins of sessions cannot be set: restore it, or start a worker, which creates an empty one: tributary run")
		return nil
	}
	return err
}

// DescribeRecords describes how many events the records of sessions lack.
func (d *Diagnosis) DescribeRecords() string {
	switch r := &d.Records; {
	case !d.recordsRead:
		return seeRights
	case !r.Kept && r.Behind == 0:
		return "no event yet"
	case !r.Kept:
		return "no records: lists of sessions read all " + terminal.Plural(int(r.Behind), "event")
	case r.Behind == 0:
		return "every event is in the record of its session"
	default:
		return fmt.Sprintf("the records are %s behind", terminal.Plural(int(r.Behind), "event"))
	}
}
