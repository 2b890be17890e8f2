package streams

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/pipeline/broker"
)

// ClaimsBucket is the object bucket with the bytes of records that are too large for a message. The name of an object
// is the SHA-256 of its bytes in lower-case hex.
const ClaimsBucket = "CLAIMS"

// The bucket is a stream by the conventions of NATS (ADR-20): a message at ObjectMetaPrefix describes an object and
// names its chunks. Unlike in ADR-20, it does not replace earlier descriptions: the stream refuses rollups, so that
// no producer can remove what others stored. The oldest description whose bytes have the right digest counts.
const (
	ClaimsStream      = "OBJ_" + ClaimsBucket
	ObjectChunkPrefix = "$O." + ClaimsBucket + ".C."
	ObjectMetaPrefix  = "$O." + ClaimsBucket + ".M."
)

// StoredTopology returns the topology of a generation as stored in the broker, without its Settings.
func StoredTopology(ctx context.Context, js jetstream.JetStream, generation string) (Topology, error) {
	l, err := ReadLayout(ctx, js)
	if err != nil {
		return Topology{}, err
	}
	t := Topology{Generation: generation, Partitions: l.Partitions, Cells: l.Cells}
	have, err := streamConfig(ctx, js, EventsStream(generation))
	if err != nil {
		return Topology{}, fmt.Errorf("stream %s: %w", EventsStream(generation), err)
	}
	t.Replicas = have.Replicas
	return t, nil
}

// RawStream is the name of the stream of raw records, or of the first one if there are several cells.
const RawStream = "RAW"

// RawStreamOf returns the name of the raw stream of a cell.
func RawStreamOf(cell int) string { return envelopes.CellName(RawStream, cell) }

// SessionsStream is the name of the stream of session metadata and their changes, written by package sessions/titles.
// It belongs to no generation.
const SessionsStream = "SESSIONS"

// ControlBucket is the key-value bucket that all workers share.
const ControlBucket = "TRIBUTARY"

// Keys of [ControlBucket].
const (
	partitionsKey    = "partitions"
	currentKey       = "current"
	GenerationPrefix = "generation."
	SettingsPrefix   = "settings."
	DroppedPrefix    = "dropped."
)

// EventsStream returns the name of the stream with everything that a generation stores: events, dead letters, session
// states and checkpoints. For a further cell, pass the [envelopes.CellName] of the generation.
func EventsStream(generation string) string { return "EVENTS_" + generation }

// SummariesStream returns the name of the stream of session records that sum up the events of a generation. Package
// sessions/summaries creates and writes it.
func SummariesStream(generation string) string { return "SUMMARIES_" + generation }

// Topology describes the streams and buckets on the server, with their limits.
type Topology struct {
	// Generation is the name of a run over the raw stream, [a-z0-9-]{1,32}. [Provision] and [runner.New] replace an
	// empty name by the live generation.
	Generation string
	Settings   Settings // of the generation; empty fields take the stored values

	Partitions int // number for all raw records, 1 to 1024; fixed when the raw stream is created
	Cells      int // number that the partitions are spread over, 1 to 64; 0 is 1; fixed when the raw stream is created
	Replicas   int // of every stream, 1 to 5; 0 keeps the number of an existing stream and means 1 for a new one

	RawMaxAge    time.Duration // how long to keep raw records; 0 keeps the setting of an existing stream, and means for ever for a new one
	EventsMaxAge time.Duration // how long to keep events, in whole seconds; 0 for ever
}

// DefaultTopology returns the topology that commands start with: generation v1, 16 partitions.
func DefaultTopology() Topology { return Topology{Generation: firstGeneration, Partitions: 16} }

// Validate returns everything that is wrong with t, as [ErrTopology].
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
	if err := t.Settings.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("%w: %w", ErrTopology, err))
	}
	check(t.Partitions >= 1 && t.Partitions <= 1024, "%d partitions are not in 1 to 1024", t.Partitions)
	check(t.Cells >= 0 && t.Cells <= maxCells && t.Cells <= max(t.Partitions, 1), "%d cells are not in 1 to %d, or more than the partitions", t.Cells, maxCells)
	check(t.Replicas >= 0 && t.Replicas <= 5, "%d replicas are not in 0 to 5", t.Replicas)
	check(t.RawMaxAge == 0 || t.RawMaxAge >= time.Second, "raw records kept for %v are not kept for a second", t.RawMaxAge)
	check(t.EventsMaxAge == 0 || t.EventsMaxAge >= time.Second, "events kept for %v are not kept for a second", t.EventsMaxAge)
	return errors.Join(errs...)
}

// rawConfigs returns the configurations of the raw streams. With a single one, its transform assigns each session to
// a partition; it does not match subjects with literal wildcards, which are stored as published and read by partition
// 0. With several, each accepts the subjects of its partitions, which the producer or the mapping of its account
// computes.
func (t Topology) rawConfigs() []jetstream.StreamConfig {
	raw := t.rawConfig()
	if t.Cells <= 1 {
		raw.Subjects = []string{"raw.*.*"}
		raw.SubjectTransform = &jetstream.SubjectTransformConfig{
			Source:      "raw.*.*",
			Destination: fmt.Sprintf("raw.{{partition(%d,1,2)}}.{{wildcard(1)}}.{{wildcard(2)}}", t.Partitions),
		}
		return []jetstream.StreamConfig{raw}
	}
	list := make([]jetstream.StreamConfig, t.Cells)
	for c := range list {
		list[c] = raw
		list[c].Name = RawStreamOf(c)
		for _, p := range t.Layout().PartitionsOf(c) {
			list[c].Subjects = append(list[c].Subjects, envelopes.RawFilter(p, "", ""))
		}
	}
	return list
}

// rawConfig returns the configuration common to all raw streams. If an operator sets a limit of messages or bytes, it
// refuses new records, which their producers keep, and discards none.
func (t Topology) rawConfig() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:               RawStream,
		Description:        "Raw records of coding agents.",
		Metadata:           t.Layout().metadata(),
		Retention:          jetstream.LimitsPolicy,
		Discard:            jetstream.DiscardNew,
		Storage:            jetstream.FileStorage,
		Compression:        jetstream.S2Compression,
		Replicas:           max(t.Replicas, 1),
		MaxAge:             t.RawMaxAge,
		Duplicates:         rawDuplicates(t.RawMaxAge),
		AllowAtomicPublish: true,
		AllowDirect:        true,
	}
}

// rawDuplicates returns the window in which the server detects duplicate message ids: long enough for retries of a
// producer, short because the server keeps all ids of it in memory. The server requires it not to
// exceed the maximum age.
func rawDuplicates(maxAge time.Duration) time.Duration {
	const window = 2 * time.Minute
	if maxAge > 0 {
		return min(window, maxAge)
	}
	return window
}

// EventsConfigs returns the configurations of the events streams.
func (t Topology) EventsConfigs() []jetstream.StreamConfig {
	var list []jetstream.StreamConfig
	for _, name := range t.cellNames() {
		list = append(list, t.eventsConfig(name))
	}
	return list
}

// eventsConfig returns the configuration of the events stream of a cell. No limit discards old messages, because that
// would discard checkpoints and states, too: events expire by a TTL of their own.
func (t Topology) eventsConfig(cellName string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:               EventsStream(cellName),
		Description:        "Events, dead letters, session states and checkpoints of generation " + t.Generation + ".",
		Subjects:           envelopes.GenerationSubjects(cellName),
		Metadata:           t.Layout().metadata(),
		Retention:          jetstream.LimitsPolicy,
		Storage:            jetstream.FileStorage,
		Replicas:           max(t.Replicas, 1),
		AllowAtomicPublish: true,
		AllowRollup:        true,
		AllowMsgTTL:        true,
		AllowDirect:        true,
	}
}

// claimsConfig returns the configuration of the stream of [ClaimsBucket]. No limit discards old objects, because
// records may name them for ever. The stream refuses rollups, by which any producer could remove the objects of all
// others. It refuses to delete single messages: earlier versions of [claims.Store.Remove] delete them, and would remove
// bytes of an object that has another description. The present version purges subjects.
func (t Topology) claimsConfig() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        ClaimsStream,
		Description: "Raw records that are too large for a message, by their SHA-256.",
		Subjects:    []string{ObjectChunkPrefix + ">", ObjectMetaPrefix + ">"},
		Retention:   jetstream.LimitsPolicy,
		Discard:     jetstream.DiscardNew,
		Storage:     jetstream.FileStorage,
		Compression: jetstream.S2Compression,
		Replicas:    max(t.Replicas, 1),
		DenyDelete:  true,
		AllowDirect: true,
	}
}

// sessionsConfig returns the configuration of [SessionsStream]. No limit discards old messages, because that would
// discard metadata, too: changes expire by a TTL of their own.
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

// Provision creates the missing streams, buckets and first checkpoints of t, and updates what can be changed
// (replicas, age of raw records, switches that only add abilities). If what exists contradicts t, it changes nothing
// and returns an error with the differences. Provision is idempotent: any number of processes may run it at the same
// time, and it may be run again after an interruption. Without a Generation it provisions the live one, v1 on a new
// broker.
func Provision(ctx context.Context, js jetstream.JetStream, t Topology) error {
	t, err := t.live(ctx, js)
	if err != nil {
		return err
	}
	if err := t.Validate(); err != nil {
		return err
	}
	kv, err := provisionBucket(ctx, js, t)
	if err != nil {
		return err
	}
	if err := expectLayout(ctx, js, t); err != nil && !errors.Is(err, jetstream.ErrKeyNotFound) {
		return err
	}
	if err := ProvisionStreams(ctx, js, t, t.rawConfigs()); err != nil {
		return err
	}
	if err := EnsureKey(ctx, js, kv, partitionsKey, []byte(t.Layout().String())); err != nil {
		return err
	}
	if err := expectLayout(ctx, js, t); err != nil {
		return err
	}
	if err := ProvisionStreams(ctx, js, t, append(t.EventsConfigs(), t.claimsConfig(), t.sessionsConfig())); err != nil {
		return err
	}
	if err := provisionHeartbeats(ctx, js, t, WorkersBucket, "Heartbeats of the workers of Tributary.", workersTTL); err != nil {
		return err
	}
	if err := provisionHeartbeats(ctx, js, t, edgesBucket, "Heartbeats of the edges of Tributary.", edgesTTL); err != nil {
		return err
	}
	if err := provisionSubscribers(ctx, js, t); err != nil {
		return err
	}
	if err := ProvisionGeneration(ctx, js, kv, t, Part{}, GenerationRecord{Revision: normalizers.Revision}); err != nil {
		return err
	}
	return EnsureKey(ctx, js, kv, currentKey, []byte(t.Generation))
}

// provisionBucket creates the control bucket.
func provisionBucket(ctx context.Context, js jetstream.JetStream, t Topology) (jetstream.KeyValue, error) {
	cfg := jetstream.KeyValueConfig{
		Bucket:      ControlBucket,
		Description: "What belongs to all workers of Tributary.",
		Storage:     jetstream.FileStorage,
		Replicas:    max(t.Replicas, 1),
	}
	kv, err := js.KeyValue(ctx, ControlBucket)
	switch {
	case errors.Is(err, jetstream.ErrBucketNotFound):
		kv, err = js.CreateKeyValue(ctx, cfg)
	case err == nil && t.Replicas > 0:
		kv, err = js.UpdateKeyValue(ctx, cfg)
	}
	if err != nil {
		return nil, fmt.Errorf("provision bucket %s: %w", ControlBucket, err)
	}
	return kv, nil
}

// provisionKeyValue creates the stream of a key-value bucket, or updates what can be changed. Unlike buckets created
// by clients, it refuses rollups: producers and consumers write to it, and each could remove the keys of all others.
func provisionKeyValue(ctx context.Context, js jetstream.JetStream, t Topology, cfg jetstream.KeyValueConfig) error {
	return provisionStream(ctx, js, t, jetstream.StreamConfig{
		Name:              "KV_" + cfg.Bucket,
		Description:       cfg.Description,
		Subjects:          []string{"$KV." + cfg.Bucket + ".>"},
		Retention:         jetstream.LimitsPolicy,
		MaxMsgsPerSubject: 1,
		Discard:           jetstream.DiscardNew,
		Storage:           jetstream.FileStorage, // a bucket in memory would vanish with a restart
		Replicas:          max(t.Replicas, 1),
		MaxAge:            cfg.TTL,
		Duplicates:        rawDuplicates(cfg.TTL),
		DenyDelete:        true,
		AllowDirect:       true,
	})
}

// ProvisionStreams is [provisionStream] for each configuration of a list.
func ProvisionStreams(ctx context.Context, js jetstream.JetStream, t Topology, list []jetstream.StreamConfig) error {
	for _, want := range list {
		if err := provisionStream(ctx, js, t, want); err != nil {
			return err
		}
	}
	return nil
}

// provisionStream creates a stream, or updates the settings that can be changed.
func provisionStream(ctx context.Context, js jetstream.JetStream, t Topology, want jetstream.StreamConfig) error {
	have, err := streamConfig(ctx, js, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if _, err := js.CreateStream(ctx, want); err == nil || !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return broker.Wrap(err, "provision stream "+want.Name)
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
	if want.MaxAge > 0 { // 0 keeps the setting, because a worker without it must not change it
		next.MaxAge = want.MaxAge
	}
	if want.Duplicates > 0 {
		next.Duplicates = rawDuplicates(next.MaxAge)
	}
	if lacksArchives(have.Subjects, want.Subjects) {
		next.Subjects = want.Subjects
	}
	if want.Discard == jetstream.DiscardNew {
		next.Discard = want.Discard // no limit discards messages
	}
	next.AllowDirect = true
	next.AllowAtomicPublish = have.AllowAtomicPublish || want.AllowAtomicPublish
	next.AllowRollup = want.AllowRollup // off if others than workers publish, because a rollup removes what others stored
	next.AllowMsgTTL = have.AllowMsgTTL || want.AllowMsgTTL
	next.DenyDelete = have.DenyDelete || want.DenyDelete
	if next.Replicas == have.Replicas && next.MaxAge == have.MaxAge && next.Duplicates == have.Duplicates &&
		next.Discard == have.Discard && next.AllowRollup == have.AllowRollup && next.AllowMsgTTL == have.AllowMsgTTL && slices.Equal(next.Subjects, have.Subjects) &&
		next.AllowAtomicPublish == have.AllowAtomicPublish && next.DenyDelete == have.DenyDelete && have.AllowDirect {
		return nil
	}
	_, err = js.UpdateStream(ctx, next)
	return broker.Wrap(err, "update stream "+want.Name)
}

func streamConfig(ctx context.Context, js jetstream.JetStream, name string) (jetstream.StreamConfig, error) {
	s, err := js.Stream(ctx, name)
	if err != nil {
		return jetstream.StreamConfig{}, err
	}
	return s.CachedInfo().Config, nil
}

// contradiction returns a [TopologyError] with the settings that cannot be changed without loss; nil for none.
func contradiction(have, want jetstream.StreamConfig) error {
	e := &TopologyError{
		Name: "stream " + want.Name,
		Cure: "use the existing values, or start with another stream and ship the logs again",
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
	if !lacksArchives(have.Subjects, want.Subjects) {
		differ("subjects", have.Subjects, want.Subjects)
	}
	differ("subject transform", transform(have.SubjectTransform), transform(want.SubjectTransform))
	differ("cells", layoutOf(have.Metadata).Cells, layoutOf(want.Metadata).Cells)
	differ("retention", have.Retention, want.Retention)
	differ("storage", have.Storage, want.Storage)
	differ("sealed", have.Sealed, false)
	if want.AllowRollup || want.Name == ClaimsStream {
		differ("deny purge", have.DenyPurge, false)
		differ("maximal age", have.MaxAge, want.MaxAge)
		differ("maximal message size", max(have.MaxMsgSize, 0), 0)
	}
	others := len(e.Differences)
	differ("maximal messages per subject", max(have.MaxMsgsPerSubject, 0), want.MaxMsgsPerSubject)
	if have.MaxMsgs > 0 || have.MaxBytes > 0 {
		differ("discard policy", have.Discard, jetstream.DiscardNew)
	}
	if others == 0 && want.MaxMsgsPerSubject == 0 { // both can be changed
		e.Cure = cureDiscard(want.Name)
	}
	if len(e.Differences) == 0 {
		return nil
	}
	return e
}

// cureDiscard says how a stream stops discarding messages.
func cureDiscard(stream string) string {
	return "let the stream refuse new messages instead: nats stream edit " + stream + " --discard=new --max-msgs-per-subject=-1"
}

// lacksArchives reports whether a stream has all subjects but that of the archives, because it is older. [Provision]
// adds it.
func lacksArchives(have, want []string) bool {
	return len(have)+1 == len(want) && slices.Equal(have, want[:len(have)]) && envelopes.IsArchiveFilter(want[len(have)])
}

// expectLayout compares the partitions and cells of t with those stored when the raw stream was created. The server
// itself would accept other numbers and silently move sessions to other partitions.
func expectLayout(ctx context.Context, js jetstream.JetStream, t Topology) error {
	have, err := ReadLayout(ctx, js)
	if err != nil {
		return err
	}
	e := &TopologyError{Name: "bucket " + ControlBucket}
	if have.Partitions != t.Partitions {
		e.Differences = append(e.Differences, Difference{partitionsKey, strconv.Itoa(have.Partitions), strconv.Itoa(t.Partitions)})
		e.Cure = fmt.Sprintf("use %d partitions: their number is fixed when the raw stream is created", have.Partitions)
	}
	if want := max(t.Cells, 1); have.Cells != want {
		e.Differences = append(e.Differences, Difference{"cells", strconv.Itoa(have.Cells), strconv.Itoa(want)})
		e.Cure = fmt.Sprintf("use %d cells and %d partitions: their numbers are fixed when the raw streams are created; to change them, begin with a broker without streams and ship the logs again",
			have.Cells, have.Partitions)
	}
	if e.Differences == nil {
		return nil
	}
	return e
}

// ReadLayout reads the partitions and cells of the deployment.
func ReadLayout(ctx context.Context, js jetstream.JetStream) (Layout, error) {
	stored, err := ReadControl(ctx, js, partitionsKey)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		err = fmt.Errorf("%w: start a worker, which stores it again or says what else is missing: tributary run", err)
	}
	if err != nil {
		return Layout{}, err
	}
	return parseLayout(string(stored))
}

// EnsureKey creates a key, unless it exists, and returns when the leader of the bucket shows it.
func EnsureKey(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue, key string, value []byte) error {
	for {
		if _, err := kv.Create(ctx, key, value); err != nil && !errors.Is(err, jetstream.ErrKeyExists) {
			return fmt.Errorf("create %s in bucket %s: %w", key, ControlBucket, err)
		}
		if _, err := ReadControl(ctx, js, key); !errors.Is(err, jetstream.ErrKeyNotFound) {
			return err
		}
		// The leader refuses a key as soon as another process has sent it, and shows that one once it is replicated.
		if err := broker.Pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}

// checkServer returns why no process can work on t: the server lacks it. It changes nothing.
func checkServer(ctx context.Context, js jetstream.JetStream, t Topology) error {
	if err := t.Validate(); err != nil {
		return err
	}
	if err := expectLayout(ctx, js, t); err != nil {
		return err
	}
	for _, want := range slices.Concat(t.rawConfigs(), []jetstream.StreamConfig{t.claimsConfig()}, t.EventsConfigs()) {
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

// Goal returns the raw sequence of the last record of each partition.
func (t Topology) Goal(ctx context.Context, js jetstream.JetStream) ([]uint64, error) {
	g, err := ReadGeneration(ctx, js, t.Generation)
	if err != nil {
		return nil, err
	}
	g.Layout = t.Layout()
	return LastRecords(ctx, js, g, t.Partitions)
}
