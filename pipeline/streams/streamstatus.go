package streams

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// StreamStatus is the state of a stream, and how it differs from what workers create.
type StreamStatus struct {
	Name      string        `json:"name"`
	Messages  uint64        `json:"messages"`
	Bytes     uint64        `json:"bytes"`
	Consumers int           `json:"consumers"`
	Replicas  int           `json:"replicas"` // as configured
	MaxAge    time.Duration `json:"-"`
	Seconds   int64         `json:"max_age_seconds,omitzero"` // MaxAge in seconds; 0 for ever
	Dropping  bool          `json:"dropping,omitzero"`        // a limit of messages or bytes discards the oldest messages
	// MaxBytes and MaxMessages are the limits at which the stream refuses messages; 0 for none.
	MaxBytes    int64    `json:"max_bytes,omitzero"`
	MaxMessages int64    `json:"max_messages,omitzero"`
	Cluster     string   `json:"cluster,omitzero"`
	Leader      string   `json:"leader,omitzero"` // name of its leading server; empty without a leader or a cluster
	Gone        []string `json:"gone,omitzero"`   // servers of replicas that do not answer
	Behind      []string `json:"behind,omitzero"` // servers of replicas that lack messages
	Drift       []string `json:"drift,omitzero"`  // differences from what workers create
}

// goneAfter is how long a replica may be silent towards its leader before it counts as gone. The server itself
// reports that only after minutes.
const goneAfter = 10 * time.Second

// ReadStreams reads the existing streams of a generation, and those that belong to no generation.
func ReadStreams(ctx context.Context, js jetstream.JetStream, t Topology) ([]StreamStatus, error) {
	var list []StreamStatus
	for _, want := range append(append(slices.Concat(t.rawConfigs(), t.EventsConfigs()), t.claimsConfig(), t.sessionsConfig()),
		jetstream.StreamConfig{Name: SummariesStream(t.Generation)},
		jetstream.StreamConfig{Name: "KV_" + ControlBucket}, jetstream.StreamConfig{Name: "KV_" + WorkersBucket}, jetstream.StreamConfig{Name: "KV_" + edgesBucket},
	) {
		stream, err := js.Stream(ctx, want.Name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("stream %s: %w", want.Name, err)
		}
		list = append(list, statusOf(stream.CachedInfo(), want, t))
	}
	return list, nil
}

// statusOf compares a stream with its configuration. If want has only a name, the configuration is not compared.
func statusOf(info *jetstream.StreamInfo, want jetstream.StreamConfig, t Topology) StreamStatus {
	have := info.Config
	s := StreamStatus{
		Name: have.Name, Messages: info.State.Msgs, Bytes: info.State.Bytes, Consumers: info.State.Consumers, Replicas: have.Replicas, MaxAge: have.MaxAge, Seconds: int64(have.MaxAge.Seconds()),
		Dropping: have.Discard == jetstream.DiscardOld && (have.MaxMsgs > 0 || have.MaxBytes > 0 || have.MaxMsgsPerSubject > 1),
	}
	if have.Discard == jetstream.DiscardNew {
		s.MaxBytes, s.MaxMessages = max(have.MaxBytes, 0), max(have.MaxMsgs, 0)
	}
	if c := info.Cluster; c != nil {
		s.Cluster, s.Leader = c.Name, c.Leader
		for _, r := range c.Replicas {
			switch {
			case r.Offline, !r.Current && r.Active > goneAfter:
				s.Gone = append(s.Gone, r.Name)
			case !r.Current:
				s.Behind = append(s.Behind, r.Name)
			}
		}
	}
	s.drift("replicas", have.Replicas, t.Replicas, t.Replicas > 0)
	if len(want.Subjects) == 0 {
		return s
	}
	if e, ok := errors.AsType[*TopologyError](contradiction(have, want)); ok {
		for _, d := range e.Differences {
			s.drift(d.Setting, d.Have, d.Want, true)
		}
	}
	s.drift("direct get", have.AllowDirect, true, true)
	s.drift("atomic publish", have.AllowAtomicPublish, true, want.AllowAtomicPublish)
	s.drift("rollup", have.AllowRollup, want.AllowRollup, true)
	s.drift("message TTL", have.AllowMsgTTL, true, want.AllowMsgTTL)
	s.drift("duplicate window", have.Duplicates, rawDuplicates(have.MaxAge), want.Duplicates > 0)
	s.drift("maximal age", have.MaxAge, want.MaxAge, want.MaxAge > 0 && !want.AllowRollup)
	return s
}

// drift notes a setting that differs from what workers create, if compared is set.
func (s *StreamStatus) drift(setting string, have, want any, compared bool) {
	if h, w := fmt.Sprint(have), fmt.Sprint(want); compared && h != w {
		s.Drift = append(s.Drift, fmt.Sprintf("%s %s, want %s", setting, h, w))
	}
}
