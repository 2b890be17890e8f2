package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/terminal"
	"tributary/pipeline/claims"
)

// defaultGrace is the age below which an orphan is kept: its producer may be about to publish the record.
const defaultGrace = 24 * time.Hour

func claimsCollectCommand(a *app) *cobra.Command {
	var output string
	var dryRun bool
	var grace time.Duration
	cmd := &cobra.Command{
		Use:   "gc [flags]",
		Short: "Remove the objects that no record names",
		Long: `Remove the objects that no record in the raw stream names, and list them. An object that
was stored within --older-than is kept, because its record may still be published:
choose more time than any producer takes between the object and the record. The command
may run at any time, beside producers and workers.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if grace < 0 {
				return usageError{fmt.Errorf("--older-than %v: write a duration such as 24h", grace)}
			}
			return withClaims(cmd.Context(), a, output, func(ctx context.Context, claims *claims.Store) error {
				orphans, err := claims.Orphans(ctx, grace)
				if err != nil {
					return err
				}
				verb := "would remove"
				if !dryRun {
					verb = "removed"
					orphans, err = removeObjects(ctx, claims, orphans)
				}
				printObjectCount(a, verb, orphans)
				if err != nil {
					return err
				}
				return printObjects(a, orphans, output)
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&dryRun, "dry-run", false, "remove nothing, show what would be removed")
	flags.DurationVar(&grace, "older-than", defaultGrace, "keep the objects that were stored within this time")
	flags.StringVarP(&output, "output", "o", "table", "table or json")
	a.serverFlag(cmd)
	return cmd
}

// removeObjects removes orphans and returns those that it removed, also with an error.
func removeObjects(ctx context.Context, claims *claims.Store, orphans []claims.Object) ([]claims.Object, error) {
	removed := orphans[:0]
	for _, o := range orphans {
		ok, err := claims.Remove(ctx, o)
		if err != nil {
			return removed, err
		}
		if ok {
			removed = append(removed, o)
		}
	}
	return removed, nil
}

// printObjectCount prints the number and the size of objects.
func printObjectCount(a *app, verb string, objects []claims.Object) {
	var bytes int64
	for _, o := range objects {
		bytes += o.Size
	}
	fmt.Fprintf(a.stderr, "%s %s (%s)\n", verb, terminal.Plural(len(objects), "object"), terminal.Size(bytes))
}
