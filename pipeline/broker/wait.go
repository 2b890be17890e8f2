package broker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Unavailable reports whether err means that the broker is temporarily unavailable: it does not answer, the connection
// was lost while it was asked, or it has no leader for what was asked.
func Unavailable(err error) bool {
	var api *jetstream.APIError
	return errors.Is(err, ErrDisconnected) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, nats.ErrReconnectBufExceeded) || errors.Is(err, nats.ErrNoResponders) ||
		errors.Is(err, context.DeadlineExceeded) || errors.As(err, &api) && (api.Code == http.StatusServiceUnavailable || api.ErrorCode == errCodeNoPeers)
}

// errCodeNoPeers is the server's error for a cluster with too few servers for the replicas of a stream
// (JSClusterNoPeersErr).
const errCodeNoPeers jetstream.ErrorCode = 10005

// ErrDisconnected ends everything that began on a lost connection.
var ErrDisconnected = errors.New("connection lost")

// Closed reports whether a channel is closed.
func Closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Pause waits for d, or until ctx ends and returns its cause.
func Pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Wrap returns err with doing in front; nil stays nil.
func Wrap(err error, doing string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}
