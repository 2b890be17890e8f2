package streams

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/broker"
)

// edgesBucket is the key-value bucket of the heartbeats of all edges and receivers.
const edgesBucket = "TRIBUTARY_EDGES"

// edgesTTL is how long an edge or a receiver without heartbeats is remembered.
const edgesTTL = 7 * 24 * time.Hour

// HeartbeatInterval is the default interval between two heartbeats of an edge or a receiver.
const HeartbeatInterval = 30 * time.Second

// Heartbeat is the state of a process that is reported to the broker: an [Edge] or a [Receiver].
type Heartbeat interface {
	// Report stores the state. It returns [jetstream.ErrNoStreamResponse] if the bucket is missing, and
	// [ErrHeartbeatsForbidden], without waiting for an answer that never comes, if nc has no right to write it.
	Report(ctx context.Context, nc *nats.Conn) error
}

// Heartbeats reports the state of a process to the broker, for operators of many. Nothing depends on it: a heartbeat
// that fails is logged, and the process goes on.
type Heartbeats struct {
	Conn     *nats.Conn
	Interval time.Duration
	Logger   *slog.Logger

	// Present returns the present state; ended for the last time.
	Present func(ended bool) Heartbeat

	refused bool // the broker does not permit heartbeats
}

// reportTimeout bounds one heartbeat.
const reportTimeout = 5 * time.Second

// Start reports until stop is called, which reports the end.
func (h *Heartbeats) Start(ctx context.Context) (stop func()) {
	beating, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var done sync.WaitGroup
	done.Go(func() { h.run(beating) })
	return func() {
		cancel()
		done.Wait()
		h.beat(context.WithoutCancel(ctx), true)
	}
}

// run reports at intervals, and soon after the first connection.
func (h *Heartbeats) run(ctx context.Context) {
	for {
		wait := h.Interval
		if h.Conn.IsConnected() {
			h.beat(ctx, false)
		} else {
			wait = min(wait, time.Second)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// beat reports the present state, unless the broker is away.
func (h *Heartbeats) beat(ctx context.Context, ended bool) {
	if h.refused || !h.Conn.IsConnected() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	err := h.Present(ended).Report(ctx, h.Conn)
	switch {
	case err == nil:
		return
	case errors.Is(ctx.Err(), context.Canceled):
		return // the process is ending and reports a last time
	}
	h.refused = errors.Is(err, ErrHeartbeatsForbidden)
	h.Logger.WarnContext(ctx, "heartbeats cannot be written: tributary doctor does not see this process, which goes on", "error", err)
}

// ErrHeartbeatsForbidden is returned to a client that may not write heartbeats.
var ErrHeartbeatsForbidden = errors.New("heartbeats are not permitted: let this client publish to $KV." + edgesBucket + ".>")

// report stores a heartbeat under its id.
func report(ctx context.Context, nc *nats.Conn, id string, heartbeat any) error {
	data, err := json.Marshal(heartbeat, json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("encode heartbeat: %w", err)
	}
	inbox, err := broker.OpenInbox(nc)
	if err != nil {
		return err
	}
	defer inbox.Close()
	subject := "$KV." + edgesBucket + "." + id
	if err := errors.Join(nc.PublishRequest(subject, inbox.Subject, data), nc.FlushWithContext(ctx)); err != nil {
		return fmt.Errorf("write heartbeat: %w", err)
	}
	if err := nc.LastError(); errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), subject) {
		return ErrHeartbeatsForbidden
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

// readHeartbeats returns the heartbeats with keys of a pattern, by key. complete sets what only the broker knows.
func readHeartbeats[T any](ctx context.Context, js jetstream.JetStream, keys string, complete func(id string, seen time.Time, of *T)) ([]T, error) {
	ctx, cancel := context.WithTimeout(ctx, broker.RequestTimeout)
	defer cancel()
	kv, err := js.KeyValue(ctx, edgesBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", edgesBucket, err)
	}
	w, err := kv.Watch(ctx, keys, jetstream.IgnoreDeletes())
	if err != nil {
		return nil, fmt.Errorf("read bucket %s: %w", edgesBucket, err)
	}
	defer func() { _ = w.Stop() }()
	byID := map[string]T{}
	for {
		select {
		case entry := <-w.Updates():
			if entry == nil { // the present content was read
				list := make([]T, 0, len(byID))
				for _, id := range slices.Sorted(maps.Keys(byID)) {
					list = append(list, byID[id])
				}
				return list, nil
			}
			var of T
			if json.Unmarshal(entry.Value(), &of) == nil {
				complete(entry.Key(), entry.Created(), &of)
				byID[entry.Key()] = of
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("read bucket %s: %w", edgesBucket, ctx.Err())
		}
	}
}
