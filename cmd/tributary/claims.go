package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"tributary/pipeline"
)

func (a *app) claimsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "claims",
		Short: "Large records: what lies beside the raw stream",
		Long: `A record that is too large for a message lies in the object bucket CLAIMS, under
the SHA-256 of its bytes, and its message in the raw stream names it. An object
that no record names is an orphan: its producer died before the record was
published, or the raw stream has let the record go.`,
		Example: `  tributary claims ls                      all objects, and how many records name each
  tributary claims gc --dry-run            show the orphans
  tributary claims gc                      remove them`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.claimsListCommand(), a.claimsCollectCommand())
	return cmd
}

func (a *app) claimsListCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "ls [flags]",
		Short: "List the objects and how many records name each",
		Long: `List the objects, the oldest first, and how many records in the raw stream name
each. An object without a name is what an upload that was cut off has left.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClaims(cmd.Context(), output, func(ctx context.Context, claims *pipeline.Claims) error {
				objects, err := claims.Objects(ctx)
				if err != nil {
					return err
				}
				return a.showObjects(objects, output)
			})
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	a.serverFlag(cmd)
	return cmd
}

// defaultGrace is how long an object that no record names is left alone: its producer may
// be about to publish the record.
const defaultGrace = 24 * time.Hour

func (a *app) claimsCollectCommand() *cobra.Command {
	var output string
	var dryRun bool
	var grace time.Duration
	cmd := &cobra.Command{
		Use:   "gc [flags]",
		Short: "Remove the objects that no record names",
		Long: `Remove the objects that no record in the raw stream names, and show them. An
object that was put within --older-than is left alone, for its record may be on
its way: let it be longer than any producer takes from the object to the record.
It may run at any time, beside producers and workers.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if grace < 0 {
				return usageError{fmt.Errorf("--older-than %v: write a duration such as 24h", grace)}
			}
			return a.withClaims(cmd.Context(), output, func(ctx context.Context, claims *pipeline.Claims) error {
				orphans, err := claims.Orphans(ctx, grace)
				if err != nil {
					return err
				}
				if dryRun {
					a.tellObjects("would remove", orphans)
					return a.showObjects(orphans, output)
				}
				gone := orphans[:0]
				for _, o := range orphans {
					ok, err := claims.Remove(ctx, o)
					if err != nil {
						a.tellObjects("removed", gone)
						return err
					}
					if ok {
						gone = append(gone, o)
					}
				}
				a.tellObjects("removed", gone)
				return a.showObjects(gone, output)
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&dryRun, "dry-run", false, "remove nothing, show what would be removed")
	flags.DurationVar(&grace, "older-than", defaultGrace, "leave alone what was put within this time")
	flags.StringVarP(&output, "output", "o", "table", "table or json")
	a.serverFlag(cmd)
	return cmd
}

// withClaims connects and does what a command has to do with the claims there.
func (a *app) withClaims(ctx context.Context, output string, do func(context.Context, *pipeline.Claims) error) error {
	if output != "table" && output != "json" {
		return usageError{fmt.Errorf("-o %q: write table or json", output)}
	}
	js, err := a.jetStream(ctx)
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	err = do(ctx, pipeline.NewClaims(js))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("the broker has no bucket %s: start a worker (tributary run), which makes it: %w", pipeline.ClaimsBucket, err)
	}
	return err
}

// tellObjects says how many objects there are.
func (a *app) tellObjects(did string, objects []pipeline.Object) {
	var bytes int64
	for _, o := range objects {
		bytes += o.Size
	}
	fmt.Fprintf(a.stderr, "%s %s (%s)\n", did, plural(len(objects), "object"), size(bytes))
}

// showObjects writes objects to standard output, in the form that --output names.
func (a *app) showObjects(objects []pipeline.Object, output string) error {
	if output == "json" {
		w := jsonWriter(a.stdout)
		for _, o := range objects {
			line, err := json.Marshal(struct {
				Name    string    `json:"name"`
				Size    int64     `json:"size"`
				Stored  time.Time `json:"stored"`
				Records int       `json:"records"`
			}{o.Name, o.Size, o.Stored, o.Records}, jsontext.AllowInvalidUTF8(true)) // a name is anybody's
			if err != nil {
				return err
			}
			if _, err := w.Write(append(line, '\n')); err != nil {
				return err
			}
		}
		return nil
	}
	if len(objects) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "OBJECT\tSIZE\tSTORED\tRECORDS")
	for _, o := range objects {
		name := oneLine(o.Name)
		if name == "" {
			name = "(upload that was cut off)"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\n", name, size(o.Size), o.Stored.Local().Format(time.DateTime), o.Records)
	}
	return w.Flush()
}
