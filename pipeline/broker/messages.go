package broker

import (
	"context"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// RemoveMessages removes messages of a stream, and earlier ones of the same subjects: a server that was killed
// between a message and its rollup has kept the previous message. It sends all requests at once. A message that is
// already gone is no error.
func RemoveMessages(ctx context.Context, js jetstream.JetStream, stream string, messages []Place) error {
	requests := make([]purgeRequest, len(messages))
	for i, m := range messages {
		requests[i] = purgeRequest{m.Subject, m.Sequence + 1}
	}
	return Wrap(requestAll(ctx, js, "STREAM.PURGE."+stream, requests), "remove messages of stream "+stream)
}

// purgeRequest removes the messages of a subject before a sequence, 0 for all (nats-server, JSApiStreamPurgeRequest).
type purgeRequest struct {
	Subject  string `json:"filter"`
	Sequence uint64 `json:"seq,omitzero"`
}

// Purge removes the messages of a subject, which may have wildcards, before a sequence, 0 for all. It returns their
// number.
func Purge(ctx context.Context, js jetstream.JetStream, stream, subject string, before uint64) (removed uint64, err error) {
	body, err := json.Marshal(purgeRequest{subject, before})
	if err != nil {
		return 0, err
	}
	type answer struct {
		Purged uint64              `json:"purged"`
		Error  *jetstream.APIError `json:"error"`
	}
	a, err := askLeader(ctx, js, "STREAM.PURGE."+stream, body, func(a answer) bool { return !away(a.Error) })
	if err == nil && a.Error != nil {
		err = a.Error
	}
	return a.Purged, Wrap(err, "remove messages of stream "+stream)
}

// BatchBytes is the limit of an atomic batch in bytes: about the size of 900 messages of real logs.
const BatchBytes = 6 << 20

// MaxHeaderBytes bounds the headers of every message that a stage stores. The broker allows 64 KiB; the batch and the
// delivery add headers of their own.
const MaxHeaderBytes = 60 << 10

// BatchHeaderBytes is room for the headers of a batch, of the trace hop, and for the first line.
const BatchHeaderBytes = 1 << 10

// HeaderSize returns the length of h on the wire, without the first line.
func HeaderSize(h nats.Header) int {
	n := 0
	for name, values := range h {
		for _, v := range values {
			n += len(name) + len(v) + len(": \r\n")
		}
	}
	return n
}

// MessageSize returns the bytes of the headers and the body of a message.
func MessageSize(m *nats.Msg) int { return HeaderSize(m.Header) + len(m.Data) }

// Place is the position of a message in a stream.
type Place struct {
	Subject  string
	Sequence uint64
}

// RemoveSequences removes messages of a stream by sequence.
func RemoveSequences(ctx context.Context, js jetstream.JetStream, stream string, sequences []uint64) error {
	requests := make([]deleteRequest, len(sequences))
	for i, sequence := range sequences {
		requests[i] = deleteRequest{sequence, true}
	}
	return Wrap(requestAll(ctx, js, "STREAM.MSG.DELETE."+stream, requests), "remove messages of stream "+stream)
}

// deleteRequest removes one message (nats-server, JSApiMsgDeleteRequest).
type deleteRequest struct {
	Sequence uint64 `json:"seq"`
	NoErase  bool   `json:"no_erase"`
}
