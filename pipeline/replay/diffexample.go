package replay

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/streams"
)

// example keeps an event that differs, with the fields that differ. It keeps the first events in the streams for each
// way to differ, so that repeated comparisons show the same examples.
func (c *comparison) example(kind string, a, b uint64, fields ...string) {
	at := [2]uint64{a, b}
	keep := func(way string, limit int) {
		list := c.first[way]
		i, _ := slices.BinarySearchFunc(list, at, comparePositions)
		if list = slices.Insert(list, i, at); len(list) > limit {
			list = list[:limit]
		}
		c.first[way] = list
	}
	keep(kind, c.query.Limit)
	for _, name := range fields {
		keep(kind+" "+name, min(c.query.Limit, 1))
	}
}

// comparePositions orders events by their positions in both streams.
func comparePositions(x, y [2]uint64) int { return slices.Compare(x[:], y[:]) }

// examples returns the kept events of all ways to differ: kind by kind, each event once, in stream order.
func (c *comparison) examples() (list []DiffExample) {
	for _, kind := range []string{DiffChanged, DiffRemoved, DiffAdded, DiffReordered} {
		var places [][2]uint64
		for way, kept := range c.first {
			if name, _, _ := strings.Cut(way, " "); name == kind {
				places = append(places, kept...)
			}
		}
		slices.SortFunc(places, comparePositions)
		for _, at := range slices.Compact(places) {
			list = append(list, DiffExample{Kind: kind, positions: at})
		}
	}
	return list
}

// loadExamples reads the events of the examples.
func (c *comparison) loadExamples(ctx context.Context) error {
	examples := []DiffExample{}
	bytes := 0
	for _, x := range c.examples() {
		if c.query.Bytes > 0 && bytes > c.query.Bytes {
			break
		}
		var fields [2]map[string]jsontext.Value
		for side, name := range c.names() {
			if x.positions[side] == 0 {
				continue
			}
			e, err := readStoredEvent(ctx, c.js, name, x.positions[side])
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				continue // it has expired
			}
			if err != nil {
				return err
			}
			x.Source, x.Session, x.EventID, x.EventType = e.Source, e.SessionID, e.EventID, e.EventType
			data, err := e.AppendJSON(nil)
			if err != nil {
				return err
			}
			bytes += len(data)
			fields[side] = make(map[string]jsontext.Value)
			if err := eachField(data, func(name string, value jsontext.Value) { fields[side][name] = value.Clone() }); err != nil {
				return err
			}
		}
		if x.Kind == DiffChanged && fields[0] != nil && fields[1] != nil {
			for _, name := range DiffFields() {
				if a, b := fields[0][name], fields[1][name]; !slices.Contains(c.query.Ignore, name) && string(a) != string(b) {
					x.Fields = append(x.Fields, DiffField{name, a, b})
				}
			}
		}
		if x.EventID != "" {
			examples = append(examples, x)
		}
	}
	c.diff.Examples = examples
	return nil
}

// readStoredEvent reads the event at a place.
func readStoredEvent(ctx context.Context, js jetstream.JetStream, generation string, at uint64) (envelopes.AgentEventV1, error) {
	stream, err := js.Stream(ctx, streams.EventsStream(envelopes.CellName(generation, streams.CellOf(at))))
	if err != nil {
		return envelopes.AgentEventV1{}, err
	}
	m, err := stream.GetMsg(ctx, at-streams.PlaceOf(streams.CellOf(at), 0))
	if err != nil {
		return envelopes.AgentEventV1{}, err
	}
	e, _, err := envelopes.DecodeEvent(m.Header, m.Data)
	return e, err
}
