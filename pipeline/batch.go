package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

// MaxBatch is how many messages the broker takes in one atomic batch.
const MaxBatch = 1000

// requestTimeout is how long an answer of the broker is waited for.
const requestTimeout = 5 * time.Second

// slowUplink is how many bytes a second a connection takes at least.
const slowUplink = 100 << 10

// Headers of an atomic batch (ADR-50).
const (
	batchIDHeader       = "Nats-Batch-Id"
	batchSequenceHeader = "Nats-Batch-Sequence"
	batchCommitHeader   = "Nats-Batch-Commit"
)

// ErrUnconfirmed is the outcome of a batch whose acknowledgement is not the one of this
// batch in full.
var ErrUnconfirmed = errors.New("batch not confirmed")

// PublishBatch stores msgs, all for subjects of one stream, together and in their order
// or not at all, and returns the stream sequence of the last. They lie together: the
// others have the sequences before it. It sets the batch headers of each message, whose
// Header must not be nil.
//
// Only a nil error says that they are stored. With an error that is a
// [jetstream.APIError] the server says that they are not; with any other they may be
// stored, now or a little later: whoever sends them again must be able to tell.
//
// The answer is waited for as long as the messages may take on a slow connection, but not
// beyond the loss of that connection.
func PublishBatch(ctx context.Context, nc *nats.Conn, msgs []*nats.Msg) (uint64, error) {
	if len(msgs) == 0 || len(msgs) > MaxBatch {
		return 0, fmt.Errorf("publish batch: %d messages are not in 1 to %d", len(msgs), MaxBatch)
	}
	size := 0
	for _, m := range msgs {
		size += m.Size()
	}
	ctx, stop := context.WithTimeout(ctx, requestTimeout+time.Duration(size)*time.Second/slowUplink)
	defer stop()
	ctx, cancel := untilDisconnected(ctx, nc)
	defer cancel()
	if ctx.Err() != nil {
		return 0, context.Cause(ctx) // a batch without its end keeps its place on the server
	}
	id := nuid.Next()
	for i, m := range msgs {
		m.Header[batchIDHeader] = []string{id}
		m.Header[batchSequenceHeader] = []string{strconv.Itoa(i + 1)}
		delete(m.Header, batchCommitHeader)
		if i == len(msgs)-1 {
			break
		}
		if err := nc.PublishMsg(m); err != nil {
			return 0, fmt.Errorf("publish batch: message %d of %d: %w", i+1, len(msgs), err)
		}
	}
	last := msgs[len(msgs)-1]
	last.Header[batchCommitHeader] = []string{"1"}
	reply, err := nc.RequestMsgWithContext(ctx, last)
	if ctx.Err() != nil && err != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return 0, fmt.Errorf("publish batch: %w", err)
	}
	var ack struct {
		Stream   string              `json:"stream"`
		Sequence uint64              `json:"seq"`
		Batch    string              `json:"batch"`
		Count    int                 `json:"count"`
		Error    *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(reply.Data, &ack); err != nil {
		return 0, fmt.Errorf("publish batch: %w: %w", ErrUnconfirmed, err)
	}
	if ack.Error != nil {
		return 0, fmt.Errorf("publish batch: %w", ack.Error)
	}
	if ack.Batch != id || ack.Count != len(msgs) {
		return 0, fmt.Errorf("publish batch: %w: %d of %d messages", ErrUnconfirmed, ack.Count, len(msgs))
	}
	return ack.Sequence, nil
}

// untilDisconnected returns a context that ends with ctx or when the connection is lost.
func untilDisconnected(ctx context.Context, nc *nats.Conn) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	lost := nc.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	go func() {
		select {
		case <-lost:
			cancel(errDisconnected)
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel(nil)
		nc.RemoveStatusListener(lost)
	}
}

// fenced reports whether the server refused a message because another one of its
// subject came first.
func fenced(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) &&
		(api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}
