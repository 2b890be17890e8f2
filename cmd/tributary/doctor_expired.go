package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"tributary/cmd/internal/terminal"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
)

// expired finds records that left the raw stream before they were read.
func (x *examination) expired(ctx context.Context) (err error) {
	if x.d.Expired, err = replay.ReadExpired(ctx, x.js); errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil // which the progress of the workers reports
	}
	for _, e := range x.d.Expired {
		if e.Open() > 0 {
			x.d.Problems = append(x.d.Problems, describeExpired(e)+": "+streams.CureExpired)
		}
	}
	return err
}

// describeExpired states which records were lost and are not acknowledged.
func describeExpired(e replay.Expired) string {
	text := terminal.Plural(int(e.Open()), "record")
	if e.Least {
		text = "at least " + text
	}
	return fmt.Sprintf("generation %s: %s, stored between %s and %s, left the stream %s before they were read",
		e.Generation, text, terminal.DateTime(e.From), terminal.DateTime(e.To), e.Stream)
}

func doctorAcknowledgeCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "acknowledge [flags]",
		Short: "Acknowledge records that expired before they were read",
		Long: `Acknowledge the records that left the raw stream before a generation had read them:
doctor and the alert report later ones alone from then on. The command prints what it
acknowledges. Ship the logs that still exist again first: tributary ship --again.`,
		Example: `  tributary doctor acknowledge`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withBroker(cmd.Context(), func(ctx context.Context, js jetstream.JetStream) error {
				found, err := replay.AcknowledgeExpired(ctx, js)
				for _, e := range found {
					fmt.Fprintf(a.stdout, "acknowledged: %s\n", describeExpired(e))
				}
				if err == nil && len(found) == 0 {
					fmt.Fprintln(a.stderr, "there is nothing to acknowledge")
				}
				return err
			})
		},
	}
	a.serverFlag(cmd)
	return cmd
}

// acknowledgedExpired returns how many records of a generation expired unread and were acknowledged.
func (d *diagnosis) acknowledgedExpired() (n uint64) {
	for _, e := range d.Expired {
		if e.Generation == d.Generation {
			n += e.Acknowledged
		}
	}
	return n
}
