package streams

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/broker"
)

// edgesBucket is the key-value bucket of the heartbeats of all edges.
const edgesBucket = "TRIBUTARY_EDGES"

// edgesTTL is how long an edge without heartbeats is remembered.
const edgesTTL = 7 * 24 * time.Hour

// EdgeHeartbeat is the default interval between two heartbeats of an edge.
const EdgeHeartbeat = 30 * time.Second

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

// ErrEdgesForbidden is returned to a client that may not write heartbeats.
var ErrEdgesForbidden = errors.New("heartbeats of edges are not permitted: let this client publish to $KV." + edgesBucket + ".>")

// Report stores e as the present heartbeat of its edge. It returns [jetstream.ErrNoStreamResponse] if the bucket is
// missing, and [ErrEdgesForbidden], without waiting for an answer that never comes, if nc has no right to write
// heartbeats.
func (e Edge) Report(ctx context.Context, nc *nats.Conn) error {
	data, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode heartbeat: %w", err)
	}
	inbox, err := broker.OpenInbox(nc)
	if err != nil {
		return err
	}
	defer inbox.Close()
	subject := "$KV." + edgesBucket + "." + e.ID
	if err := errors.Join(nc.PublishRequest(subject, inbox.Subject, data), nc.FlushWithContext(ctx)); err != nil {
		return fmt.Errorf("write heartbeat: %w", err)
	}
	if err := nc.LastError(); errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), subject) {
		return ErrEdgesForbidden
	}
	m, err := inbox.Next(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("write heartbeat: %w", err)
	case m.Header.Get("Status") == "503":
		return jetstream.ErrNoStreamResponse
	}
	var ack struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &ack); err != nil {
		return fmt.Errorf("write heartbeat: %w", err)
	}
	if ack.Error != nil {
		return fmt.Errorf("write heartbeat: %w", ack.Error)
	}
	return nil
}

// Edges returns the edges seen in the last 7 days, by id. A broker provisioned by an earlier version has no bucket of
// edges, and so no edges.
func Edges(ctx context.Context, js jetstream.JetStream) ([]Edge, error) {
	ctx, cancel := context.WithTimeout(ctx, broker.RequestTimeout)
	defer cancel()
	kv, err := js.KeyValue(ctx, edgesBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", edgesBucket, err)
	}
	w, err := kv.WatchAll(ctx, jetstream.IgnoreDeletes())
	if err != nil {
		return nil, fmt.Errorf("read bucket %s: %w", edgesBucket, err)
	}
	defer func() { _ = w.Stop() }()
	byID := map[string]Edge{}
	for {
		select {
		case entry := <-w.Updates():
			if entry == nil { // the present content was read
				edges := make([]Edge, 0, len(byID))
				for _, id := range slices.Sorted(maps.Keys(byID)) {
					edges = append(edges, byID[id])
				}
				return edges, nil
			}
			var e Edge
			if json.Unmarshal(entry.Value(), &e) == nil {
				e.ID, e.Seen = entry.Key(), entry.Created()
				byID[e.ID] = e
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("read bucket %s: %w", edgesBucket, ctx.Err())
		}
	}
}
