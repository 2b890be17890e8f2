package pipeline

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
)

// firstGeneration is the live generation of a new broker.
const firstGeneration = "v1"

// State is the place of a generation in its life.
type State string

// The states.
const (
	StateLive      State = "live"      // the one that consumers read
	StateReplaying State = "replaying" // not live; some records are not done
	StateReady     State = "ready"     // not live; every record is done
	StateRetired   State = "retired"   // was live; no worker works on it
	StateStarting  State = "starting"  // a start was interrupted, or is under way
	StateDropping  State = "dropping"  // a drop was interrupted, or is under way

	stateResuming State = "resuming" // in the key of a retired generation that is being started again
)

// Generation is one run over the raw stream, as the broker remembers it.
type Generation struct {
	Name     string    `json:"name"`
	Revision int       `json:"revision"` // of its normalizers
	Settings Settings  `json:"settings"`
	State    State     `json:"state"`             // without [Generation.CaughtUp], ready counts as replaying
	Part     Part      `json:"part,omitzero"`     // that it is made of
	From     Positions `json:"from,omitzero"`     // the first raw sequence of each cell that it has, where earlier records had expired
	Replaces string    `json:"replaces,omitzero"` // the generation that was live before it
	Started  time.Time `json:"started,omitzero"`  // when its replay was started

	layout   Layout // of the deployment
	marked   State  // in its key
	replay   bool   // workers that follow the live generation build it
	sequence uint64 // of its key; 0 when it is not stored
}

// live reports whether the workers follow the generation and readers get its events by default.
func (g *Generation) live() bool { return g.State == StateLive }

// cellName returns the name under which the cell of a partition stores the generation.
func (g *Generation) cellName(partition int) string {
	return envelopes.CellName(g.Name, g.layout.cell(partition))
}

// cellNames returns the names under which the cells store the generation.
func (g *Generation) cellNames() []string { return cellNames(g.Name, max(g.layout.Cells, 1)) }

// generationRecord is the value of the key of a generation in [controlBucket].
type generationRecord struct {
	Revision int       `json:"revision"` // of its normalizers
	State    State     `json:"state,omitzero"`
	From     Positions `json:"from,omitzero"`
	Replaces string    `json:"replaces,omitzero"`
	Started  time.Time `json:"started,omitzero"`
}

// store writes the key of the generation, unless another process has changed it since it was
// read.
func (g *Generation) store(ctx context.Context, kv jetstream.KeyValue, r generationRecord) error {
	key := generationPrefix + g.Name
	value, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode %s: %w", key, err)
	}
	sequence, err := kv.Update(ctx, key, value, g.sequence)
	if fenced(err) {
		return fmt.Errorf("%w: %s", errChanged, g.Name)
	}
	if err != nil {
		return fmt.Errorf("write %s of bucket %s: %w", key, controlBucket, err)
	}
	g.sequence, g.marked, g.From, g.Replaces, g.Started = sequence, r.State, r.From, r.Replaces, r.Started
	return nil
}

// record returns what the key of the generation stores, with another state.
func (g *Generation) record(state State) generationRecord {
	return generationRecord{Revision: g.Revision, State: state, From: g.From, Replaces: g.Replaces, Started: g.Started}
}

// Generations are the generations of a broker.
type Generations struct {
	Live    string // name of the live one; empty on a broker without any
	List    []Generation
	Cutover Cutover // the last one; the zero value when there was none

	live    uint64            // sequence of the key of the live one
	dropped map[string]uint64 // last sequence of the streams of names that were dropped
}

// Find returns the generation of a name. The error names those that exist.
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

// ReadGenerations reads the generations of the broker, in the order of their names.
func ReadGenerations(ctx context.Context, js jetstream.JetStream) (*Generations, error) {
	stored, err := lastMessages(ctx, js, "KV_"+controlBucket, []string{controlSubject(">")})
	if err != nil {
		return nil, fmt.Errorf("read bucket %s: %w", controlBucket, err)
	}
	current := stored[controlSubject(currentKey)]
	var layout Layout
	if m := stored[controlSubject(partitionsKey)]; len(m.Data) > 0 {
		if layout, err = parseLayout(string(m.Data)); err != nil {
			return nil, err
		}
	}
	all := &Generations{Live: string(current.Data), live: current.Sequence, dropped: make(map[string]uint64)}
	if all.Cutover, err = decodeCutover(stored[controlSubject(cutoverKey)]); err != nil {
		return nil, err
	}
	for _, subject := range slices.Sorted(maps.Keys(stored)) {
		m := stored[subject]
		if len(m.Data) == 0 {
			continue // deleted
		}
		key := strings.TrimPrefix(subject, controlSubject(""))
		if name, ok := strings.CutPrefix(key, droppedPrefix); ok {
			all.dropped[name], _ = strconv.ParseUint(string(m.Data), 10, 64)
		}
		name, ok := strings.CutPrefix(key, generationPrefix)
		if !ok {
			continue
		}
		g, err := decodeGeneration(name, m, stored[controlSubject(settingsPrefix+name)])
		if err != nil {
			return nil, err
		}
		g.layout = layout
		all.List = append(all.List, g)
	}
	all.setStates()
	return all, nil
}

// decodeGeneration reads the keys of a generation.
func decodeGeneration(name string, record, settings storedMessage) (Generation, error) {
	var r generationRecord
	if err := json.Unmarshal(record.Data, &r); err != nil {
		return Generation{}, fmt.Errorf("%w: %s of bucket %s", errState, generationPrefix+name, controlBucket)
	}
	g := Generation{
		Name: name, Revision: r.Revision, State: r.State, From: r.From, Replaces: r.Replaces, Started: r.Started,
		marked: r.State, replay: r.State == StateReplaying, sequence: record.Sequence,
	}
	if g.marked == stateResuming {
		g.State = StateStarting
	}
	if len(settings.Data) > 0 {
		s, err := decodeSettings(settingsPrefix+name, settings.Data)
		if err != nil {
			return Generation{}, err
		}
		g.Settings, g.Part = s.Settings, s.Part
	}
	return g, nil
}

// setStates decides the states. The key of the live generation alone says which one is live.
// The generation that it replaced is retired, also while its own key does not say so yet: a
// change may have been interrupted. So it is unless its replay was taken up again.
func (g *Generations) setStates() {
	replaced := ""
	for i := range g.List {
		if x := &g.List[i]; x.Name == g.Live {
			x.State, x.replay, replaced = StateLive, false, x.Replaces
		}
	}
	for i := range g.List {
		x := &g.List[i]
		takenUp := x.replay && x.Replaces == ""
		switch {
		case x.State == StateLive, x.State == StateStarting, x.State == StateDropping:
		case x.Name == replaced && !takenUp, x.State == StateRetired, g.Cutover.Open() && g.Cutover.From == x.Name:
			x.State, x.replay = StateRetired, false
		default:
			x.State = StateReplaying
		}
	}
}

// controlSubject returns the subject of a key in the stream of the control bucket.
func controlSubject(key string) string { return "$KV." + controlBucket + "." + key }

// readControl reads a key from the leader of the bucket: a replica may not have what was just
// written. The error is [jetstream.ErrKeyNotFound] when there is no such key.
func readControl(ctx context.Context, js jetstream.JetStream, key string) ([]byte, error) {
	m, err := leaderGet(ctx, js, "KV_"+controlBucket, getRequest{LastBySubject: controlSubject(key)})
	if errors.Is(err, jetstream.ErrMsgNotFound) || err == nil && len(m.Data) == 0 { // a deleted key is a message without data
		err = jetstream.ErrKeyNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("read %s of bucket %s: %w", key, controlBucket, err)
	}
	return m.Data, nil
}

// LiveGeneration returns the name of the live generation: the one that consumers read. It
// needs the right to read one message of the bucket, and returns v1 for a broker that has
// none yet. A bucket that has lost the name is an error, never v1.
func LiveGeneration(ctx context.Context, js jetstream.JetStream) (string, error) {
	name, err := liveGeneration(ctx, js)
	if errors.Is(err, errKeysLost) { // or another process makes the bucket just now
		if err := pause(ctx, time.Second); err != nil {
			return "", err
		}
		name, err = liveGeneration(ctx, js)
	}
	return name, wrap(err, "read the name of the live generation")
}

func liveGeneration(ctx context.Context, js jetstream.JetStream) (string, error) {
	m, err := readStored(ctx, js, "KV_"+controlBucket, getRequest{LastBySubject: controlSubject(currentKey)})
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return firstGeneration, nil
	case errors.Is(err, jetstream.ErrMsgNotFound):
		// The first key of a bucket is written before the name, and never again.
		if _, err = readStored(ctx, js, "KV_"+controlBucket, getRequest{Sequence: 1}); errors.Is(err, jetstream.ErrMsgNotFound) {
			err = errKeysLost
		}
		return firstGeneration, err
	case err != nil:
		return "", err
	case len(m.Data) == 0: // deleted
		return "", errKeysLost
	}
	return string(m.Data), nil
}

// live returns t with the live generation where it names none.
func (t Topology) live(ctx context.Context, js jetstream.JetStream) (Topology, error) {
	if t.Generation != "" {
		return t, nil
	}
	name, err := liveGeneration(ctx, js)
	if errors.Is(err, errKeysLost) {
		s, infoErr := js.Stream(ctx, "KV_"+controlBucket)
		if infoErr == nil && s.CachedInfo().State.LastSeq == 0 {
			name, err = firstGeneration, nil // the process that made the bucket has stored nothing yet
		}
	}
	t.Generation = name
	return t, wrap(err, "read the name of the live generation")
}

// readGeneration reads one generation from the leader of the bucket: a replica may not have
// the keys of one that was just made. Its State does not say whether it is live.
func readGeneration(ctx context.Context, js jetstream.JetStream, name string) (Generation, error) {
	record, err := leaderGet(ctx, js, "KV_"+controlBucket, getRequest{LastBySubject: controlSubject(generationPrefix + name)})
	if errors.Is(err, jetstream.ErrMsgNotFound) || err == nil && len(record.Data) == 0 {
		err = fmt.Errorf("%w %q", ErrNoGeneration, name)
	}
	if err != nil {
		return Generation{}, fmt.Errorf("read %s%s of bucket %s: %w", generationPrefix, name, controlBucket, err)
	}
	settings, err := leaderGet(ctx, js, "KV_"+controlBucket, getRequest{LastBySubject: controlSubject(settingsPrefix + name)})
	if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		return Generation{}, fmt.Errorf("read %s%s of bucket %s: %w", settingsPrefix, name, controlBucket, err)
	}
	return decodeGeneration(name, record, settings)
}

// provisionGeneration stores the settings of a new generation, then its first checkpoints,
// then its key. The key comes last: once it exists, and does not say that the generation is being
// started, the settings are those of the generation, and no first checkpoint is ever written again, because
// a checkpoint that is missing then was lost.
func provisionGeneration(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue, t Topology, part Part, r generationRecord) error {
	key := generationPrefix + t.Generation
	g, err := readGeneration(ctx, js, t.Generation)
	if err == nil && g.marked != StateStarting {
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
		if info := s.CachedInfo(); info.State.LastSeq > max(info.Config.FirstSeq, 1)-1+uint64(len(t.layout().partitionsOf(cell))) {
			return lostGeneration(ctx, js, t)
		}
	}
	if err := provisionSettings(ctx, js, kv, t, part); err != nil {
		return err
	}
	for p := range t.Partitions {
		if err := firstCheckpoint(ctx, js, t.cellName(p), p, r); err != nil {
			return err
		}
	}
	if g.marked == StateStarting {
		return g.store(ctx, kv, r)
	}
	value, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode %s: %w", key, err)
	}
	return ensureKey(ctx, kv, key, value)
}

// lostGeneration returns the error for a generation that has lost its key, although its stream
// is in use.
func lostGeneration(ctx context.Context, js jetstream.JetStream, t Topology) error {
	c, _, err := readCheckpoint(ctx, js, t.cellName(0), 0)
	if err != nil {
		return err
	}
	key := generationPrefix + t.Generation
	return &topologyError{
		name:        "bucket " + controlBucket,
		differences: []difference{{key, "nothing", "the revision of a stream that is in use"}},
		cure: fmt.Sprintf(`restore the bucket; or put the key back, nats kv put %s %s '{"revision":%d}', and start a worker first that has the settings with which the generation was made; or give the generation another name`,
			controlBucket, key, c.Revision),
	}
}

// check reports what keeps a stage from working on the generation of t: the server does not
// hold it, another revision of the normalizers made it, or it has other settings. It changes
// nothing.
func check(ctx context.Context, js jetstream.JetStream, t Topology, revision int) (Generation, error) {
	if err := checkServer(ctx, js, t); err != nil {
		return Generation{}, err
	}
	g, err := readGeneration(ctx, js, t.Generation)
	if err != nil {
		return Generation{}, err
	}
	g.layout = t.layout()
	if g.Revision != revision {
		return Generation{}, fmt.Errorf("%w: %s is of revision %d, this program of %d: build a generation of this revision beside it: tributary replay start NAME",
			errRevision, t.Generation, g.Revision, revision)
	}
	if g.Settings == (Settings{}) {
		return Generation{}, fmt.Errorf("%w: bucket %s has no %s%s: a worker that provisions the generation stores it", errState, controlBucket, settingsPrefix, g.Name)
	}
	return g, g.Settings.contradiction(g.Name, t.Settings)
}
