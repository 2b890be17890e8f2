package broker

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

// MaxBatch is the maximum number of messages in one atomic batch.
const MaxBatch = 1000

// RequestTimeout bounds the wait for one answer of the broker.
const RequestTimeout = 5 * time.Second

// slowUplink is the slowest connection that must get a batch through, in bytes per second.
const slowUplink = 100 << 10

// Headers of an atomic batch (ADR-50).
const (
	BatchIDHeader       = "Nats-Batch-Id"
	BatchSequenceHeader = "Nats-Batch-Sequence"
	BatchCommitHeader   = "Nats-Batch-Commit"
)

// ErrUnconfirmed means that the answer to a batch did not acknowledge all of its messages.
var ErrUnconfirmed = errors.New("batch not confirmed")

// PublishBatch stores msgs in their order in one atomic batch: all of them or none. All
// subjects must belong to one stream. It returns the stream sequence of the last message;
// the others have the consecutive sequences before it. PublishBatch sets the batch headers
// of each message, whose Header must not be nil.
//
// Only a nil error means that the messages are stored. A [jetstream.APIError] means that
// they are not. After any other error the outcome is unknown: they may be stored, now or a
// little later, so a caller that sends them again needs a way to detect duplicates.
//
// nats-server 2.15 stores nothing of a batch during which the leader of the stream changes, and refuses a rollup
// of a subject that the batch has written. A subscriber of a single server may see the first events of a batch
// before the last is stored.
//
// The wait for the answer is bounded by the time that the messages take on a slow connection, and ends early when the
// connection is lost.
func PublishBatch(ctx context.Context, nc *nats.Conn, msgs []*nats.Msg) (uint64, error) {
	size := 0
	for _, m := range msgs {
		size += m.Size()
	}
	return PublishSized(ctx, nc, msgs, size)
}

// PublishSized is [PublishBatch] for messages of a known size, in bytes.
func PublishSized(ctx context.Context, nc *nats.Conn, msgs []*nats.Msg, size int) (uint64, error) {
	if len(msgs) == 0 || len(msgs) > MaxBatch {
		return 0, fmt.Errorf("publish batch of %d messages: it may have 1 to %d", len(msgs), MaxBatch)
	}
	ctx, stop := context.WithTimeout(ctx, RequestTimeout+time.Duration(size)*time.Second/slowUplink)
	defer stop()
	ctx, cancel := UntilDisconnected(ctx, nc)
	defer cancel()
	if ctx.Err() != nil {
		return 0, context.Cause(ctx) // an unfinished batch occupies one of the server's 50 slots for 10 seconds
	}
	began := time.Now()
	id := nuid.Next()
	for i, m := range msgs {
		m.Header[BatchIDHeader] = []string{id}
		m.Header[BatchSequenceHeader] = []string{strconv.Itoa(i + 1)}
		delete(m.Header, BatchCommitHeader)
		if i == len(msgs)-1 {
			break
		}
		if err := nc.PublishMsg(m); err != nil {
			return 0, fmt.Errorf("publish batch: message %d of %d: %w", i+1, len(msgs), err)
		}
	}
	last := msgs[len(msgs)-1]
	last.Header[BatchCommitHeader] = []string{"1"}
	reply, err := nc.RequestMsgWithContext(ctx, last)
	if ctx.Err() != nil && err != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return 0, fmt.Errorf("publish batch: %w", NameRequest(err, fmt.Sprintf("a batch of %d messages", len(msgs)), began))
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
		return 0, fmt.Errorf("publish batch: %w%s", ack.Error, cureOf(ack.Error))
	}
	if ack.Batch != id || ack.Count != len(msgs) {
		return 0, fmt.Errorf("publish batch: %w: %d of %d messages", ErrUnconfirmed, ack.Count, len(msgs))
	}
	return ack.Sequence, nil
}

// Codes with which the server rejects a message or batch for its content.
const (
	codeMessageTooLarge = 10054 // exceeds max_msg_size of the stream
	codeHeadersTooLarge = 10097
	codeIncompleteBatch = 10176 // one of its messages was rejected; only sending that one alone shows why
	codeDuplicate       = 10201 // one of its messages is already stored
)

// Rejects reports whether the broker rejected the content of what was sent, so that sending it again in the same way
// fails again.
func Rejects(err error) bool {
	if errors.Is(err, nats.ErrMaxPayload) {
		return true
	}
	api, ok := errors.AsType[*jetstream.APIError](err)
	if !ok {
		return false
	}
	switch api.ErrorCode {
	case codeMessageTooLarge, codeHeadersTooLarge, codeIncompleteBatch, codeDuplicate:
		return true
	default:
		return false
	}
}

// IsDuplicate reports whether the server refused a batch because it has stored a message with the id of one of its
// messages.
func IsDuplicate(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && api.ErrorCode == codeDuplicate
}

// cureOf returns the cure for a persistent error with which the server refuses batches; empty for none.
func cureOf(err *jetstream.APIError) string {
	if err.ErrorCode != codeIncompleteBatch {
		return ""
	}
	return " (the server has no slot for another batch: batches torn by a limit or a full disk occupy theirs. If this repeats, restart nats-server)"
}

// UntilDisconnected returns a context for requests to the broker. It ends with ctx, or when the connection is lost,
// because then no answer can come.
func UntilDisconnected(ctx context.Context, nc *nats.Conn) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	lost := nc.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	go func() {
		select {
		case <-lost:
			cancel(ErrDisconnected)
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel(nil)
		nc.RemoveStatusListener(lost)
	}
}

// CauseOf returns err, or ErrDisconnected if err is the end of a context of [UntilDisconnected] by a lost connection.
func CauseOf(ctx context.Context, err error) error {
	if lost := context.Cause(ctx); errors.Is(err, context.Canceled) && errors.Is(lost, ErrDisconnected) {
		return lost
	}
	return err
}

// Fenced reports whether the server refused a message because its subject has a newer message than the expected one.
func Fenced(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) &&
		(api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}
