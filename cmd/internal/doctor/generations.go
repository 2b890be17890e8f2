package doctor

import (
	"context"
	"fmt"

	"tributary/cmd/internal/terminal"
	"tributary/normalizers"
	"tributary/pipeline/streams"
)

// generations finds what commands of replay have left half done, and workers that have nothing to do because of
// their revision.
func (x *examination) generations(ctx context.Context) error {
	unfinished, err := streams.Unfinished(ctx, x.js)
	if err != nil {
		return err
	}
	x.d.Problems = append(x.d.Problems, unfinished...)
	waiting, err := streams.WaitingWorkers(ctx, x.js)
	if err != nil {
		return err
	}
	for _, w := range waiting {
		if w.Silent(x.d.At) {
			continue
		}
		x.d.Waiting = append(x.d.Waiting, w)
		x.d.Problems = append(x.d.Problems, fmt.Sprintf("worker %s of revision %d does nothing: the live generation is of revision %d: "+
			"build one of its revision with its program (tributary replay start NAME) and make that live (tributary replay promote NAME), or stop it", terminal.OneLine(w.Name), w.Revision, normalizers.Revision))
	}
	return nil
}
