package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers"
)

// Names of what lies on the server.
const (
	RawStream = "RAW"
	Bucket    = "TRIBUTARY" // key-value bucket: partitions, current, generation.<name>
)

// Keys of [Bucket].
const (
	partitionsKey    = "partitions"
	currentKey       = "current"
	generationPrefix = "generation."
)

// EventsStream is the name of the stream that holds all that a generation produces:
// events, dead letters, session states and checkpoints.
func EventsStream(generation string) string { return "EVENTS_" + generation }

// Topology is what has to exist on the server, and its limits, as a value.
type Topology struct {
	Generation string // name of a run over the raw stream, [a-z0-9-]{1,32}
	Partitions int    // of the raw stream, 1 to 1024; fixed when the stream is made
	Replicas   int    // of every stream, 1 to 5; 0 leaves what exists as it is and makes new ones with 1

	RawMaxAge    time.Duration // how long raw records are kept; 0 leaves what exists as it is and makes a new stream that keeps them for ever
	EventsMaxAge time.Duration // how long events are kept, in whole seconds; 0 for ever
}

// DefaultTopology is the topology that a command starts with.
func DefaultTopology() Topology { return Topology{Generation: "v1", Partitions: 16} }

// Validate reports everything that is wrong with t, as [ErrTopology].
func (t Topology) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrTopology}, args...)...))
		}
	}
	if err := envelopes.CheckGeneration(t.Generation); err != nil {
		errs = append(errs, fmt.Errorf("%w: %w", ErrTopology, err))
	}
	check(t.Partitions >= 1 && t.Partitions <= 1024, "%d partitions are not in 1 to 1024", t.Partitions)
	check(t.Replicas >= 0 && t.Replicas <= 5, "%d replicas are not in 0 to 5", t.Replicas)
	check(t.RawMaxAge == 0 || t.RawMaxAge >= time.Second, "raw records kept for %v are not kept for a second", t.RawMaxAge)
	check(t.EventsMaxAge == 0 || t.EventsMaxAge >= time.Second, "events kept for %v are not kept for a second", t.EventsMaxAge)
	return errors.Join(errs...)
}

// rawConfig is the raw stream. The transform puts a session into a partition; what does
// not match its source, subjects with literal wildcards, is stored as it came and read
// by partition 0.
func (t Topology) rawConfig() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        RawStream,
		Description: "Raw records of coding agents.",
		Subjects:    []string{"raw.*.*"},
		SubjectTransform: &jetstream.SubjectTransformConfig{
			Source:      "raw.*.*",
			Destination: fmt.Sprintf("raw.{{partition(%d,1,2)}}.{{wildcard(1)}}.{{wildcard(2)}}", t.Partitions),
		},
		Retention:          jetstream.LimitsPolicy,
		Storage:            jetstream.FileStorage,
		Compression:        jetstream.S2Compression,
		Replicas:           max(t.Replicas, 1),
		MaxAge:             t.RawMaxAge,
		Duplicates:         rawDuplicates(t.RawMaxAge),
		AllowAtomicPublish: true,
		AllowDirect:        true,
	}
}

// rawDuplicates is the window in which a message id is remembered; the server wants it
// to end before the messages do.
func rawDuplicates(maxAge time.Duration) time.Duration {
	const window = 10 * time.Minute
	if maxAge > 0 {
		return min(window, maxAge)
	}
	return window
}

// eventsConfig is the stream of the generation. It has no limit that lets old messages
// go, for that would take checkpoints and states too: events carry a TTL of their own.
func (t Topology) eventsConfig() jetstream.StreamConfig {
	g := t.Generation
	return jetstream.StreamConfig{
		Name:               EventsStream(g),
		Description:        "Events, dead letters, session states and checkpoints of generation " + g + ".",
		Subjects:           envelopes.GenerationSubjects(g),
		Retention:          jetstream.LimitsPolicy,
		Storage:            jetstream.FileStorage,
		Replicas:           max(t.Replicas, 1),
		AllowAtomicPublish: true,
		AllowRollup:        true,
		AllowMsgTTL:        true,
		AllowDirect:        true,
	}
}

// claimsConfig is the stream of [ClaimsBucket]. It has no limit that lets old objects go:
// their records may be older.
func (t Topology) claimsConfig() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        claimsStream,
		Description: "Raw records that are too large for a message, by their SHA-256.",
		Subjects:    []string{chunkPrefix + ">", metaPrefix + ">"},
		Retention:   jetstream.LimitsPolicy,
		Discard:     jetstream.DiscardNew,
		Storage:     jetstream.FileStorage,
		Compression: jetstream.S2Compression,
		Replicas:    max(t.Replicas, 1),
		AllowRollup: true,
		AllowDirect: true,
	}
}

// Provision makes the server hold t: it creates what is missing and updates what may be
// changed (replicas, age of raw records, switches that only add abilities). Where what
// exists contradicts t it changes nothing and returns a [TopologyError]. It is
// idempotent, may be run by many at once, and may be cut off anywhere.
func Provision(ctx context.Context, js jetstream.JetStream, t Topology) error {
	if err := t.Validate(); err != nil {
		return err
	}
	kv, err := provisionBucket(ctx, js, t)
	if err != nil {
		return err
	}
	if err := expectPartitions(ctx, kv, t); err != nil && !errors.Is(err, jetstream.ErrKeyNotFound) {
		return err
	}
	if err := provisionStream(ctx, js, t, t.rawConfig()); err != nil {
		return err
	}
	if err := ensureKey(ctx, kv, partitionsKey, []byte(strconv.Itoa(t.Partitions))); err != nil {
		return err
	}
	if err := expectPartitions(ctx, kv, t); err != nil {
		return err
	}
	for _, want := range []jetstream.StreamConfig{t.claimsConfig(), t.eventsConfig()} {
		if err := provisionStream(ctx, js, t, want); err != nil {
			return err
		}
	}
	if err := provisionWorkers(ctx, js, t); err != nil {
		return err
	}
	return provisionGeneration(ctx, js, kv, t)
}

// provisionBucket makes the key-value bucket.
func provisionBucket(ctx context.Context, js jetstream.JetStream, t Topology) (jetstream.KeyValue, error) {
	cfg := jetstream.KeyValueConfig{
		Bucket:      Bucket,
		Description: "What belongs to all workers of Tributary.",
		Storage:     jetstream.FileStorage,
		Replicas:    max(t.Replicas, 1),
	}
	kv, err := js.KeyValue(ctx, Bucket)
	switch {
	case errors.Is(err, jetstream.ErrBucketNotFound):
		kv, err = js.CreateKeyValue(ctx, cfg)
	case err == nil && t.Replicas > 0:
		kv, err = js.UpdateKeyValue(ctx, cfg)
	}
	if err != nil {
		return nil, fmt.Errorf("provision bucket %s: %w", Bucket, err)
	}
	return kv, nil
}

// provisionStream makes one stream as want says.
func provisionStream(ctx context.Context, js jetstream.JetStream, t Topology, want jetstream.StreamConfig) error {
	have, err := streamConfig(ctx, js, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if _, err := js.CreateStream(ctx, want); err == nil || !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return wrap(err, "provision stream "+want.Name)
		}
		have, err = streamConfig(ctx, js, want.Name) // another was faster
	}
	if err != nil {
		return fmt.Errorf("provision stream %s: %w", want.Name, err)
	}
	if err := contradiction(have, want); err != nil {
		return err
	}
	next := have
	if t.Replicas > 0 {
		next.Replicas = t.Replicas
	}
	if want.MaxAge > 0 { // else a worker that does not know of it would change it
		next.MaxAge = want.MaxAge
	}
	if want.Duplicates > 0 {
		next.Duplicates = rawDuplicates(next.MaxAge)
	}
	next.AllowDirect = true
	next.AllowAtomicPublish = have.AllowAtomicPublish || want.AllowAtomicPublish
	next.AllowRollup = have.AllowRollup || want.AllowRollup
	next.AllowMsgTTL = have.AllowMsgTTL || want.AllowMsgTTL
	if next.Replicas == have.Replicas && next.MaxAge == have.MaxAge && next.Duplicates == have.Duplicates &&
		next.AllowRollup == have.AllowRollup && next.AllowMsgTTL == have.AllowMsgTTL &&
		next.AllowAtomicPublish == have.AllowAtomicPublish && have.AllowDirect {
		return nil
	}
	_, err = js.UpdateStream(ctx, next)
	return wrap(err, "update stream "+want.Name)
}

func streamConfig(ctx context.Context, js jetstream.JetStream, name string) (jetstream.StreamConfig, error) {
	s, err := js.Stream(ctx, name)
	if err != nil {
		return jetstream.StreamConfig{}, err
	}
	return s.CachedInfo().Config, nil
}

// contradiction returns a [TopologyError] with the settings that cannot be changed
// without loss, nil when there are none.
func contradiction(have, want jetstream.StreamConfig) error {
	e := &TopologyError{
		Name: "stream " + want.Name,
		Cure: "use the values that exist, or start with another stream and ship the logs again",
	}
	differ := func(setting string, have, want any) {
		if h, w := fmt.Sprint(have), fmt.Sprint(want); h != w {
			e.Differences = append(e.Differences, Difference{setting, h, w})
		}
	}
	transform := func(t *jetstream.SubjectTransformConfig) string {
		if t == nil {
			return "none"
		}
		return t.Source + " to " + t.Destination
	}
	differ("subjects", have.Subjects, want.Subjects)
	differ("subject transform", transform(have.SubjectTransform), transform(want.SubjectTransform))
	differ("retention", have.Retention, want.Retention)
	differ("storage", have.Storage, want.Storage)
	differ("sealed", have.Sealed, false)
	if want.AllowRollup {
		differ("deny purge", have.DenyPurge, false)
		differ("maximal age", have.MaxAge, want.MaxAge)
		differ("maximal messages per subject", max(have.MaxMsgsPerSubject, 0), 0)
		differ("maximal message size", max(have.MaxMsgSize, 0), 0)
		if have.MaxMsgs > 0 || have.MaxBytes > 0 {
			differ("discard policy", have.Discard, jetstream.DiscardNew)
		}
	}
	if len(e.Differences) == 0 {
		return nil
	}
	return e
}

// expectPartitions compares the partition count that was stored when the raw stream was
// made. The server itself would take another one and move sessions silently.
func expectPartitions(ctx context.Context, kv jetstream.KeyValue, t Topology) error {
	entry, err := kv.Get(ctx, partitionsKey)
	if err != nil {
		return fmt.Errorf("read %s of bucket %s: %w", partitionsKey, Bucket, err)
	}
	if have, want := string(entry.Value()), strconv.Itoa(t.Partitions); have != want {
		return &TopologyError{
			Name:        "bucket " + Bucket,
			Differences: []Difference{{partitionsKey, have, want}},
			Cure:        "use " + have + " partitions: their number is fixed when the raw stream is made",
		}
	}
	return nil
}

// ensureKey creates a key and leaves one that exists as it is.
func ensureKey(ctx context.Context, kv jetstream.KeyValue, key string, value []byte) error {
	_, err := kv.Create(ctx, key, value)
	if errors.Is(err, jetstream.ErrKeyExists) {
		return nil
	}
	return wrap(err, "create "+key+" in bucket "+Bucket)
}

// generation is what [Bucket] says about a generation.
type generation struct {
	Revision int `json:"revision"` // of the normalizers that make it
}

// provisionGeneration writes the first checkpoints of a new generation, then its key.
// The key comes last: once it is there no first checkpoint is ever written again, for a
// checkpoint that is missing then was lost.
func provisionGeneration(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue, t Topology) error {
	key := generationPrefix + t.Generation
	_, err := kv.Get(ctx, key)
	if err == nil {
		return nil
	}
	if !errors.Is(err, jetstream.ErrKeyNotFound) {
		return fmt.Errorf("read %s of bucket %s: %w", key, Bucket, err)
	}
	s, err := js.Stream(ctx, EventsStream(t.Generation))
	if err != nil {
		return fmt.Errorf("provision generation %s: %w", t.Generation, err)
	}
	if last := s.CachedInfo().State.LastSeq; last > uint64(t.Partitions) {
		return &TopologyError{
			Name:        "bucket " + Bucket,
			Differences: []Difference{{key, "nothing", "the revision of a stream that is in use"}},
			Cure:        "put the key back, or give the generation another name",
		}
	}
	for p := range t.Partitions {
		if err := firstCheckpoint(ctx, js, t.Generation, p); err != nil {
			return err
		}
	}
	value, err := json.Marshal(generation{Revision: normalizers.Revision})
	if err != nil {
		return fmt.Errorf("encode %s: %w", key, err)
	}
	if err := ensureKey(ctx, kv, key, value); err != nil {
		return err
	}
	return ensureKey(ctx, kv, currentKey, []byte(t.Generation))
}

// check reports whether the server holds t and its generation is of this revision of
// the normalizers. It changes nothing.
func check(ctx context.Context, js jetstream.JetStream, t Topology) error {
	if err := t.Validate(); err != nil {
		return err
	}
	kv, err := js.KeyValue(ctx, Bucket)
	if err != nil {
		return fmt.Errorf("bucket %s: %w", Bucket, err)
	}
	if err := expectPartitions(ctx, kv, t); err != nil {
		return err
	}
	for _, want := range []jetstream.StreamConfig{t.rawConfig(), t.claimsConfig(), t.eventsConfig()} {
		have, err := streamConfig(ctx, js, want.Name)
		if err != nil {
			return fmt.Errorf("stream %s: %w", want.Name, err)
		}
		if err := contradiction(have, want); err != nil {
			return err
		}
	}
	key := generationPrefix + t.Generation
	entry, err := kv.Get(ctx, key)
	if err != nil {
		return fmt.Errorf("read %s of bucket %s: %w", key, Bucket, err)
	}
	var g generation
	if err := json.Unmarshal(entry.Value(), &g); err != nil {
		return fmt.Errorf("%w: %s of bucket %s", ErrState, key, Bucket)
	}
	if g.Revision != normalizers.Revision {
		return fmt.Errorf("%w: %s is of revision %d, this program of %d: replay into a new generation",
			ErrRevision, t.Generation, g.Revision, normalizers.Revision)
	}
	return nil
}

// wrap says what was done when err happened; nil stays nil.
func wrap(err error, doing string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}
