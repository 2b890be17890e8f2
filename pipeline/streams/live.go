package streams

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/broker"
)

// liveEvery is the interval at which the live generation is checked.
const liveEvery = time.Second

// awaitChange waits until another generation than the named one is live, and returns its name. It keeps waiting while
// the broker is away. Its error is the cause of the end of ctx.
func awaitChange(ctx context.Context, js jetstream.JetStream, generation string) (string, error) {
	for before := generation; ; {
		name, err := LiveGeneration(ctx, js)
		switch {
		case err != nil:
			before = generation
		case name != generation && name == before: // a broker that is stopping lacks the bucket, too, like one without a generation
			return name, nil
		default:
			before = name
		}
		if err := broker.Pause(ctx, liveEvery); err != nil {
			return "", err
		}
	}
}

// errNotLive ends the work on a generation that is no longer live.
var errNotLive = errors.New("another generation is live")

// WhileLive calls work for a generation, with a context that ends when another one becomes live. If the change ended
// work, also by dropping the stream that work reads, it returns the name of the new one, else the error of work. It
// needs the right to read one message of the bucket.
func WhileLive(ctx context.Context, js jetstream.JetStream, generation string, work func(context.Context) error) (next string, err error) {
	working, stop := context.WithCancelCause(ctx)
	watching, end := context.WithCancel(ctx)
	changed := make(chan string, 1)
	go func() {
		defer close(changed)
		if name, err := awaitChange(watching, js, generation); err == nil {
			changed <- name
			stop(errNotLive)
		}
	}()
	err = work(working)
	if errors.Is(err, jetstream.ErrStreamNotFound) && watching.Err() == nil { // the drop may be noticed before the change
		timer := time.AfterFunc(3*liveEvery, end)
		next = <-changed
		timer.Stop()
	}
	end()
	if name, ok := <-changed; ok {
		next = name
	}
	stop(nil)
	over := err == nil || errors.Is(err, errNotLive) || errors.Is(err, context.Canceled) || errors.Is(err, jetstream.ErrStreamNotFound)
	if next != "" && over && ctx.Err() == nil {
		return next, nil
	}
	return "", err
}

// LiveSince returns when the broker stored the name of the live generation.
func LiveSince(ctx context.Context, js jetstream.JetStream) (time.Time, error) {
	m, err := broker.LastStored(ctx, js, "KV_"+ControlBucket, ControlSubject(currentKey))
	if err != nil {
		return time.Time{}, broker.Wrap(err, "read the name of the live generation")
	}
	return m.Time, nil
}

// BrokerSince returns when the first key of the control bucket was stored. That key is written once, so another time
// means another broker. The result is zero if the bucket has lost the key.
func BrokerSince(ctx context.Context, js jetstream.JetStream) (time.Time, error) {
	m, err := broker.ReadStored(ctx, js, "KV_"+ControlBucket, broker.GetRequest{Sequence: 1})
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound), errors.Is(err, jetstream.ErrStreamNotFound):
		return time.Time{}, nil
	case err != nil:
		return time.Time{}, broker.Wrap(err, "read the first key of bucket "+ControlBucket)
	}
	return m.Time, nil
}
