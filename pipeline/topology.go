package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers"
)

// RawStream is the name of the stream of raw records.
const RawStream = "RAW"

// SessionsStream is the name of the stream of the session metadata and of its changes. It
// belongs to no generation. Package sessionmeta describes and writes it.
const SessionsStream = "SESSIONS"

// controlBucket is the key-value bucket of what belongs to all workers.
const controlBucket = "TRIBUTARY"

// Keys of [controlBucket].
const (
	partitionsKey    = "partitions"
	currentKey       = "current"
	generationPrefix = "generation."
	settingsPrefix   = "settings."
	droppedPrefix    = "dropped."
)

// EventsStream returns the name of the stream that holds everything that a generation
// stores: events, dead letters, session states and checkpoints.
func EventsStream(generation string) string { return "EVENTS_" + generation }

// SummariesStream returns the name of the stream of the records of sessions that the events of a generation add up
// to. Package summaries describes, creates and writes it.
func SummariesStream(generation string) string { return "SUMMARIES_" + generation }

// Topology describes the streams and buckets on the server, with their limits.
type Topology struct {
	// Generation is the name of a run over the raw stream, [a-z0-9-]{1,32}. [Provision]
	// and [NewRunner] take an empty one as the live generation.
	Generation string
	Settings   Settings // of the generation; those that are empty are the ones that it has

	Partitions int // of the raw stream, 1 to 1024; fixed when the stream is created
	Replicas   int // of every stream, 1 to 5; 0 keeps those of an existing stream and gives a new one 1

	RawMaxAge    time.Duration // how long raw records are kept; 0 keeps the setting of an existing stream, and means for ever in a new one
	EventsMaxAge time.Duration // how long events are kept, in whole seconds; 0 for ever
}

// DefaultTopology returns the topology that a command starts with: generation v1, 16
// partitions.
func DefaultTopology() Topology { return Topology{Generation: firstGeneration, Partitions: 16} }

// validate reports everything that is wrong with t, as [errTopology].
func (t Topology) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%w: "+format, append([]any{errTopology}, args...)...))
		}
	}
	if err := envelopes.CheckGeneration(t.Generation); err != nil {
		errs = append(errs, fmt.Errorf("%w: %w", errTopology, err))
	}
	if err := t.Settings.validate(); err != nil {
		errs = append(errs, fmt.Errorf("%w: %w", errTopology, err))
	}
	check(t.Partitions >= 1 && t.Partitions <= 1024, "%d partitions are not in 1 to 1024", t.Partitions)
	check(t.Replicas >= 0 && t.Replicas <= 5, "%d replicas are not in 0 to 5", t.Replicas)
	check(t.RawMaxAge == 0 || t.RawMaxAge >= time.Second, "raw records kept for %v are not kept for a second", t.RawMaxAge)
	check(t.EventsMaxAge == 0 || t.EventsMaxAge >= time.Second, "events kept for %v are not kept for a second", t.EventsMaxAge)
	return errors.Join(errs...)
}

// rawConfig returns the configuration of the raw stream. Its transform assigns each session
// to a partition. The transform does not match subjects with literal wildcards: they are
// stored as published, and partition 0 reads them.
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

// rawDuplicates returns the window in which the server detects duplicate message ids: long
// enough for the repetitions of a producer, short because the server keeps all ids of it in
// memory (README.md, Growth). The server requires it to be no longer than the maximal age.
func rawDuplicates(maxAge time.Duration) time.Duration {
	const window = 2 * time.Minute
	if maxAge > 0 {
		return min(window, maxAge)
	}
	return window
}

// eventsConfig returns the configuration of the events stream. The stream has no limit that
// discards old messages, which would discard checkpoints and states, too: events expire by
// a TTL of their own.
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

// claimsConfig returns the configuration of the stream of [ClaimsBucket]. The stream has no
// limit that discards old objects: records may name them for ever.
func (t Topology) claimsConfig() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        claimsStream,
		Description: "Raw records that are too large for a message, by their SHA-256.",
		Subjects:    []string{objectChunkPrefix + ">", objectMetaPrefix + ">"},
		Retention:   jetstream.LimitsPolicy,
		Discard:     jetstream.DiscardNew,
		Storage:     jetstream.FileStorage,
		Compression: jetstream.S2Compression,
		Replicas:    max(t.Replicas, 1),
		AllowRollup: true,
		AllowDirect: true,
	}
}

// sessionsConfig returns the configuration of [SessionsStream]. The stream has no limit that
// discards old messages, which would discard the metadata, too: changes expire by a TTL of
// their own.
func (t Topology) sessionsConfig() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:               SessionsStream,
		Description:        "Titles and pins of sessions, and their changes.",
		Subjects:           []string{"sessions.*.*.*"},
		Retention:          jetstream.LimitsPolicy,
		Storage:            jetstream.FileStorage,
		Replicas:           max(t.Replicas, 1),
		AllowAtomicPublish: true,
		AllowRollup:        true,
		AllowMsgTTL:        true,
		AllowDirect:        true,
	}
}

// Provision creates the streams, buckets and first checkpoints of t that are missing, and
// updates what can be changed (replicas, age of raw records, switches that only add
// abilities). Where what exists contradicts t, it changes nothing and returns an error that
// lists the differences. Provision is idempotent: any number of processes may run it at the
// same time, and one that is interrupted anywhere may run it again. Without a Generation it
// provisions the live one, v1 on a new broker.
func Provision(ctx context.Context, js jetstream.JetStream, t Topology) error {
	t, err := t.live(ctx, js)
	if err != nil {
		return err
	}
	if err := t.validate(); err != nil {
		return err
	}
	kv, err := provisionBucket(ctx, js, t)
	if err != nil {
		return err
	}
	if err := expectPartitions(ctx, js, t); err != nil && !errors.Is(err, jetstream.ErrKeyNotFound) {
		return err
	}
	if err := provisionStream(ctx, js, t, t.rawConfig()); err != nil {
		return err
	}
	if err := ensureKey(ctx, kv, partitionsKey, []byte(strconv.Itoa(t.Partitions))); err != nil {
		return err
	}
	if err := expectPartitions(ctx, js, t); err != nil {
		return err
	}
	for _, want := range []jetstream.StreamConfig{t.claimsConfig(), t.sessionsConfig(), t.eventsConfig()} {
		if err := provisionStream(ctx, js, t, want); err != nil {
			return err
		}
	}
	if err := provisionHeartbeats(ctx, js, t, workersBucket, "Heartbeats of the workers of Tributary.", workersTTL); err != nil {
		return err
	}
	if err := provisionHeartbeats(ctx, js, t, edgesBucket, "Heartbeats of the edges of Tributary.", edgesTTL); err != nil {
		return err
	}
	if err := provisionSubscribers(ctx, js, t); err != nil {
		return err
	}
	if err := provisionGeneration(ctx, js, kv, t, Part{}, generationRecord{Revision: normalizers.Revision}); err != nil {
		return err
	}
	return ensureKey(ctx, kv, currentKey, []byte(t.Generation))
}

// provisionBucket creates the control bucket.
func provisionBucket(ctx context.Context, js jetstream.JetStream, t Topology) (jetstream.KeyValue, error) {
	cfg := jetstream.KeyValueConfig{
		Bucket:      controlBucket,
		Description: "What belongs to all workers of Tributary.",
		Storage:     jetstream.FileStorage,
		Replicas:    max(t.Replicas, 1),
	}
	kv, err := js.KeyValue(ctx, controlBucket)
	switch {
	case errors.Is(err, jetstream.ErrBucketNotFound):
		kv, err = js.CreateKeyValue(ctx, cfg)
	case err == nil && t.Replicas > 0:
		kv, err = js.UpdateKeyValue(ctx, cfg)
	}
	if err != nil {
		return nil, fmt.Errorf("provision bucket %s: %w", controlBucket, err)
	}
	return kv, nil
}

// provisionKeyValue creates a bucket, or updates its replicas.
func provisionKeyValue(ctx context.Context, js jetstream.JetStream, t Topology, cfg jetstream.KeyValueConfig) error {
	cfg.Storage, cfg.Replicas = jetstream.FileStorage, max(t.Replicas, 1) // a bucket in memory would vanish with a restart
	_, err := js.KeyValue(ctx, cfg.Bucket)
	switch {
	case errors.Is(err, jetstream.ErrBucketNotFound):
		_, err = js.CreateKeyValue(ctx, cfg)
	case err == nil && t.Replicas > 0:
		_, err = js.UpdateKeyValue(ctx, cfg)
	}
	return wrap(err, "provision bucket "+cfg.Bucket)
}

// provisionStream creates a stream, or updates the settings that can be changed.
func provisionStream(ctx context.Context, js jetstream.JetStream, t Topology, want jetstream.StreamConfig) error {
	have, err := streamConfig(ctx, js, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if _, err := js.CreateStream(ctx, want); err == nil || !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return wrap(err, "provision stream "+want.Name)
		}
		have, err = streamConfig(ctx, js, want.Name) // another process created it
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
	if want.MaxAge > 0 { // 0 keeps the setting: a worker without it must not change it
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

// contradiction returns a [topologyError] with the settings that cannot be changed without
// loss, nil when there are none.
func contradiction(have, want jetstream.StreamConfig) error {
	e := &topologyError{
		name: "stream " + want.Name,
		cure: "use the values that exist, or start with another stream and ship the logs again",
	}
	differ := func(setting string, have, want any) {
		if h, w := fmt.Sprint(have), fmt.Sprint(want); h != w {
			e.differences = append(e.differences, difference{setting, h, w})
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
	if len(e.differences) == 0 {
		return nil
	}
	return e
}

// expectPartitions compares the partition count of t with the one that was stored when the
// raw stream was created. The server itself would accept another count and silently move
// sessions to other partitions.
func expectPartitions(ctx context.Context, js jetstream.JetStream, t Topology) error {
	stored, err := readControl(ctx, js, partitionsKey)
	if err != nil {
		return err
	}
	if have, want := string(stored), strconv.Itoa(t.Partitions); have != want {
		return &topologyError{
			name:        "bucket " + controlBucket,
			differences: []difference{{partitionsKey, have, want}},
			cure:        "use " + have + " partitions: their number is fixed when the raw stream is made",
		}
	}
	return nil
}

// ensureKey creates a key, unless it exists.
func ensureKey(ctx context.Context, kv jetstream.KeyValue, key string, value []byte) error {
	_, err := kv.Create(ctx, key, value)
	if errors.Is(err, jetstream.ErrKeyExists) {
		return nil
	}
	return wrap(err, "create "+key+" in bucket "+controlBucket)
}

// checkServer reports what keeps everyone from working on t: the server does not hold it. It
// changes nothing.
func checkServer(ctx context.Context, js jetstream.JetStream, t Topology) error {
	if err := t.validate(); err != nil {
		return err
	}
	if err := expectPartitions(ctx, js, t); err != nil {
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
	return nil
}

// wrap adds to err what was being done; nil stays nil.
func wrap(err error, doing string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}
