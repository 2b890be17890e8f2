package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"tributary/cmd/internal/doctor"
	"tributary/cmd/internal/terminal"
	"tributary/pipeline/export"
	"tributary/pipeline/replay"
)

func doctorCommand(a *app) *cobra.Command {
	var output, gapsSince string
	var exports []string
	cmd := &cobra.Command{
		Use:   "doctor [flags]",
		Short: "Show progress, problems and their cures",
		Long: `Inspect the broker, the streams, the workers and every partition of the generation:
which worker owns which partitions, how many records are not processed yet, and how old
they are; the edges: when each was seen, and what it has not sent; the receivers: where
they listen, and what they refused; how far the records of sessions are; the
subscriptions, and the exports that you name: which events they have not read, and which
expired unread. Checks judge rights, streams, replicas, lag, clocks, retention,
durability, limits, drift and receivers. Anything you may not read is listed, but is not
counted as a problem. The command changes nothing. The exit code is 1 if there is a
problem.

Records that left the raw stream before they were read are a problem until you
acknowledge them with doctor acknowledge.

A gap is a part of a log whose records are not in the raw stream. If the log does
not exist any more, --gaps-since leaves older gaps out of the problems.`,
		Example: `  tributary doctor
  tributary doctor --gaps-since 2026-03-09
  tributary doctor --export s3://telemetry/events
  tributary doctor -o json | jq .partitions
  tributary doctor acknowledge`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output, "pretty", "json"); err != nil {
				return err
			}
			since, err := parseSince(gapsSince, time.Now())
			if err != nil {
				return usageError{fmt.Errorf("--gaps-since %q: write a duration, date or time, as for --since of tail", gapsSince)}
			}
			places, err := a.examinedExports(exports)
			if err != nil {
				return err
			}
			js, err := a.jetStreamLive(cmd.Context())
			if err != nil {
				return err
			}
			defer js.Conn().Close()
			d, err := doctor.Examine(cmd.Context(), js, doctor.Options{
				Topology: a.config.topology(), GapsSince: since, Exports: places, Denials: &a.denials,
				Skipped: func(err error) { fmt.Fprintf(a.stderr, "skipped: %v\n", err) },
			})
			if err != nil {
				return err
			}
			if output == "json" {
				err = terminal.WriteJSON(a.stdout, d)
			} else {
				err = d.Print(terminal.Safe(a.stdout), terminal.TableWidth(a.stdout))
			}
			if err == nil && len(d.Problems) > 0 {
				err = errors.New(terminal.Plural(len(d.Problems), "problem"))
			}
			return err
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "pretty", "pretty or json")
	cmd.Flags().StringVar(&gapsSince, "gaps-since", "", "only gaps found since then are problems: a duration, date or time")
	cmd.Flags().StringArrayVar(&exports, "export", nil, "show how far the export at this `place` is, too: a folder or a URL; several times for several")
	a.serverFlag(cmd)
	cmd.AddCommand(doctorAcknowledgeCommand(a))
	return cmd
}

// examinedExports are the exports at the places that the user names.
func (a *app) examinedExports(places []string) ([]doctor.Export, error) {
	var list []doctor.Export
	for _, text := range places {
		p, err := parsePlace("--export", text)
		if err != nil {
			return nil, usageError{err}
		}
		cfg := export.Config{Dir: p.dir, Logger: a.log}
		if p.bucket != "" {
			if cfg.Bucket, err = a.config.bucket(p); err != nil {
				return nil, err
			}
			cfg.Bucket.Limit = storeLimit
		}
		list = append(list, doctor.Export{Place: text, Config: cfg})
	}
	return list, nil
}

func doctorAcknowledgeCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "acknowledge [flags]",
		Short: "Acknowledge records that expired before they were read",
		Long: `Acknowledge the records that left the raw stream before a generation had read them: from
then on doctor and the alert report only later ones. The command prints what it
acknowledges. Ship the logs that still exist again first: tributary ship --again.`,
		Example: `  tributary doctor acknowledge`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withBroker(cmd.Context(), func(ctx context.Context, js jetstream.JetStream) error {
				found, err := replay.AcknowledgeExpired(ctx, js)
				for _, e := range found {
					fmt.Fprintf(a.stdout, "acknowledged: %s\n", doctor.DescribeExpired(e))
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
