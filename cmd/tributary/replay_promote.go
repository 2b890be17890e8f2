package main

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"tributary/pipeline"
)

func (a *app) replayPromoteCommand() *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use:   "promote NAME [flags]",
		Short: "Make a generation the live one",
		Long: `Make a generation the live one, once it has done every record. Workers, tail and the
other commands follow the live generation; a consumer of your own reads its name from
the key current of the bucket TRIBUTARY. The generation that was live is retired: it
keeps its events, and rollback makes it live again.

The command may be repeated after an interruption.`,
		Example: `  tributary replay promote b
  tributary replay promote b --wait`,
		Args: generationArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withBroker(cmd.Context(), func(ctx context.Context, js jetstream.JetStream) error {
				if _, err := a.readGenerations(ctx, js); err != nil {
					return err
				}
				before, err := pipeline.PromoteGeneration(ctx, js, args[0], wait)
				if err != nil {
					return err
				}
				if before == "" {
					fmt.Fprintf(a.stderr, "%s is live already\n", args[0])
					return nil
				}
				fmt.Fprintf(a.stderr, "%s is live, %s is retired: tributary replay rollback takes that back\n", args[0], before)
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the generation has done every record")
	a.serverFlag(cmd)
	return cmd
}

func (a *app) replayRollbackCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollback [flags]",
		Short: "Make the generation live again that was live before",
		Long: `Make the generation live again that was live before the last promotion. It goes on
where it stopped then, and has the records since within seconds or minutes. The
generation that is live now is retired: replay start takes the work on it up again.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withBroker(cmd.Context(), func(ctx context.Context, js jetstream.JetStream) error {
				if _, err := a.readGenerations(ctx, js); err != nil {
					return err
				}
				from, to, err := pipeline.RollBack(ctx, js)
				if err != nil {
					return err
				}
				fmt.Fprintf(a.stderr, "%s is live again, %s is retired\n", to, from)
				return nil
			})
		},
	}
	a.serverFlag(cmd)
	return cmd
}
