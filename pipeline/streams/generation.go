package streams

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/broker"
)

// firstGeneration is the live generation of a new broker.
const firstGeneration = "v1"

// State is the stage of a generation in its life.
type State string

// The states.
const (
	StateLive      State = "live"      // consumers read it
	StateReplaying State = "replaying" // not live; some records are not done
	StateReady     State = "ready"     // not live; every record is done
	StateRetired   State = "retired"   // was live; no worker works on it
	StateStarting  State = "starting"  // a start was interrupted, or is under way
	StateDropping  State = "dropping"  // a drop was interrupted, or is under way

	StateResuming State = "resuming" // in the key of a retired generation that is being started again
)

// Generation is one run over the raw stream, as stored in the broker.
type Generation struct {
	Name     string    `json:"name"`
	Revision int       `json:"revision"` // of its normalizers
	Settings Settings  `json:"settings"`
	State    State     `json:"state"`             // without [Generation.CaughtUp], ready counts as replaying
	Part     Part      `json:"part,omitzero"`     // part of the raw stream that it has
	From     Positions `json:"from,omitzero"`     // first raw sequence in each cell, if earlier records had expired
	Replaces string    `json:"replaces,omitzero"` // previous live generation
	Started  time.Time `json:"started,omitzero"`  // when its replay was started

	Layout   Layout `json:"-"` // of the deployment
	Marked   State  `json:"-"` // state in its key
	Replay   bool   `json:"-"` // built by workers that follow the live generation
	sequence uint64 // of its key; 0 if it is not stored
}

// IsLive reports whether the generation is live: workers follow it, and readers get its events by default.
func (g *Generation) IsLive() bool { return g.State == StateLive }

// CountsExpired reports whether the generation has every record of the raw stream from some sequence on.
func (g *Generation) CountsExpired() bool { return g.Part.Source == "" && g.Part.Session == "" }

// CellName returns the name of the generation in the cell of a partition.
func (g *Generation) CellName(partition int) string {
	return envelopes.CellName(g.Name, g.Layout.Cell(partition))
}

// cellNames returns the names of the generation in its cells.
func (g *Generation) cellNames() []string { return CellNames(g.Name, max(g.Layout.Cells, 1)) }

// GenerationRecord is the value of the key of a generation in [ControlBucket].
type GenerationRecord struct {
	Revision int       `json:"revision"` // of its normalizers
	State    State     `json:"state,omitzero"`
	From     Positions `json:"from,omitzero"`
	Replaces string    `json:"replaces,omitzero"`
	Started  time.Time `json:"started,omitzero"`
}

// Store writes the key of the generation, unless another process changed it after it was read.
func (g *Generation) Store(ctx context.Context, kv jetstream.KeyValue, r GenerationRecord) error {
	key := GenerationPrefix + g.Name
	value, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode %s: %w", key, err)
	}
	sequence, err := kv.Update(ctx, key, value, g.sequence)
	if broker.Fenced(err) {
		return fmt.Errorf("%w: %s", ErrChanged, g.Name)
	}
	if err != nil {
		return fmt.Errorf("write %s of bucket %s: %w", key, ControlBucket, err)
	}
	g.sequence, g.Marked, g.From, g.Replaces, g.Started = sequence, r.State, r.From, r.Replaces, r.Started
	return nil
}

// Record returns the value for the key of the generation, with another state.
func (g *Generation) Record(state State) GenerationRecord {
	return GenerationRecord{Revision: g.Revision, State: state, From: g.From, Replaces: g.Replaces, Started: g.Started}
}

// Generations are the generations of a broker.
type Generations struct {
	Live      string    // name of the live one; empty on a broker without generations
	LiveSince time.Time // when that became live, by the broker's clock
	List      []Generation
	Cutover   Cutover // last change; zero if there was none

	live    uint64            // sequence of the key of the live generation
	Dropped map[string]uint64 // last sequence of the streams of dropped names
}

// Find returns the generation of a name. Its error names those that exist.
func (g *Generations) Find(name string) (Generation, error) {
	i := slices.IndexFunc(g.List, func(x Generation) bool { return x.Name == name })
	if i >= 0 {
		return g.List[i], nil
	}
	names := make([]string, len(g.List))
	for i, x := range g.List {
		names[i] = x.Name
	}
	return Generation{}, fmt.Errorf("%w %q: the broker has %s", ErrNoGeneration, name, strings.Join(names, ", "))
}

// ReadGenerations reads the generations of the broker from any replica, ordered by name.
func ReadGenerations(ctx context.Context, js jetstream.JetStream) (*Generations, error) {
	stored, err := broker.MessagesOf(ctx, js, "KV_"+ControlBucket, []string{ControlSubject(">")})
	if err != nil {
		return nil, fmt.Errorf("read bucket %s: %w", ControlBucket, err)
	}
	return decodeGenerations(stored)
}

// ReadEveryGeneration is [ReadGenerations] from a replica that has every generation that the leader of the bucket has.
func ReadEveryGeneration(ctx context.Context, js jetstream.JetStream) (*Generations, error) {
	newest, err := broker.LeaderGet(ctx, js, "KV_"+ControlBucket, broker.GetRequest{LastBySubject: ControlSubject(GenerationPrefix + ">")})
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return ReadGenerations(ctx, js)
	}
	if err != nil {
		return nil, fmt.Errorf("read bucket %s: %w", ControlBucket, err)
	}
	stored, err := broker.MessagesAsOf(ctx, js, "KV_"+ControlBucket, broker.Place{Subject: newest.Subject, Sequence: newest.Sequence}, []string{ControlSubject(">")})
	if err != nil {
		return nil, fmt.Errorf("read bucket %s: %w", ControlBucket, err)
	}
	return decodeGenerations(stored)
}

// decodeGenerations decodes the keys of [ControlBucket], by their subjects.
func decodeGenerations(stored map[string]broker.Stored) (*Generations, error) {
	current := stored[ControlSubject(currentKey)]
	var layout Layout
	var err error
	if m := stored[ControlSubject(partitionsKey)]; len(m.Data) > 0 {
		if layout, err = parseLayout(string(m.Data)); err != nil {
			return nil, err
		}
	}
	all := &Generations{Live: string(current.Data), LiveSince: current.Time, live: current.Sequence, Dropped: make(map[string]uint64)}
	if all.Cutover, err = decodeCutover(stored[ControlSubject(cutoverKey)]); err != nil {
		return nil, err
	}
	for _, subject := range slices.Sorted(maps.Keys(stored)) {
		m := stored[subject]
		if len(m.Data) == 0 {
			continue // deleted
		}
		key := strings.TrimPrefix(subject, ControlSubject(""))
		if name, ok := strings.CutPrefix(key, DroppedPrefix); ok {
			all.Dropped[name], _ = strconv.ParseUint(string(m.Data), 10, 64)
		}
		name, ok := strings.CutPrefix(key, GenerationPrefix)
		if !ok {
			continue
		}
		g, err := decodeGeneration(name, m, stored[ControlSubject(SettingsPrefix+name)])
		if err != nil {
			return nil, err
		}
		g.Layout = layout
		all.List = append(all.List, g)
	}
	all.setStates()
	return all, nil
}

// decodeGeneration reads the keys of a generation.
func decodeGeneration(name string, record, settings broker.Stored) (Generation, error) {
	var r GenerationRecord
	if err := json.Unmarshal(record.Data, &r); err != nil {
		return Generation{}, fmt.Errorf("%w: %s of bucket %s", ErrState, GenerationPrefix+name, ControlBucket)
	}
	g := Generation{
		Name: name, Revision: r.Revision, State: r.State, From: r.From, Replaces: r.Replaces, Started: r.Started,
		Marked: r.State, Replay: r.State == StateReplaying, sequence: record.Sequence,
	}
	if g.Marked == StateResuming {
		g.State = StateStarting
	}
	if len(settings.Data) > 0 {
		s, err := decodeSettings(SettingsPrefix+name, settings.Data)
		if err != nil {
			return Generation{}, err
		}
		g.Settings, g.Part = s.Settings, s.Part
	}
	return g, nil
}

// setStates sets the states. Only the key of the live generation decides which one is live. The generation that it
// replaced is retired even if its own key does not say so yet, because a change may have been interrupted; except if
// its replay was resumed.
func (g *Generations) setStates() {
	replaced := ""
	for i := range g.List {
		if x := &g.List[i]; x.Name == g.Live {
			x.State, x.Replay, replaced = StateLive, false, x.Replaces
		}
	}
	for i := range g.List {
		x := &g.List[i]
		takenUp := x.Replay && x.Replaces == ""
		switch {
		case x.State == StateLive, x.State == StateStarting, x.State == StateDropping:
		case x.Name == replaced && !takenUp, x.State == StateRetired, g.Cutover.Open() && g.Cutover.From == x.Name:
			x.State, x.Replay = StateRetired, false
		default:
			x.State = StateReplaying
		}
	}
}

// ControlSubject returns the subject of a key in the stream of the control bucket.
func ControlSubject(key string) string { return "$KV." + ControlBucket + "." + key }

// ReadControl reads a key from the leader of the bucket, because a replica may lack what was just written. It returns
// [jetstream.ErrKeyNotFound] if there is no such key.
func ReadControl(ctx context.Context, js jetstream.JetStream, key string) ([]byte, error) {
	m, err := broker.LeaderGet(ctx, js, "KV_"+ControlBucket, broker.GetRequest{LastBySubject: ControlSubject(key)})
	if errors.Is(err, jetstream.ErrMsgNotFound) || err == nil && len(m.Data) == 0 { // a deleted key is a message without data
		err = jetstream.ErrKeyNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("read %s of bucket %s: %w", key, ControlBucket, err)
	}
	return m.Data, nil
}

// LiveGeneration returns the name of the live generation, which consumers read. It needs the right to read one
// message of the bucket. It returns v1 for a broker that has no generation yet, and [ErrKeysLost] for a bucket that
// has lost the name.
func LiveGeneration(ctx context.Context, js jetstream.JetStream) (string, error) {
	name, err := liveGeneration(ctx, js)
	if errors.Is(err, ErrKeysLost) { // or another process is creating the bucket
		if err := broker.Pause(ctx, time.Second); err != nil {
			return "", err
		}
		name, err = liveGeneration(ctx, js)
	}
	return name, broker.Wrap(err, "read the name of the live generation")
}

func liveGeneration(ctx context.Context, js jetstream.JetStream) (string, error) {
	m, err := broker.ReadStored(ctx, js, "KV_"+ControlBucket, broker.GetRequest{LastBySubject: ControlSubject(currentKey)})
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return firstGeneration, nil
	case errors.Is(err, jetstream.ErrMsgNotFound):
		// The first key of a bucket is written before the name, and never again.
		if _, err = broker.ReadStored(ctx, js, "KV_"+ControlBucket, broker.GetRequest{Sequence: 1}); errors.Is(err, jetstream.ErrMsgNotFound) {
			err = ErrKeysLost
		}
		return firstGeneration, err
	case err != nil:
		return "", err
	case len(m.Data) == 0: // deleted
		return "", ErrKeysLost
	}
	return string(m.Data), nil
}

// live returns t, with the live generation if t names none.
func (t Topology) live(ctx context.Context, js jetstream.JetStream) (Topology, error) {
	if t.Generation != "" {
		return t, nil
	}
	name, err := liveGeneration(ctx, js)
	if errors.Is(err, ErrKeysLost) {
		s, infoErr := js.Stream(ctx, "KV_"+ControlBucket)
		if infoErr == nil && s.CachedInfo().State.LastSeq == 0 {
			name, err = firstGeneration, nil // the process that created the bucket has stored nothing yet
		}
	}
	t.Generation = name
	return t, broker.Wrap(err, "read the name of the live generation")
}

// ReadGeneration reads one generation from the leader of the bucket, because a replica may lack the keys of a new
// one. Its State is never [StateLive], even if the generation is live.
func ReadGeneration(ctx context.Context, js jetstream.JetStream, name string) (Generation, error) {
	record, err := broker.LeaderGet(ctx, js, "KV_"+ControlBucket, broker.GetRequest{LastBySubject: ControlSubject(GenerationPrefix + name)})
	if errors.Is(err, jetstream.ErrMsgNotFound) || err == nil && len(record.Data) == 0 {
		err = fmt.Errorf("%w %q", ErrNoGeneration, name)
	}
	if err != nil {
		return Generation{}, fmt.Errorf("read %s%s of bucket %s: %w", GenerationPrefix, name, ControlBucket, err)
	}
	settings, err := broker.LeaderGet(ctx, js, "KV_"+ControlBucket, broker.GetRequest{LastBySubject: ControlSubject(SettingsPrefix + name)})
	if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		return Generation{}, fmt.Errorf("read %s%s of bucket %s: %w", SettingsPrefix, name, ControlBucket, err)
	}
	return decodeGeneration(name, record, settings)
}

// ProvisionGeneration stores the settings of a new generation, then its first checkpoints, then its key. The key
// comes last: once it exists and its state is not starting, the settings are final, and no first checkpoint is
// written again, because one that is missing then was lost.
func ProvisionGeneration(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue, t Topology, part Part, r GenerationRecord) error {
	key := GenerationPrefix + t.Generation
	g, err := ReadGeneration(ctx, js, t.Generation)
	if err == nil && g.Marked != StateStarting {
		return provisionSettings(ctx, js, kv, t, part)
	}
	if err != nil && !errors.Is(err, ErrNoGeneration) {
		return err
	}
	for cell, name := range t.cellNames() {
		s, err := js.Stream(ctx, EventsStream(name))
		if err != nil {
			return fmt.Errorf("provision generation %s: %w", t.Generation, err)
		}
		if info := s.CachedInfo(); info.State.LastSeq > max(info.Config.FirstSeq, 1)-1+uint64(len(t.Layout().PartitionsOf(cell))) {
			return lostGeneration(ctx, js, t)
		}
	}
	if err := provisionSettings(ctx, js, kv, t, part); err != nil {
		return err
	}
	erasures, err := ReadErasures(ctx, js, AllPartitions)
	if err != nil {
		return err
	}
	made := Generation{From: r.From, Part: part}
	for p := range t.Partitions {
		own := slices.DeleteFunc(slices.Clone(erasures), func(e Erasure) bool { return e.Partition != p })
		first := Checkpoint{Revision: r.Revision, Started: r.Started}.WithErased(own, made.Origin(t.Layout().Cell(p)))
		if err := firstCheckpoint(ctx, js, t.cellName(p), p, first); err != nil {
			return err
		}
	}
	if g.Marked == StateStarting {
		return g.Store(ctx, kv, r)
	}
	value, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode %s: %w", key, err)
	}
	return EnsureKey(ctx, js, kv, key, value)
}

// lostGeneration returns the error for a generation whose key is lost although its stream is in use.
func lostGeneration(ctx context.Context, js jetstream.JetStream, t Topology) error {
	c, _, err := ReadCheckpoint(ctx, js, t.cellName(0), 0)
	if err != nil {
		return err
	}
	key := GenerationPrefix + t.Generation
	return &TopologyError{
		Name:        "bucket " + ControlBucket,
		Differences: []Difference{{key, "nothing", "the revision of a stream that is in use"}},
		Cure: fmt.Sprintf(`restore the bucket; or put the key back, nats kv put %s %s '{"revision":%d}', after starting a worker with the settings of the generation; or choose another name for the generation`,
			ControlBucket, key, c.Revision),
	}
}

// CheckGeneration returns why a stage cannot work on the generation of t: the server lacks it, another revision of
// the normalizers made it, or it has other settings. It changes nothing.
func CheckGeneration(ctx context.Context, js jetstream.JetStream, t Topology, revision int) (Generation, error) {
	if err := checkServer(ctx, js, t); err != nil {
		return Generation{}, err
	}
	g, err := ReadGeneration(ctx, js, t.Generation)
	if err != nil {
		return Generation{}, err
	}
	g.Layout = t.Layout()
	if g.Revision != revision {
		return Generation{}, fmt.Errorf("%w: %s has revision %d, this program has %d: build a generation of this revision beside it: tributary replay start NAME",
			ErrRevision, t.Generation, g.Revision, revision)
	}
	if g.Settings == (Settings{}) {
		return Generation{}, fmt.Errorf("%w: bucket %s has no %s%s: start a worker that provisions the generation, which stores it", ErrState, ControlBucket, SettingsPrefix, g.Name)
	}
	return g, g.Settings.Contradiction(g.Name, t.Settings)
}
