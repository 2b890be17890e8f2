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

// A deployment has one or more cells. A cell has one raw stream and, for each generation, one events stream; a
// cluster spreads the streams of several cells over its servers. The partitions are numbered across all cells:
// partition p belongs to cell p modulo the number of cells. A session is in one partition, and so in one cell, so the
// commit protocol need not know about cells. Stream sequences, and so positions, belong to one cell.

// maxCells limits the cells of a deployment.
const maxCells = 64

// Metadata of the streams of a deployment with more than one cell.
const (
	cellsMetadata      = "tributary-cells"
	partitionsMetadata = "tributary-partitions"
)

// Layout is the number of partitions and cells that sessions are spread over.
type Layout struct{ Partitions, Cells int }

// String returns the value of the partitions key: "16", or with four cells "16/4".
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

// PartitionsOf returns the partitions of a cell in order.
func (l Layout) PartitionsOf(cell int) []int {
	var list []int
	for p := cell; p < l.Partitions; p += max(l.Cells, 1) {
		list = append(list, p)
	}
	return list
}

// RawStream returns the raw stream of a partition.
func (l Layout) RawStream(partition int) string { return RawStreamOf(l.Cell(partition)) }

// Place sets the subject of a message of a session, and returns the cell whose raw stream stores it. All messages of
// an atomic batch must be of one cell.
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

// layoutOf is the inverse of metadata. Partitions is 0 if the stream does not state it.
func layoutOf(metadata map[string]string) Layout {
	l := Layout{Cells: 1}
	if n, err := strconv.Atoi(metadata[cellsMetadata]); err == nil && n > 1 {
		l.Cells = n
		l.Partitions, _ = strconv.Atoi(metadata[partitionsMetadata])
	}
	return l
}

// Layout returns the layout of t.
func (t Topology) Layout() Layout { return Layout{t.Partitions, max(t.Cells, 1)} }

// cellName returns the name of the generation in the cell of a partition.
func (t Topology) cellName(partition int) string {
	return envelopes.CellName(t.Generation, t.Layout().Cell(partition))
}

// cellNames returns the names of the generation in its cells.
func (t Topology) cellNames() []string { return CellNames(t.Generation, max(t.Cells, 1)) }

// CellNames returns the names of a generation in each of its cells.
func CellNames(generation string, cells int) []string {
	names := make([]string, cells)
	for c := range names {
		names[c] = envelopes.CellName(generation, c)
	}
	return names
}

// RawStreams returns the names of the raw streams by cell.
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

// DeadLettersOf returns the subjects of the dead letters of a generation in a cell; cellName is its name there.
func DeadLettersOf(cellName string) string { return envelopes.DeadLetterFilter(cellName, "", "") }

// EventsOf returns the subjects of the events of a generation in a cell; cellName is its name there.
func EventsOf(cellName string) string { return envelopes.EventFilter(cellName, "", "", "") }

// CountInCells counts the messages of a generation that filter selects, over all cells.
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
