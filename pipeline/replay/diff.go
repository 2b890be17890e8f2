package replay

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"tributary/envelopes"
	"tributary/pipeline/events"
	"tributary/pipeline/spill"
	"tributary/pipeline/streams"
)

// DiffQuery selects what [Compare] compares. The zero value of a field selects all.
type DiffQuery struct {
	Source  envelopes.Source
	Session string
	Ignore  []string // fields of events to ignore, see [DiffFields]
	Limit   int      // examples of each kind of difference; each field that differs has at least one
	Bytes   int      // approximate limit of the bytes of all example events: further ones are left out; 0 for no limit

	Read *atomic.Uint64 // counts the events read of both generations; nil for none
}

// Diff is the difference between the events of two generations, A and B. They are compared from the first record that
// both have to the last record that both have done.
//
// Two events are the same when they have the same source, session and event_id, and every field but sequence is equal
// byte for byte. sequence is the position in the session; its differences count as Added, Removed and Reordered.
type Diff struct {
	A         DiffSide              `json:"a"`
	B         DiffSide              `json:"b"`
	Sessions  uint64                `json:"sessions"`
	Events    uint64                `json:"events"` // in A or B: the sum of Same, Changed, Added and Removed
	Same      uint64                `json:"same"`
	Changed   uint64                `json:"changed"`
	Added     uint64                `json:"added"`     // in B alone
	Removed   uint64                `json:"removed"`   // in A alone
	Reordered uint64                `json:"reordered"` // in both, but at different places among the events of the session that both have
	Fields    map[string]uint64     `json:"fields"`    // changed events by the field that differs
	Groups    []DiffGroup           `json:"groups"`    // counts by agent and type
	Tokens    map[string]DiffTokens `json:"tokens"`    // by field
	Examples  []DiffExample         `json:"examples"`
}

// DiffSide is one of the two generations.
type DiffSide struct {
	Generation string `json:"generation"`
	Events     uint64 `json:"events"`
	CaughtUp   bool   `json:"caught_up"` // every record of the raw stream is done
}

// DiffGroup counts the events of an agent and a type. The groups add up to the counts of the [Diff]. An event whose
// type differs counts in the group of its type in A.
type DiffGroup struct {
	Source    envelopes.Source    `json:"source"`
	EventType envelopes.EventType `json:"event_type"`
	Same      uint64              `json:"same"`
	Changed   uint64              `json:"changed"`
	Added     uint64              `json:"added"`
	Removed   uint64              `json:"removed"`
	Reordered uint64              `json:"reordered"`
	Fields    map[string]uint64   `json:"fields"`
}

// Equal reports whether nothing differs.
func (g *DiffGroup) Equal() bool { return g.Changed+g.Added+g.Removed+g.Reordered == 0 }

// DiffTokens sums a token count over the events of each generation.
type DiffTokens struct {
	A int64 `json:"a"`
	B int64 `json:"b"`
}

// The kinds of a [DiffExample].
const (
	DiffChanged   = "changed"
	DiffAdded     = "added"
	DiffRemoved   = "removed"
	DiffReordered = "reordered"
)

// DiffExample is one event that differs.
type DiffExample struct {
	Kind      string              `json:"kind"`
	Source    envelopes.Source    `json:"source"`
	Session   string              `json:"session_id"`
	EventID   string              `json:"event_id"`
	EventType envelopes.EventType `json:"event_type"`
	Fields    []DiffField         `json:"fields,omitempty"` // set for a changed event

	positions [2]uint64 // in A and B, see [streams.PlaceOf]; 0 for none
}

// DiffField is a field that differs, with its values in JSON; empty where it is absent.
type DiffField struct {
	Field string         `json:"field"`
	A     jsontext.Value `json:"a,omitzero"`
	B     jsontext.Value `json:"b,omitzero"`
}

// Around returns excerpts of both values around their first difference, each of at most shown bytes, for people to
// read.
func (f *DiffField) Around(shown int) (a, b string) {
	const before = 20
	same := 0
	for same < len(f.A) && same < len(f.B) && f.A[same] == f.B[same] {
		same++
	}
	cut := func(v jsontext.Value) string {
		if v == nil {
			return "(absent)"
		}
		text := string(v)
		if from := same - before; from > 0 {
			text = "…" + strings.ToValidUTF8(text[min(from, len(text)):], "")
		}
		if len(text) > shown {
			text = strings.ToValidUTF8(text[:shown], "") + "…"
		}
		return text
	}
	return cut(f.A), cut(f.B)
}

// FieldsByCount returns the names in counts, highest count first.
func FieldsByCount(counts map[string]uint64) []string {
	return slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
}

// Equal reports whether nothing differs. It is also true if nothing was compared, see Events.
func (d *Diff) Equal() bool { return d.Changed+d.Added+d.Removed+d.Reordered == 0 }

// sequenceField is the field that is never compared, see [Diff].
const sequenceField = "sequence"

// DiffFields returns the fields of an event that are compared, in the order of the schema.
func DiffFields() []string {
	var list []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[envelopes.AgentEventV1]()) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != sequenceField {
			list = append(list, name)
		}
	}
	return list
}

// Memory limits of a comparison. The rest goes to temporary files.
const (
	diffItemBytes = 64 << 20
	diffPairBytes = 32 << 20
)

// Compare compares the events of two generations. It reads both streams once, and groups digests of the events by
// session and id, in temporary files if they exceed the memory. Memory does not grow with the streams, except for
// sixteen bytes for each event of the longest session.
func Compare(ctx context.Context, js jetstream.JetStream, a, b string, q DiffQuery) (*Diff, error) {
	c := &comparison{
		js: js, query: q,
		seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, first: make(map[string][][2]uint64),
		diff: &Diff{
			A: DiffSide{Generation: a}, B: DiffSide{Generation: b},
			Fields: make(map[string]uint64), Groups: []DiffGroup{}, Tokens: make(map[string]DiffTokens),
		},
	}
	c.groupItems()
	defer func() { _, _ = c.events.Close(), c.sessions.Close() }()
	if err := c.selectRecords(ctx); err != nil {
		return nil, err
	}
	readers, reading := errgroup.WithContext(ctx)
	for side := range c.names() {
		readers.Go(func() error { return c.read(reading, side) })
	}
	if err := readers.Wait(); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := c.events.Finish(); err != nil {
		return nil, err
	}
	if err := c.sessions.Finish(); err != nil {
		return nil, err
	}
	c.countTokens()
	slices.SortFunc(c.diff.Groups, func(a, b DiffGroup) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.EventType, b.EventType))
	})
	return c.diff, c.loadExamples(ctx)
}

// comparison is the state of one [Compare].
type comparison struct {
	js    jetstream.JetStream
	query DiffQuery
	seeds [2]maphash.Seed
	diff  *Diff

	from   []uint64 // first raw sequence compared, by cell
	limits []uint64 // last raw sequence compared, by partition

	mu       sync.Mutex                              // guards the fields below while both streams are read
	events   spill.Grouper[*[2][]diffItem, diffItem] // items by session and event, on each side
	fields   []string                                // field names, by the number used in items
	sessions spill.Grouper[*[]diffPair, diffPair]    // the events by session
	tokens   [2][len(tokenFields)]int64
	first    map[string][][2]uint64 // positions of examples, by kind, and by kind and field
}

// diffItem is an event of one side.
type diffItem struct {
	Side     int    `json:"s"`
	Group    int    `json:"g"` // index in the groups of the diff
	Position uint64 `json:"p"` // see [streams.PlaceOf]
	Fields   []byte `json:"f"` // for each field the number of its name and a digest of its value
}

// diffPair has the positions of an event on both sides; 0 on a side that lacks the event.
type diffPair struct {
	A     uint64 `json:"a,omitzero"`
	B     uint64 `json:"b,omitzero"`
	Group int    `json:"g,omitzero"` // group of the event
}

// The memory of a [diffItem] besides its fields, and of a [diffPair].
const (
	itemBytes = 56
	pairBytes = 24
)

// groupItems sets what happens to the items of an event and to the events of a session.
func (c *comparison) groupItems() {
	c.events = spill.Grouper[*[2][]diffItem, diffItem]{
		Limit: diffItemBytes,
		New:   func(string) *[2][]diffItem { return new([2][]diffItem) },
		Add: func(found *[2][]diffItem, item *diffItem) int {
			found[item.Side] = append(found[item.Side], *item)
			return itemBytes + len(item.Fields)
		},
		Done: func(key string, found *[2][]diffItem) error { return c.compare(key[:len(key)/2], found[0], found[1]) },
	}
	c.sessions = spill.Grouper[*[]diffPair, diffPair]{
		Limit: diffPairBytes,
		New:   func(string) *[]diffPair { return new([]diffPair) },
		Add: func(pairs *[]diffPair, pair *diffPair) int {
			*pairs = append(*pairs, *pair)
			return pairBytes
		},
		Done: func(_ string, pairs *[]diffPair) error {
			c.diff.Sessions++
			c.order(*pairs)
			return nil
		},
	}
}

// names returns the names of the generations by side.
func (c *comparison) names() [2]string { return [2]string{c.diff.A.Generation, c.diff.B.Generation} }

// selectRecords determines which records both generations have.
func (c *comparison) selectRecords(ctx context.Context) error {
	all, err := streams.ReadGenerations(ctx, c.js)
	if err != nil {
		return err
	}
	for side, name := range c.names() {
		g, err := all.Find(name)
		if err != nil {
			return err
		}
		t, err := streams.StoredTopology(ctx, c.js, name)
		if err != nil {
			return err
		}
		lag, err := readLag(ctx, c.js, g, t.Partitions)
		if err != nil {
			return err
		}
		if side == 0 {
			c.diff.A.CaughtUp = lag == 0
		} else {
			c.diff.B.CaughtUp = lag == 0
		}
		if err := c.narrow(ctx, g); err != nil {
			return err
		}
	}
	return nil
}

// narrow excludes the records that a generation does not have.
func (c *comparison) narrow(ctx context.Context, g streams.Generation) error {
	if c.from == nil {
		c.from = make([]uint64, max(g.Layout.Cells, 1))
	}
	for cell := range c.from {
		c.from[cell] = max(c.from[cell], g.From.In(cell), g.Part.Sequence)
	}
	for _, f := range []struct{ have, want *string }{
		{(*string)(&c.query.Source), (*string)(&g.Part.Source)}, {&c.query.Session, &g.Part.Session},
	} {
		if *f.want != "" && *f.have != "" && *f.have != *f.want {
			return fmt.Errorf("generation %s has only the records of %s", g.Name, g.Part)
		}
		*f.have = cmp.Or(*f.have, *f.want)
	}
	checkpoints, err := streams.ReadCheckpoints(ctx, c.js, g.Name, g.Layout)
	if err != nil {
		return err
	}
	if c.limits == nil {
		c.limits = slices.Repeat([]uint64{1<<64 - 1}, g.Layout.Partitions)
	}
	for p, checkpoint := range checkpoints {
		c.limits[p] = min(c.limits[p], checkpoint.Raw)
	}
	return nil
}

// read reads the events of one side into items.
func (c *comparison) read(ctx context.Context, side int) error {
	name := c.names()[side]
	var data []byte
	eventCount := uint64(0)
	var tokens [len(tokenFields)]int64
	for e, err := range events.Read(ctx, c.js, name, events.Query{Source: c.query.Source, Session: c.query.Session}) {
		if err != nil {
			return err
		}
		if raw := e.Provenance.RawSequence; raw < c.from[e.Cell] || e.Provenance.Partition < len(c.limits) && raw > c.limits[e.Provenance.Partition] {
			continue
		}
		if data, err = e.AppendJSON(data[:0]); err != nil {
			return err
		}
		item, err := c.encode(side, &e, data)
		if err != nil {
			return err
		}
		eventCount++
		if c.query.Read != nil {
			c.query.Read.Add(1)
		}
		addTokens(&tokens, &e.AgentEventV1)
		if err := c.addItem(&e, &item); err != nil {
			return err
		}
	}
	c.tokens[side] = tokens
	if side == 0 {
		c.diff.A.Events = eventCount
	} else {
		c.diff.B.Events = eventCount
	}
	return nil
}

// addItem adds an item to its session and event.
func (c *comparison) addItem(e *events.Event, item *diffItem) error {
	key := c.digest(string(e.Source)+"\x00"+e.SessionID) + c.digest(e.EventID)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.events.Put(key, item)
}

// digest returns a digest of 128 bits as a string.
func (c *comparison) digest(id string) string {
	var b []byte
	for _, seed := range c.seeds {
		b = binary.BigEndian.AppendUint64(b, maphash.String(seed, id))
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// itemField is the length of a field of a [diffItem].
const itemField = 9

// encode returns the item of an event, whose JSON is data.
func (c *comparison) encode(side int, e *events.Event, data []byte) (diffItem, error) {
	var b []byte
	err := eachField(data, func(name string, value jsontext.Value) {
		if name == sequenceField || slices.Contains(c.query.Ignore, name) {
			return
		}
		b = append(b, c.fieldNumber(name))
		b = binary.BigEndian.AppendUint64(b, maphash.Bytes(c.seeds[0], value))
	})
	return diffItem{side, c.group(e.Source, e.EventType), streams.PlaceOf(e.Cell, e.Position), b}, err
}

// group returns the index of a group, adding it if it is new.
func (c *comparison) group(source envelopes.Source, eventType envelopes.EventType) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.diff.Groups, func(g DiffGroup) bool { return g.Source == source && g.EventType == eventType })
	if i < 0 {
		i = len(c.diff.Groups)
		c.diff.Groups = append(c.diff.Groups, DiffGroup{Source: source, EventType: eventType, Fields: make(map[string]uint64)})
	}
	return i
}

// eachField calls field with each field of a JSON object. The value is valid only during the call.
func eachField(data []byte, field func(name string, value jsontext.Value)) error {
	d := jsontext.NewDecoder(bytes.NewReader(data))
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	for d.PeekKind() == '"' {
		token, err := d.ReadToken()
		if err != nil {
			return err
		}
		name := token.String()
		value, err := d.ReadValue()
		if err != nil {
			return err
		}
		field(name, value)
	}
	return nil
}

// fieldNumber returns the number of the name of a field. An event has fewer than 256.
func (c *comparison) fieldNumber(name string) byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.fields, name)
	if i < 0 {
		i = len(c.fields)
		c.fields = append(c.fields, name)
	}
	return byte(i)
}

// compare compares the items of one event. If a side has an event several times, its copies are paired in order with
// those of the other side.
func (c *comparison) compare(session string, a, b []diffItem) error {
	both := min(len(a), len(b))
	for i := range both {
		c.diff.Events++
		if err := c.sessions.Put(session, &diffPair{a[i].Position, b[i].Position, a[i].Group}); err != nil {
			return err
		}
		group := &c.diff.Groups[a[i].Group]
		if slices.Equal(a[i].Fields, b[i].Fields) {
			c.diff.Same++
			group.Same++
			continue
		}
		c.diff.Changed++
		group.Changed++
		names := c.changedFields(a[i].Fields, b[i].Fields)
		for _, name := range names {
			c.diff.Fields[name]++
			group.Fields[name]++
		}
		c.example(DiffChanged, a[i].Position, b[i].Position, names...)
	}
	for _, item := range a[both:] {
		c.diff.Events++
		c.diff.Removed++
		c.diff.Groups[item.Group].Removed++
		c.example(DiffRemoved, item.Position, 0)
	}
	for _, item := range b[both:] {
		c.diff.Events++
		c.diff.Added++
		c.diff.Groups[item.Group].Added++
		c.example(DiffAdded, 0, item.Position)
	}
	if both == 0 {
		return c.sessions.Put(session, new(diffPair)) // the session is counted
	}
	return nil
}

// changedFields returns the names of the fields that differ.
func (c *comparison) changedFields(a, b []byte) []string {
	values := make(map[byte][]byte)
	for f := range slices.Chunk(a, itemField) {
		values[f[0]] = f[1:]
	}
	var names []string
	for f := range slices.Chunk(b, itemField) {
		if !slices.Equal(values[f[0]], f[1:]) {
			names = append(names, c.fields[f[0]])
		}
		delete(values, f[0])
	}
	for number := range values {
		names = append(names, c.fields[number])
	}
	slices.Sort(names)
	return names
}

// order counts the reordered events of a session: the fewest that must move to turn the order of A into that of B.
func (c *comparison) order(pairs []diffPair) {
	pairs = slices.DeleteFunc(pairs, func(p diffPair) bool { return p == diffPair{} })
	slices.SortFunc(pairs, func(p, q diffPair) int { return cmp.Compare(p.A, q.A) })
	var tails []uint64 // for each length, the smallest end of an increasing sequence of positions in B
	for _, p := range pairs {
		i, _ := slices.BinarySearch(tails, p.B)
		if i == len(tails) {
			tails = append(tails, p.B)
			continue
		}
		tails[i] = p.B
		c.diff.Groups[p.Group].Reordered++
		c.example(DiffReordered, p.A, p.B)
	}
	c.diff.Reordered += uint64(len(pairs) - len(tails))
}

// tokenFields are the token counts of an event.
var tokenFields = [...]struct {
	name  string
	count func(*envelopes.AgentEventV1) *int64
}{
	{"tokens_input", func(e *envelopes.AgentEventV1) *int64 { return e.TokensInput }},
	{"tokens_output", func(e *envelopes.AgentEventV1) *int64 { return e.TokensOutput }},
	{"tokens_total", func(e *envelopes.AgentEventV1) *int64 { return e.TokensTotal }},
	{"tokens_cached", func(e *envelopes.AgentEventV1) *int64 { return e.TokensCached }},
	{"tokens_thinking", func(e *envelopes.AgentEventV1) *int64 { return e.TokensThinking }},
	{"tokens_tool", func(e *envelopes.AgentEventV1) *int64 { return e.TokensTool }},
}

// TokenFields returns the fields of [Diff.Tokens], in the order of the schema.
func TokenFields() []string {
	list := make([]string, len(tokenFields))
	for i, f := range tokenFields {
		list[i] = f.name
	}
	return list
}

func addTokens(sums *[len(tokenFields)]int64, e *envelopes.AgentEventV1) {
	for i, f := range tokenFields {
		if n := f.count(e); n != nil {
			sums[i] += *n
		}
	}
}

// countTokens sums the token counts into the result.
func (c *comparison) countTokens() {
	for i, f := range tokenFields {
		c.diff.Tokens[f.name] = DiffTokens{c.tokens[0][i], c.tokens[1][i]}
	}
}
