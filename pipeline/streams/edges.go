package streams

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Edge is the heartbeat of an edge: a process that ships the logs of a machine. Times are by the clock of the edge,
// except for Seen.
type Edge struct {
	ID      string `json:"id"`      // key in the bucket: the host and a digest of where the edge keeps its offsets
	Host    string `json:"host"`    // name of the machine
	Version string `json:"version"` // of the program

	Follows bool      `json:"follows"`          // follows the logs; false if it ships the present content and ends
	Ended   bool      `json:"ended,omitzero"`   // ended by itself
	Since   time.Time `json:"since"`            // when it started
	Files   int       `json:"files"`            // known logs
	Hidden  int       `json:"hidden,omitzero"`  // hidden folders that it skipped
	Records int       `json:"records"`          // acknowledged since it started
	Shipped time.Time `json:"shipped,omitzero"` // when the broker acknowledged the last record

	Behind int       `json:"behind"`          // logs with content that can be sent and is not sent yet
	Bytes  int64     `json:"bytes"`           // upper bound of that content on disk
	Oldest time.Time `json:"oldest,omitzero"` // when the log that has been behind for longest was written
	Held   int       `json:"held,omitzero"`   // logs that end in an unfinished record, which waits for its rest

	Unknown     int    `json:"unknown,omitzero"`      // files that it does not send, because they are no logs of known agents
	UnknownLast string `json:"unknown_last,omitzero"` // last such file with the reason; never its content

	Error   string    `json:"error,omitzero"`    // last error; never content of a log
	ErrorAt time.Time `json:"error_at,omitzero"` // when that was last noticed

	Seen time.Time `json:"seen,omitzero"` // when the broker stored the heartbeat, by its clock; set on reading
}

// EdgeID returns the id of an edge from its host and the place of its state. Two edges of a machine have different
// ids if each has a state of its own.
func EdgeID(host, state string) string {
	valid := func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '-'
	}
	host = strings.Map(valid, host)
	sum := sha256.Sum256([]byte(state))
	return host[:min(len(host), 64)] + "." + hex.EncodeToString(sum[:4])
}

// Report stores e as the present heartbeat of its edge, see [Heartbeats].
func (e Edge) Report(ctx context.Context, nc *nats.Conn) error { return report(ctx, nc, e.ID, e) }

// Edges returns the edges seen in the last 7 days, by id. A broker provisioned by an earlier version has no bucket of
// heartbeats, and so no edges.
func Edges(ctx context.Context, js jetstream.JetStream) ([]Edge, error) {
	return readHeartbeats(ctx, js, "*.*", func(id string, seen time.Time, e *Edge) { e.ID, e.Seen = id, seen })
}
