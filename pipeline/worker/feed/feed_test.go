package feed_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"tributary/envelopes"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker/feed"
)

// sequencesByPartition reads which messages of the raw stream belong to which partition.
func sequencesByPartition(t *testing.T, js jetstream.JetStream) map[int][]uint64 {
	t.Helper()
	consumer, err := js.OrderedConsumer(t.Context(), streams.RawStream, jetstream.OrderedConsumerConfig{HeadersOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[int][]uint64)
	for pending := uint64(1); pending > 0; {
		m, err := consumer.Next()
		if err != nil {
			t.Fatal(err)
		}
		meta, err := m.Metadata()
		if err != nil {
			t.Fatal(err)
		}
		pending = meta.NumPending
		partition := 0
		if a, err := envelopes.ParseRawSubject(m.Subject()); err == nil {
			partition = a.Partition
		}
		all[partition] = append(all[partition], meta.Sequence.Stream)
	}
	return all
}

func TestMain(m *testing.M) {
	pipelinetest.Configure()
	goleak.VerifyTestMain(m, pipelinetest.ServerLeaks()...)
}

// newFeed returns a feed that is full with a few messages, and impatient.
func newFeed(js jetstream.JetStream, partitions, messages int, slack uint64) *feed.Feed {
	return feed.New(js, streams.RawStream, partitions, feed.Limits{Messages: messages, Bytes: 1 << 20, Slack: slack, Settle: time.Millisecond, Patience: time.Millisecond})
}

// readNext returns the sequences of the next messages of a partition.
func readNext(ctx context.Context, s *feed.Subscription) ([]uint64, error) {
	messages, err := s.Read(ctx, nil, nil)
	sequences := make([]uint64, len(messages))
	for i, m := range messages {
		sequences[i] = m.Sequence
	}
	return sequences, err
}

// runFeed runs a feed until the test ends.
func runFeed(t *testing.T, f *feed.Feed) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { f.Run(ctx, func() context.Context { return ctx }, func(context.Context, error) {}) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// TestFeedPassesEachMessageOnceInOrder lets partitions join, leave and come back at random,
// some of them at a place far behind the others, while records arrive and the queues have room
// for a few messages only.
func TestFeedPassesEachMessageOnceInOrder(t *testing.T) {
	t.Parallel()
	count := 3000
	if testing.Short() {
		count = 1200
	}
	for _, mine := range []int{8, 3} { // all partitions, and so few that the consumer has filters
		top := streams.Topology{Generation: "v1", Partitions: 8}
		js := pipelinetest.NewServer(t).Provision(top)
		records := pipelinetest.Workload(31, 60, count)
		pipelinetest.Publish(t, js, records[:count/2]...)
		f := newFeed(js, top.Partitions, 40, 60)
		runFeed(t, f)

		done := make(chan struct{}) // everything is published
		got := make([][]uint64, mine)
		var readers sync.WaitGroup
		for n := range mine {
			readers.Go(func() { got[n] = readAtRandom(t, js, f, n, done) })
		}
		for batch := range slices.Chunk(records[count/2:], 100) {
			pipelinetest.Publish(t, js, batch...)
		}
		close(done)
		readers.Wait()
		want := sequencesByPartition(t, js)
		for n := range mine {
			if !slices.Equal(got[n], want[n]) {
				t.Errorf("%d partitions: partition %d has read %d messages, want %d: %v", mine, n, len(got[n]), len(want[n]), firstDifference(got[n], want[n]))
			}
		}
	}
}

// readAtRandom reads a partition with one subscription after another, until it has read all
// that the stream has when done is closed.
func readAtRandom(t *testing.T, js jetstream.JetStream, f *feed.Feed, partition int, done <-chan struct{}) (read []uint64) {
	t.Helper()
	random := rand.New(rand.NewPCG(7, uint64(partition)))
	ctx, cancel := context.WithCancel(t.Context()) // ends with done, where a read may wait for ever
	defer cancel()
	go func() {
		<-done
		cancel()
	}()
	next, end := uint64(1), uint64(0)
	for {
		if end == 0 && ctx.Err() != nil {
			ctx, end = t.Context(), lastOf(t, js, partition)
		}
		s, err := f.Subscribe(ctx, partition, next)
		for range 1 + random.IntN(8) {
			if err != nil || end != 0 && next > end {
				break
			}
			var sequences []uint64
			if sequences, err = readNext(ctx, s); len(sequences) > 0 {
				read = append(read, sequences...)
				next = sequences[len(sequences)-1] + 1
			}
		}
		if s != nil {
			s.Close()
		}
		switch {
		case end != 0 && next > end:
			return read
		case err != nil && ctx.Err() == nil:
			t.Error(err)
			return read
		}
	}
}

// lastOf returns the sequence of the last message of a partition.
func lastOf(t *testing.T, js jetstream.JetStream, partition int) uint64 {
	t.Helper()
	last := uint64(1)
	stream, err := js.Stream(t.Context(), streams.RawStream)
	if err != nil {
		t.Error(err)
		return last
	}
	for _, filter := range envelopes.RawFilters(partition) {
		if m, err := stream.GetLastMsgForSubject(t.Context(), filter); err == nil {
			last = max(last, m.Sequence)
		}
	}
	return last
}

// firstDifference returns the place and the values where two lists begin to differ.
func firstDifference(a, b []uint64) [3]uint64 {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return [3]uint64{uint64(i), a[i], b[i]}
		}
	}
	return [3]uint64{uint64(min(len(a), len(b)))}
}

// TestPartitionFarBehindStopsNoOther lets partitions join together. One of them is too far behind most of the others,
// but not behind the one that the feed reads next.
func TestPartitionFarBehindStopsNoOther(t *testing.T) {
	t.Parallel()
	const slack = 10
	const end, behind, far = 32, 24, 20 // the last sequence, and those of the only messages of two partitions
	top := streams.Topology{Generation: "v1", Partitions: 8}
	js := pipelinetest.NewServer(t).Provision(top)
	partitions := map[int]int{behind: 2, far: 1}
	var messages []*nats.Msg
	for sequence := 1; sequence <= end; sequence++ {
		session := 0
		for envelopes.Partition(envelopes.ClaudeCode, strconv.Itoa(session), top.Partitions) != partitions[sequence] {
			session++
		}
		messages = append(messages, &nats.Msg{Subject: envelopes.RawSubject(envelopes.ClaudeCode, strconv.Itoa(session))})
	}
	pipelinetest.PublishMessages(t.Context(), t, js, messages...)

	// Before the feed reopens its consumer, it waits longer than a partition needs to join again.
	f := feed.New(js, streams.RawStream, top.Partitions, feed.Limits{Messages: 100, Bytes: 1 << 20, Slack: slack, Settle: 100 * time.Millisecond, Patience: time.Minute})
	from := []uint64{end + 1, 1, 1, end + 1, end + 1}
	subscriptions := make([]*feed.Subscription, len(from))
	for partition, sequence := range from {
		s, err := f.Subscribe(t.Context(), partition, sequence)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		subscriptions[partition] = s
	}
	runFeed(t, f)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var readers sync.WaitGroup
	for sequence, partition := range partitions {
		readers.Go(func() {
			got, err := readNext(ctx, subscriptions[partition])
			if err != nil || !slices.Equal(got, []uint64{uint64(sequence)}) {
				t.Errorf("partition %d: read %d, %v, want %d", partition, got, err, sequence)
			}
		})
	}
	readers.Wait()
}

// TestPartitionThatTakesNothingStopsNoOther reads all but one partition, whose messages fill
// the queues.
func TestPartitionThatTakesNothingStopsNoOther(t *testing.T) {
	t.Parallel()
	top := streams.Topology{Generation: "v1", Partitions: 4}
	js := pipelinetest.NewServer(t).Provision(top)
	pipelinetest.Publish(t, js, pipelinetest.Workload(32, 40, 1000)...)
	f := newFeed(js, top.Partitions, 20, 4096)
	runFeed(t, f)
	want := sequencesByPartition(t, js)

	ctx, cancel := context.WithTimeoutCause(t.Context(), 3*time.Minute, errors.New("the test waits in vain"))
	defer cancel()
	stuck, err := f.Subscribe(t.Context(), 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer stuck.Close()
	read := func(s *feed.Subscription, partition int) {
		t.Helper()
		var got []uint64
		for len(got) < len(want[partition]) {
			sequences, err := readNext(ctx, s)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, sequences...)
		}
		if !slices.Equal(got, want[partition]) {
			t.Errorf("partition %d: %v", partition, firstDifference(got, want[partition]))
		}
	}
	for n := 1; n < top.Partitions; n++ {
		s, err := f.Subscribe(t.Context(), n, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		read(s, n)
	}
	read(stuck, 0) // which goes on as if nothing had been
}
