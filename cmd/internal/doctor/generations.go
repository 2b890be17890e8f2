package doctor

import (
	"context"
	"fmt"

	"tributary/cmd/internal/terminal"
	"tributary/normalizers"
	"tributary/pipeline/streams"
)

// generations finds what interrupted replay commands left, and workers that do nothing because of their revision.
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
			"with the worker's program, build a generation of its revision (tributary replay start NAME) and make it live (tributary replay promote NAME), or stop the worker", terminal.OneLine(w.Name), w.Revision, normalizers.Revision))
	}
	return nil
}
