package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
)

func replayPromoteCommand(a *app) *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use:   "promote NAME [flags]",
		Short: "Make a generation the live one",
		Long: `Make a generation the live one, once it has done every record. Workers, tail and the
other commands follow the live generation; a consumer of your own reads its name from
the key current of the bucket TRIBUTARY. The generation that was live is retired: it
keeps its events, and rollback makes it live again.

Where users have rights at the broker, consumers need those for the streams of the new
generation before they follow: deploy/nats/reload.md. The command names the streams.

After an interruption, run the command again: it finishes the promotion; until then
other commands refuse to change the live generation.`,
		Example: `  tributary replay promote b
  tributary replay promote b --wait`,
		Args: generationArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withBroker(cmd.Context(), func(ctx context.Context, js jetstream.JetStream) error {
				all, err := readGenerations(ctx, js)
				if err != nil {
					return err
				}
				if all.Live != args[0] && js.Conn().AuthRequired() {
					fmt.Fprintln(a.stderr, rightsOfReaders(args[0]))
				}
				before, err := replay.Promote(ctx, js, args[0], wait)
				if err != nil {
					return err
				}
				if before == "" {
					fmt.Fprintf(a.stderr, "%s is live already\n", args[0])
					return nil
				}
				fmt.Fprintf(a.stderr, "%s%s is live, %s is retired: tributary replay rollback takes that back\n", finished(all, "promotion"), args[0], before)
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the generation has done every record")
	a.serverFlag(cmd)
	return cmd
}

// rightsOfReaders describes the rights that consumers need for a generation, because no command can read the rights of
// other users.
func rightsOfReaders(generation string) string {
	return fmt.Sprintf("consumers follow to %s with rights for %s and %s at the broker, and wait without: deploy/nats/reload.md, Another generation, adds them",
		generation, streams.EventsStream(generation), streams.SummariesStream(generation))
}

// finished begins the message of a command that finished an interrupted change.
func finished(before *streams.Generations, what string) string {
	if before.Cutover.Open() {
		return "finished the " + what + " that was interrupted: "
	}
	return ""
}

func replayRollbackCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollback [NAME] [flags]",
		Short: "Make the generation live again that was live before",
		Long: `Make the generation live again that was live before the last promotion. It continues
where it stopped then, and has the records since within seconds or minutes. The
generation that is live now is retired: replay start resumes the work on it.

After an interruption, run the command again: it finishes the rollback. It goes back one
promotion and no further, even if it runs again; to revert the promotion before that,
too, name the generation to go back to.`,
		Example: `  tributary replay rollback
  tributary replay rollback v1`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return generationArgs(1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			name := strings.Join(args, "")
			return a.withBroker(cmd.Context(), func(ctx context.Context, js jetstream.JetStream) error {
				return rollBack(ctx, a, js, name)
			})
		},
	}
	a.serverFlag(cmd)
	return cmd
}

// rollBack rolls back and prints which generation is live now.
func rollBack(ctx context.Context, a *app, js jetstream.JetStream, name string) error {
	all, err := readGenerations(ctx, js)
	if err != nil {
		return err
	}
	from, to, err := replay.RollBackTo(ctx, js, name)
	if err != nil {
		return err
	}
	half, err := all.Find(from)
	if all.Live != to || all.Cutover.Open() || err == nil && half.State == streams.StateReplaying && half.Replaces == to {
		fmt.Fprintf(a.stderr, "%s%s is live again, %s is retired\n", finished(all, "rollback"), to, from)
		return nil
	}
	text := fmt.Sprintf("%s is live since the rollback from %s: nothing was changed", to, from)
	if g, err := all.Find(to); err == nil && g.Replaces != "" {
		text += ": tributary replay rollback " + g.Replaces + " goes back further"
	}
	fmt.Fprintln(a.stderr, text)
	return nil
}
