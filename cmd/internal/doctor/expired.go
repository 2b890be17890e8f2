package doctor

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/cmd/internal/terminal"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
)

// expired finds records that left the raw stream before they were read.
func (x *examination) expired(ctx context.Context) (err error) {
	if x.d.Expired, err = replay.ReadExpired(ctx, x.js); errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil // the progress of the workers reports it
	}
	for _, e := range x.d.Expired {
		if e.Open() > 0 {
			x.d.Problems = append(x.d.Problems, DescribeExpired(e)+": "+streams.CureExpired)
		}
	}
	return err
}

// DescribeExpired describes lost records that are not acknowledged.
func DescribeExpired(e replay.Expired) string {
	text := terminal.Plural(int(e.Open()), "record")
	if e.Least {
		text = "at least " + text
	}
	return fmt.Sprintf("generation %s: %s, stored between %s and %s, left the stream %s before they were read",
		e.Generation, text, terminal.DateTime(e.From), terminal.DateTime(e.To), e.Stream)
}

// acknowledgedExpired returns how many records of the generation expired unread and are acknowledged.
func (d *Diagnosis) acknowledgedExpired() (n uint64) {
	for _, e := range d.Expired {
		if e.Generation == d.Generation {
			n += e.Acknowledged
		}
	}
	return n
}
