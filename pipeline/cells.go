package pipeline

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
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
		return Layout{}, fmt.Errorf("%w: %s of bucket %s", errState, partitionsKey, controlBucket)
	}
	return l, nil
}

// cell returns the cell of a partition.
func (l Layout) cell(partition int) int { return partition % max(l.Cells, 1) }

// partitionsOf returns the partitions of a cell, in their order.
func (l Layout) partitionsOf(cell int) []int {
	var list []int
	for p := cell; p < l.Partitions; p += max(l.Cells, 1) {
		list = append(list, p)
	}
	return list
}

// rawStream returns the raw stream of a partition.
func (l Layout) rawStream(partition int) string { return RawStreamOf(l.cell(partition)) }

// Place sets the subject to which a producer publishes the message of a session, and returns the cell
// whose raw stream stores it. The messages of an atomic batch are of one cell.
func (l Layout) Place(m *nats.Msg, source envelopes.Source, session string) (cell int) {
	if l.Cells <= 1 {
		return 0
	}
	partition := envelopes.Partition(source, session, l.Partitions)
	m.Subject = envelopes.PartitionSubject(partition, source, session)
	return l.cell(partition)
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

// layout returns how t spreads the sessions.
func (t Topology) layout() Layout { return Layout{t.Partitions, max(t.Cells, 1)} }

// cellName returns the name under which the cell of a partition stores the generation.
func (t Topology) cellName(partition int) string {
	return envelopes.CellName(t.Generation, t.layout().cell(partition))
}

// cellNames returns the names under which the cells store the generation.
func (t Topology) cellNames() []string { return cellNames(t.Generation, max(t.Cells, 1)) }

// cellNames returns the names under which a number of cells store a generation.
func cellNames(generation string, cells int) []string {
	names := make([]string, cells)
	for c := range names {
		names[c] = envelopes.CellName(generation, c)
	}
	return names
}

// rawStreams returns the names of the raw streams, by cell.
func rawStreams(ctx context.Context, js jetstream.JetStream) ([]string, error) {
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

// cell is a cell as a stage works on it.
type cell struct {
	stage   *Stage
	name    string // under which it stores the generation
	raw     string // its raw stream
	feed    *feed
	end     *sharedEnd    // of the raw stream
	pending chan struct{} // signaled when a chunk waits for the committer

	waiting    atomic.Int64 // bytes of the messages in the chunks of its partitions
	committing Step         // of the loop of that name
}

func newCell(s *Stage, number int) *cell {
	t := s.config.Topology
	c := &cell{
		stage:   s,
		name:    envelopes.CellName(t.Generation, number),
		raw:     RawStreamOf(number),
		pending: make(chan struct{}, 1),
	}
	c.end = newSharedEnd(s.js, c.raw)
	c.feed = newFeed(s.js, c.raw, len(t.layout().partitionsOf(number)), defaultFeedLimits)
	c.feed.acquiring, c.feed.end = s.acquiring, c.end
	return c
}

// errMisplaced means that a producer chose another partition than the one of the session.
var errMisplaced = fmt.Errorf("%w: not the partition of the session", errSubject)

// holds reports whether the subject of a record names the partition of its session. A
// single raw stream computes that itself; with several a producer might choose another one.
func (c *cell) holds(subject string) bool {
	l := c.stage.config.Topology.layout()
	if l.Cells <= 1 {
		return true
	}
	a, err := envelopes.ParseRawSubject(subject)
	return err == nil && a.InPartition(l.Partitions)
}

// unread returns how many records of the partitions are not read, or wait in a queue, and of how
// many partitions that is known.
func (s *Stage) unread() (n int64, known int) {
	for _, c := range s.cells {
		more, of := c.feed.waiting()
		n, known = n+more, known+of
	}
	return n, known
}

// countLag returns how many records of the partitions are not done. While a partition is acquired
// again, its records are not known: the number that was returned before is the least then.
func (s *Stage) countLag() int64 {
	n, known := s.unread()
	for _, p := range s.list() {
		n += p.open.Load()
		if ended, _ := p.ended(); !ended {
			known--
		}
	}
	if known < 0 {
		n = max(n, s.lag.Load())
	}
	s.lag.Store(n)
	return n
}
