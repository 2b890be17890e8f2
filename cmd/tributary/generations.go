package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
	"tributary/pipeline/streams"
)

// generationArgs is for commands whose arguments are n names of generations.
func generationArgs(n int) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != n {
			return fmt.Errorf("%s: name %s", terminal.Plural(len(args), "argument"), terminal.Plural(n, "generation"))
		}
		for _, name := range args {
			if err := envelopes.CheckGeneration(name); err != nil {
				return fmt.Errorf("%q: write 1 to 32 of a-z, 0-9 and -, and not current", name)
			}
		}
		return nil
	}
}

// readGenerations reads the generations of the broker.
func readGenerations(ctx context.Context, js jetstream.JetStream) (*streams.Generations, error) {
	if _, err := js.Stream(ctx, streams.RawStream); err != nil {
		return nil, fmt.Errorf("%w: start a worker, which creates what is missing: tributary run", err)
	}
	return streams.ReadGenerations(ctx, js)
}

// withReplayCure adds the cure to an error of a replay.
func withReplayCure(err error) error {
	if errors.Is(err, streams.ErrExpired) {
		return fmt.Errorf("%w: pass --allow-expired to build it from what is left, or --sequence for a part", err)
	}
	return err
}
