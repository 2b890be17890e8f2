package main

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/cmd/internal/terminal"
	"tributary/normalizers"
	"tributary/pipeline/streams"
)

// examineGenerations finds what commands of replay have left half done, and workers that have nothing to do because of
// their revision.
func (a *app) examineGenerations(ctx context.Context, js jetstream.JetStream, d *diagnosis) error {
	unfinished, err := streams.Unfinished(ctx, js)
	if err != nil {
		return err
	}
	d.Problems = append(d.Problems, unfinished...)
	waiting, err := streams.WaitingWorkers(ctx, js)
	if err != nil {
		return err
	}
	for _, w := range waiting {
		if w.Silent(d.At) {
			continue
		}
		d.Waiting = append(d.Waiting, w)
		d.Problems = append(d.Problems, fmt.Sprintf("worker %s of revision %d does nothing: the live generation is of revision %d: "+
			"build one of its revision with its program (tributary replay start NAME) and make that live (tributary replay promote NAME), or stop it", terminal.OneLine(w.Name), w.Revision, normalizers.Revision))
	}
	return nil
}
