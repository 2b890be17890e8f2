package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/cmd/internal/terminal"
	"tributary/pipeline/claims"
	"tributary/pipeline/streams"
)

// withClaims connects to the broker and passes its claims to work.
func withClaims(ctx context.Context, a *app, output string, work func(context.Context, *claims.Store) error) error {
	if err := checkOutput(output, "table", "json"); err != nil {
		return err
	}
	js, err := a.jetStream(ctx)
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	err = work(ctx, claims.NewStore(js))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("the broker has no bucket %s: start a worker (tributary run), which creates it: %w", streams.ClaimsBucket, err)
	}
	return err
}

// printObjects writes objects to standard output, in the form of --output.
func printObjects(a *app, objects []claims.Object, output string) error {
	if output != "json" {
		return printObjectTable(a, objects)
	}
	for _, o := range objects {
		if err := terminal.WriteJSON(a.stdout, objectJSON{o.Name, o.Size, o.Stored, o.Records}); err != nil {
			return err
		}
	}
	return nil
}
