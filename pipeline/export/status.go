package export

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/events"
	"tributary/pipeline/streams"
)

// ErrNoExport means that there is no export at a place.
var ErrNoExport = errors.New("no export is there")

// ReadStatus returns the progress of the export at the Dir or Bucket of cfg. It changes nothing, and the export may
// run meanwhile.
func ReadStatus(ctx context.Context, js jetstream.JetStream, cfg Config) (events.ReaderStatus, error) {
	var r events.Reader
	for cell := 0; ; cell++ {
		p := cfg.place(cell)
		data, err := p.load(ctx)
		switch {
		case err != nil:
			return events.ReaderStatus{}, err
		case data == nil && cell == 0:
			return events.ReaderStatus{}, fmt.Errorf("%s: %w", p, ErrNoExport)
		case data == nil:
			return r.Status(ctx, js)
		}
		var m manifest
		if err := json.Unmarshal(data, &m); err != nil {
			return events.ReaderStatus{}, fmt.Errorf("%s: %s/%s is not a manifest", p, controlDir, p.manifest())
		}
		if cell == 0 {
			r.Generation, r.Created = m.Generation, m.Created
		}
		position := func(sequence uint64) uint64 {
			return max(sequence, streams.PlaceOf(cell, 0)) - streams.PlaceOf(cell, 0)
		}
		r.Done = r.Done.With(cell, max(position(m.Through), position(m.Read)))
		r.Marks = append(r.Marks, m.Marks.UpTo(position(m.Through)))
	}
}
