package streams

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Receiver is the heartbeat of a receiver: a process that takes records over HTTP and gRPC. Times are by the clock of
// the receiver, except for Seen. It has nothing of a request.
type Receiver struct {
	ID        string   `json:"id"`      // key in the bucket: the host and a digest of the addresses
	Host      string   `json:"host"`    // name of the machine
	Version   string   `json:"version"` // of the program
	Addresses []string `json:"addresses"`

	Ended    bool      `json:"ended,omitzero"`    // ended by itself
	Since    time.Time `json:"since"`             // when it started
	Requests int64     `json:"requests"`          // answered since it started
	Records  int64     `json:"records"`           // acknowledged since it started
	Received time.Time `json:"received,omitzero"` // when the broker acknowledged the last record

	Refused map[string]Refusals `json:"refused,omitempty"` // by the outcomes of tributary_receive_requests_total

	Error   string    `json:"error,omitzero"` // of the broker, until it acknowledges records again
	ErrorAt time.Time `json:"error_at,omitzero"`

	Seen time.Time `json:"seen,omitzero"` // when the broker stored the heartbeat, by its clock; set on reading
}

// Refusals are the requests that a receiver has refused, in whole or in part, with the same outcome.
type Refusals struct {
	Requests int64     `json:"requests"` // since the receiver started
	Final    bool      `json:"final"`    // the clients do not send such requests again
	Last     time.Time `json:"last"`
	Text     string    `json:"text"` // why the last one was refused
}

// receiverKeys is the prefix of the ids of receivers. They have one token more than those of edges.
const receiverKeys = "receivers."

// ReceiverID returns the id of a receiver.
func ReceiverID(host, addresses string) string { return receiverKeys + EdgeID(host, addresses) }

// Report stores r as the present heartbeat of its receiver, see [Heartbeats].
func (r Receiver) Report(ctx context.Context, nc *nats.Conn) error { return report(ctx, nc, r.ID, r) }

// Receivers returns the receivers seen in the last 7 days, by id.
func Receivers(ctx context.Context, js jetstream.JetStream) ([]Receiver, error) {
	return readHeartbeats(ctx, js, receiverKeys+"*.*", func(id string, seen time.Time, r *Receiver) { r.ID, r.Seen = id, seen })
}
