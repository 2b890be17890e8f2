package broker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// unanswered is the error of a request that the broker did not answer in time. It unwraps to
// [context.DeadlineExceeded].
type unanswered struct {
	request string
	waited  time.Duration
}

// Error implements error.
func (e unanswered) Error() string {
	return fmt.Sprintf("no answer of the broker to %s within %v", e.request, e.waited)
}

// Unwrap returns [context.DeadlineExceeded].
func (unanswered) Unwrap() error { return context.DeadlineExceeded }

// Unanswered reports whether the broker did not answer: it is away, starting or stopping, a stream has no leader, or
// a request was lost or ended with its connection. The same request may succeed later. The end of the caller's own
// context counts, too.
func Unanswered(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.Code >= http.StatusInternalServerError || slices.ContainsFunc([]error{
		context.DeadlineExceeded, context.Canceled, nats.ErrTimeout, nats.ErrNoResponders, nats.ErrReconnectBufExceeded,
		ErrDisconnected, ErrSilent, ErrLate, ErrGap, errStatus,
	}, func(e error) bool { return errors.Is(err, e) })
}

// NameRequest returns err. For the end of a deadline it returns an error that names the request and how long it
// waited since began.
func NameRequest(err error, request string, began time.Time) error {
	if !errors.Is(err, context.DeadlineExceeded) || errors.As(err, new(unanswered)) {
		return err
	}
	return unanswered{request, time.Since(began).Round(100 * time.Millisecond)}
}
