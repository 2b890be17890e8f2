package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/cmd/internal/terminal"
	"tributary/pipeline/events"
	"tributary/pipeline/export"
	"tributary/pipeline/streams"
	"tributary/pipeline/subscribe"
)

// exported is how far the export at a place is.
type exported struct {
	Place string `json:"place"`
	events.ReaderStatus
}

// examineSubscriptions reads how far the subscriptions are.
func (a *app) examineSubscriptions(ctx context.Context, js jetstream.JetStream, d *diagnosis) (err error) {
	d.Subscriptions, err = subscribe.ReadStatus(ctx, js)
	for _, s := range d.Subscriptions {
		name := "subscription " + terminal.OneLine(s.Name)
		if s.Unreadable {
			d.Problems = append(d.Problems, fmt.Sprintf("%s: its progress cannot be read: remove the key %s of bucket %s to begin again",
				name, terminal.OneLine(s.Name), streams.SubscribersBucket))
			continue
		}
		d.judgeReader(name, &s.ReaderStatus, fmt.Sprintf("start it, which tells its program; or remove the key %s of bucket %s, if it is not used any more",
			terminal.OneLine(s.Name), streams.SubscribersBucket))
	}
	return err
}

// examineExports reads how far the exports are at places that the user names.
func (a *app) examineExports(ctx context.Context, js jetstream.JetStream, d *diagnosis, places []string) error {
	for _, text := range places {
		p, err := parsePlace("--export", text)
		if err != nil {
			return usageError{err}
		}
		cfg := export.Config{Dir: p.dir, Logger: a.log}
		if p.bucket != "" {
			if cfg.Bucket, err = a.config.bucket(p); err != nil {
				return err
			}
			cfg.Bucket.Limit = storeLimit
		}
		is, err := export.ReadStatus(ctx, js, cfg)
		if err != nil {
			return err
		}
		d.Exports = append(d.Exports, exported{text, is})
		d.judgeReader("export "+terminal.OneLine(text), &is, "run it again, which goes on behind them")
	}
	return nil
}

// judgeReader finds what a reader has lost, and what it is about to lose.
func (d *diagnosis) judgeReader(name string, r *events.ReaderStatus, cure string) {
	switch {
	case r.Expired > 0:
		d.Problems = append(d.Problems, fmt.Sprintf("%s: up to %s behind those stored at %s expired before they were read: raise TRIBUTARY_EVENTS_MAX_AGE of the workers, and %s",
			name, terminal.Plural(int(r.Expired), "event"), terminal.DateTime(r.Read), cure))
	case !r.Expires.IsZero() && d.At.Sub(r.Oldest) > r.Expires.Sub(r.Oldest)/2:
		d.Problems = append(d.Problems, fmt.Sprintf("%s: %s wait, of which the first expires at %s: see why it is behind, or raise TRIBUTARY_EVENTS_MAX_AGE of the workers",
			name, terminal.Plural(int(r.Behind), "event"), terminal.DateTime(r.Expires)))
	}
}

// printReaders writes how far subscriptions and exports are.
func (d *diagnosis) printReaders(w io.Writer) error {
	if len(d.Subscriptions)+len(d.Exports) == 0 {
		return nil
	}
	fmt.Fprintf(w, "\n")
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(t, "READER\tGENERATION\tDONE UP TO\tBEHIND\tOLDEST\tSTATE\n")
	for _, s := range d.Subscriptions {
		d.printReader(t, "subscription "+terminal.OneLine(s.Name), &s.ReaderStatus)
	}
	for _, e := range d.Exports {
		d.printReader(t, "export "+terminal.OneLine(e.Place), &e.ReaderStatus)
	}
	return t.Flush()
}

func (d *diagnosis) printReader(w io.Writer, name string, r *events.ReaderStatus) {
	oldest, state := "", "goes on"
	switch {
	case r.Generation == "":
		state = "unreadable"
	case r.Dropped:
		state = "its generation was dropped"
	case r.WentBack:
		state = "its stream went back in time"
	case r.Expired > 0:
		state = "events expired unread"
	case r.Behind == 0:
		state = "has every event"
	}
	if !r.Oldest.IsZero() {
		oldest = d.age(r.Oldest).String()
	}
	fmt.Fprintf(w, "%s\t%s\t%v\t%d\t%s\t%s\n", name, terminal.OneLine(r.Generation), r.Done, r.Behind, oldest, state)
}
