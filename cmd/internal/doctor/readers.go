package doctor

import (
	"context"
	"fmt"

	"tributary/cmd/internal/terminal"
	"tributary/pipeline/events"
	"tributary/pipeline/export"
	"tributary/pipeline/streams"
	"tributary/pipeline/subscribe"
)

// Exported is the progress of the export at a place.
type Exported struct {
	Place string `json:"place"`
	events.ReaderStatus
}

// subscriptions reads the progress of the subscriptions.
func (x *examination) subscriptions(ctx context.Context) (err error) {
	x.d.Subscriptions, err = subscribe.ReadStatus(ctx, x.js)
	for _, s := range x.d.Subscriptions {
		name := "subscription " + terminal.OneLine(s.Name)
		if s.Unreadable {
			x.d.Problems = append(x.d.Problems, fmt.Sprintf("%s: its progress cannot be read: remove the key %s of bucket %s to begin again",
				name, terminal.OneLine(s.Name), streams.SubscribersBucket))
			continue
		}
		x.d.judgeReader(name, &s.ReaderStatus, fmt.Sprintf("start it, so that its program learns of the loss, or remove the key %s of bucket %s, if it is not used any more",
			terminal.OneLine(s.Name), streams.SubscribersBucket))
	}
	return err
}

// exports reads the progress of the exports.
func (x *examination) exports(ctx context.Context) error {
	for _, e := range x.Exports {
		is, err := export.ReadStatus(ctx, x.js, e.Config)
		if err != nil {
			return err
		}
		x.d.Exports = append(x.d.Exports, Exported{e.Place, is})
		x.d.judgeReader("export "+terminal.OneLine(e.Place), &is, "run it again: it continues after them")
	}
	return nil
}

// judgeReader reports the events that a reader lost, or may lose soon.
func (d *Diagnosis) judgeReader(name string, r *events.ReaderStatus, cure string) {
	switch {
	case r.Expired > 0:
		d.Problems = append(d.Problems, fmt.Sprintf("%s: up to %s behind those stored at %s expired before they were read: raise TRIBUTARY_EVENTS_MAX_AGE of the workers, and %s",
			name, terminal.Plural(int(r.Expired), "event"), terminal.DateTime(r.Read), cure))
	case !r.Expires.IsZero() && d.At.Sub(r.Oldest) > r.Expires.Sub(r.Oldest)/2:
		d.Problems = append(d.Problems, fmt.Sprintf("%s: %s wait, of which the first expires at %s: see why it is behind, or raise TRIBUTARY_EVENTS_MAX_AGE of the workers",
			name, terminal.Plural(int(r.Behind), "event"), terminal.DateTime(r.Expires)))
	}
}
