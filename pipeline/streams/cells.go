package streams

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/broker"
)

// A deployment has one or more cells. A cell is a raw stream and, of each generation, an events
// stream; a cluster spreads the streams of several cells over its servers. The partitions
// are numbered over all cells, and partition p belongs to cell p modulo their number. A session
// is in one partition, and so in one cell: the commit protocol knows nothing of cells.
// Sequences of a stream, and so positions, are of one cell.

// maxCells limits the cells of a deployment.
const maxCells = 64

// Metadata of the streams of a deployment with more than one cell.
const (
	cellsMetadata      = "tributary-cells"
	partitionsMetadata = "tributary-partitions"
)

// Layout says over how many partitions and cells the sessions are spread.
type Layout struct{ Partitions, Cells int }

// String is what the key of the partitions has: "16", or with four cells "16/4".
func (l Layout) String() string {
	if l.Cells <= 1 {
		return strconv.Itoa(l.Partitions)
	}
	return fmt.Sprintf("%d/%d", l.Partitions, l.Cells)
}

// parseLayout is the inverse of [Layout.String].
func parseLayout(s string) (Layout, error) {
	l := Layout{Cells: 1}
	partitions, cells, several := strings.Cut(s, "/")
	var err error
	if l.Partitions, err = strconv.Atoi(partitions); err == nil && several {
		l.Cells, err = strconv.Atoi(cells)
	}
	if err != nil || l.Partitions < 1 || l.Cells < 1 || l.Cells > l.Partitions || l.String() != s {
		return Layout{}, fmt.Errorf("%w: %s of bucket %s", ErrState, partitionsKey, ControlBucket)
	}
	return l, nil
}

// Cell returns the cell of a partition.
func (l Layout) Cell(partition int) int { return partition % max(l.Cells, 1) }

// PartitionsOf returns the partitions of a cell, in their order.
func (l Layout) PartitionsOf(cell int) []int {
	var list []int
	for p := cell; p < l.Partitions; p += max(l.Cells, 1) {
		list = append(list, p)
	}
	return list
}

// RawStream returns the raw stream of a partition.
func (l Layout) RawStream(partition int) string { return RawStreamOf(l.Cell(partition)) }

// Place sets the subject to which a producer publishes the message of a session, and returns the cell
// whose raw stream stores it. The messages of an atomic batch are of one cell.
func (l Layout) Place(m *nats.Msg, source envelopes.Source, session string) (cell int) {
	if l.Cells <= 1 {
		return 0
	}
	partition := envelopes.Partition(source, session, l.Partitions)
	m.Subject = envelopes.PartitionSubject(partition, source, session)
	return l.Cell(partition)
}

// metadata returns the metadata of the streams, nil with one cell.
func (l Layout) metadata() map[string]string {
	if l.Cells <= 1 {
		return nil
	}
	return map[string]string{cellsMetadata: strconv.Itoa(l.Cells), partitionsMetadata: strconv.Itoa(l.Partitions)}
}

// layoutOf is the inverse of metadata. Partitions is 0 when the stream does not say it.
func layoutOf(metadata map[string]string) Layout {
	l := Layout{Cells: 1}
	if n, err := strconv.Atoi(metadata[cellsMetadata]); err == nil && n > 1 {
		l.Cells = n
		l.Partitions, _ = strconv.Atoi(metadata[partitionsMetadata])
	}
	return l
}

// Layout returns how t spreads the sessions.
func (t Topology) Layout() Layout { return Layout{t.Partitions, max(t.Cells, 1)} }

// cellName returns the name under which the cell of a partition stores the generation.
func (t Topology) cellName(partition int) string {
	return envelopes.CellName(t.Generation, t.Layout().Cell(partition))
}

// CellNames returns the names under which the cells store the generation.
func (t Topology) cellNames() []string { return CellNames(t.Generation, max(t.Cells, 1)) }

// CellNames returns the names under which a number of cells store a generation.
func CellNames(generation string, cells int) []string {
	names := make([]string, cells)
	for c := range names {
		names[c] = envelopes.CellName(generation, c)
	}
	return names
}

// RawStreams returns the names of the raw streams, by cell.
func RawStreams(ctx context.Context, js jetstream.JetStream) ([]string, error) {
	have, err := streamConfig(ctx, js, RawStream)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", RawStream, err)
	}
	streams := make([]string, layoutOf(have.Metadata).Cells)
	for c := range streams {
		streams[c] = RawStreamOf(c)
	}
	return streams, nil
}

// DeadLettersOf returns the subjects of the dead letters in a cell, by the name that it has for the generation.
func DeadLettersOf(cellName string) string { return envelopes.DeadLetterFilter(cellName, "", "") }

// EventsOf returns the subjects of the events in a cell, by the name that it has for the generation.
func EventsOf(cellName string) string { return envelopes.EventFilter(cellName, "", "", "") }

// CountInCells counts the messages of a generation that filter selects in each cell.
func CountInCells(ctx context.Context, js jetstream.JetStream, g Generation, filter func(cellName string) string) (n uint64, err error) {
	for _, name := range g.cellNames() {
		more, err := broker.CountFrom(ctx, js, EventsStream(name), 1, filter(name))
		if err != nil {
			return 0, err
		}
		n += more
	}
	return n, nil
}
