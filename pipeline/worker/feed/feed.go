// Package feed reads a raw stream once for many partitions.
//
// Start with [New] and [Feed.Run]; [Feed.Subscribe] begins to read a partition.
//
// The invariant: a [Subscription] gets all messages of its partition from a sequence on, once and in order, and no
// partition stops the others.
package feed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/broker"
	"tributary/pipeline/streams"
)

// Limits are the limits of a [Feed].
type Limits struct {
	Messages int // waiting in the queues of all partitions
	Bytes    int // bytes of these messages
	// Slack is how many sequences of the stream a partition may be behind most of the others. The feed goes back that
	// far for all of them.
	Slack uint64
	// Settle is how long the feed waits for other partitions to join or leave before it reopens its consumer.
	Settle time.Duration
	// Patience is how long one partition may keep the queues full while others have nothing to do. After that it has
	// to read alone.
	Patience time.Duration
}

// DefaultLimits are the limits of a worker.
var DefaultLimits = Limits{Messages: 2048, Bytes: 4 << 20, Slack: 4096, Settle: 10 * time.Millisecond, Patience: 5 * time.Second}

// Feed reads a raw stream for all partitions of a worker with one consumer, so that the server reads and unpacks each
// block of the stream once and not once for each partition.
//
// It reopens its consumer whenever a partition joins or leaves, at the first message that any partition still needs.
// It passes a message to a partition only at or behind the sequence that the partition needs next, so each partition
// gets all of its messages, once and in order.
//
// A partition that is far behind the others, or much slower, reads alone with a consumer of its own until it has
// caught up. So it never stops the others.
type Feed struct {
	// Set before Run.
	Part      streams.Part       // part of the raw stream that is read
	Ahead     int                // see [streams.OpenRaw]
	Acquiring broker.Limit       // held during the requests by which a partition joins
	End       *streams.SharedEnd // of the raw stream

	js         jetstream.JetStream
	stream     string
	partitions int // of the raw stream
	limits     Limits

	mu       sync.Mutex
	members  map[int]*Subscription
	apart    map[int]*Subscription // subscriptions that read alone
	changed  chan struct{}         // closed when a partition joins or leaves
	room     chan struct{}         // signaled when a partition takes messages
	reading  bool                  // a consumer is open
	position uint64                // sequence behind the last message read
	messages int                   // in all queues
	bytes    int                   // in all queues
	slow     *Subscription         // the partition that keeps the queues full; nil for none
	since    time.Time             // when slow began to

	unread atomic.Int64 // messages of the partitions behind the last one read
}

// Subscription is the place of one partition in a feed. It belongs to the goroutine of the partition, except for the
// fields protected by the lock of the feed.
type Subscription struct {
	Idle bool // nothing was unread when it joined

	feed      *Feed
	partition int
	arrived   chan struct{} // signaled when the queue has messages or the subscription has left

	// Protected by the lock of the feed.
	next  uint64 // first sequence not in the queue
	fed   bool   // the present consumer of the feed reads the partition from next on
	taken bool   // messages were taken since the feed last checked
	queue []broker.Message
	bytes int   // in queue
	err   error // why the feed ended; errAlone when the partition has to read alone

	alone  *broker.Reader // reads the partition alone; nil while the feed does
	unread atomic.Int64   // messages behind the last one that alone has read
}

// errAlone means that the partition is too slow for the feed, or too far behind it.
var errAlone = errors.New("reads alone")

// New returns a feed of a raw stream that has so many partitions.
func New(js jetstream.JetStream, stream string, partitions int, limits Limits) *Feed {
	return &Feed{
		Ahead:      broker.ReadAhead,
		Acquiring:  broker.NewLimit(streams.MaxAcquiring),
		End:        streams.NewSharedEnd(js, stream),
		js:         js,
		stream:     stream,
		partitions: partitions,
		limits:     limits,
		members:    make(map[int]*Subscription),
		apart:      make(map[int]*Subscription),
		changed:    make(chan struct{}),
		room:       make(chan struct{}, 1),
	}
}

// Run reads until ctx ends. Each reading ends with the context that linked returned when it began. When a reading fails,
// Run calls ended with its error.
func (f *Feed) Run(ctx context.Context, linked func() context.Context, ended func(context.Context, error)) {
	for f.awaitMembers(ctx) {
		if err := f.read(linked()); err != nil { //nolint:contextcheck // the link ends with ctx, too
			f.fail(err)
			if ctx.Err() == nil {
				ended(ctx, err)
			}
		}
	}
}

// awaitMembers waits until a partition has joined, and a little longer for others to join. It returns false when ctx
// ends.
func (f *Feed) awaitMembers(ctx context.Context) bool {
	f.mu.Lock()
	if len(f.members) > 0 {
		f.mu.Unlock()
		return broker.Pause(ctx, f.limits.Settle) == nil
	}
	f.changed = make(chan struct{})
	changed := f.changed
	f.unread.Store(0)
	f.mu.Unlock()
	select {
	case <-changed:
		return broker.Pause(ctx, f.limits.Settle) == nil
	case <-ctx.Done():
		return false
	}
}

// read opens a consumer for the partitions that have joined, and delivers what it reads until a partition joins or
// leaves.
func (f *Feed) read(ctx context.Context) error {
	partitions, from, changed := f.plan()
	if len(partitions) == 0 {
		return nil
	}
	r, err := streams.OpenRaw(ctx, f.js, f.stream, f.Part, f.filtered(partitions), from, f.Ahead)
	if err != nil {
		return err
	}
	defer r.Close()
	f.unread.Store(int64(r.Pending))
	f.setReading(true)
	defer f.setReading(false)
	for {
		messages, err := r.Next(ctx, changed)
		if err != nil {
			return err
		}
		if messages == nil {
			return nil // a partition has joined or left
		}
		for _, m := range messages {
			if err := f.deliver(ctx, m); err != nil {
				return err
			}
		}
	}
}

func (f *Feed) setReading(open bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reading = open
}

// filtered returns the partitions that the filter of a consumer names; none when the consumer reads all of them. A
// consumer of half of the partitions or more has no filter, because the server would compare each message with every
// filter.
func (f *Feed) filtered(partitions []int) []int {
	if 2*len(partitions) >= f.partitions && f.Part.Source == "" && f.Part.Session == "" {
		return nil
	}
	return partitions
}

// plan returns the partitions that a consumer reads from now on, and its first sequence. changed is closed when the
// partitions change. Partitions far behind most of the others leave.
func (f *Feed) plan() (partitions []int, from uint64, changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changed = make(chan struct{})
	middle := f.middle()
	for n, m := range f.members {
		if m.next+f.limits.Slack < middle {
			f.detach(m, errAlone)
			continue
		}
		m.fed = true
		partitions = append(partitions, n)
		if from == 0 || m.next < from {
			from = m.next
		}
	}
	slices.Sort(partitions)
	f.position = from
	return partitions, from, f.changed
}

// middle returns the median of the sequences that the partitions need next; 0 for no partitions. It is the one
// measure of which partition is far behind, for joining and for leaving: with two, a partition might join and leave
// for ever. The caller holds the lock.
func (f *Feed) middle() uint64 {
	if len(f.members) == 0 {
		return 0
	}
	var needed []uint64
	for _, m := range f.members {
		if m.fed {
			m.next = max(m.next, f.position) // everything before position was read
		}
		needed = append(needed, m.next)
	}
	slices.Sort(needed)
	return needed[len(needed)/2]
}

// deliver waits for room, then appends a message to the queue of its partition, if that needs it.
func (f *Feed) deliver(ctx context.Context, m broker.Message) error {
	partition := partitionOf(m.Subject)
	for {
		f.mu.Lock()
		s := f.members[partition]
		if s == nil || !s.fed || m.Sequence < s.next {
			f.passed(m)
			f.mu.Unlock()
			return nil
		}
		if f.messages < f.limits.Messages && f.bytes < f.limits.Bytes {
			s.append(m)
			f.passed(m)
			f.mu.Unlock()
			return nil
		}
		f.detachSlow()
		f.mu.Unlock()
		if err := f.awaitRoom(ctx); err != nil {
			return err
		}
	}
}

// passed notes that a message was read.
func (f *Feed) passed(m broker.Message) {
	f.position = m.Sequence + 1
	f.unread.Store(int64(m.Pending))
}

// awaitRoom waits a limited time for a partition to take messages.
func (f *Feed) awaitRoom(ctx context.Context) error {
	wait := time.NewTimer(f.limits.Patience)
	defer wait.Stop()
	select {
	case <-f.room:
		return nil
	case <-wait.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// detachSlow detaches the partition that has kept the queues full for too long: it takes nothing, or has most of the
// queued bytes, while another partition has nothing to do. The caller holds the lock, as for all functions below.
func (f *Feed) detachSlow() {
	slow := f.longest()
	if !f.starves() {
		slow = nil
	}
	if slow != f.slow || slow == nil || !slow.hogs() && slow.taken {
		f.slow, f.since = slow, time.Now()
	}
	if slow == nil {
		return
	}
	slow.taken = false
	if time.Since(f.since) >= f.limits.Patience {
		f.detach(slow, errAlone)
		f.slow = nil
	}
}

// longest returns the subscription with the most queued bytes; nil for none.
func (f *Feed) longest() *Subscription {
	var longest *Subscription
	for _, s := range f.members {
		if longest == nil || s.bytes > longest.bytes {
			longest = s
		}
	}
	return longest
}

// starves reports whether any partition has an empty queue.
func (f *Feed) starves() bool {
	for _, s := range f.members {
		if len(s.queue) == 0 {
			return true
		}
	}
	return false
}

// detach makes a partition leave. A partition that has to read alone reads its queued messages again.
func (f *Feed) detach(s *Subscription, cause error) {
	if f.members[s.partition] != s {
		return
	}
	delete(f.members, s.partition)
	f.change()
	if errors.Is(cause, errAlone) && len(s.queue) > 0 {
		s.next = s.queue[0].Sequence
		s.drop()
	}
	s.err = cause
	s.signal()
}

// change signals the open consumer that the partitions have changed.
func (f *Feed) change() {
	if !broker.Closed(f.changed) {
		close(f.changed)
	}
}

// fail ends all subscriptions.
func (f *Feed) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.members {
		f.detach(s, err)
	}
	f.unread.Store(0)
}

// Subscribe begins to read a partition at a sequence. The caller closes the subscription.
func (f *Feed) Subscribe(ctx context.Context, partition int, from uint64) (*Subscription, error) {
	s := &Subscription{feed: f, partition: partition, arrived: make(chan struct{}, 1), next: from}
	if _, err := s.join(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// join adds the subscription to the feed. joined is false when it is far behind and has to read alone.
func (s *Subscription) join(ctx context.Context) (joined bool, err error) {
	f := s.feed
	next, some, err := f.firstUnread(ctx, s.partition, max(s.next, f.Part.Sequence))
	if err != nil {
		return false, err
	}
	s.Idle = !some
	f.mu.Lock()
	defer f.mu.Unlock()
	s.next = next
	if next+f.limits.Slack < f.middle() {
		s.err = errAlone
		return false, nil
	}
	s.err, s.fed = nil, false
	f.members[s.partition] = s
	f.change()
	return true, nil
}

// firstUnread returns the sequence of the first message of a partition at or after from. If there is none, some is
// false and first is the end of the stream.
func (f *Feed) firstUnread(ctx context.Context, partition int, from uint64) (first uint64, some bool, err error) {
	last, err := f.End.Get(ctx) // read before the request, because a message may arrive in between
	if err != nil {
		return 0, false, fmt.Errorf("read stream %s: %w", f.stream, err)
	}
	if err := f.Acquiring.Acquire(ctx); err != nil {
		return 0, false, err
	}
	defer f.Acquiring.Release()
	first = max(from, last+1)
	for _, filter := range f.Part.Filters(partition) {
		m, err := broker.LeaderGet(ctx, f.js, f.stream, broker.GetRequest{Sequence: from, NextBySubject: filter})
		switch {
		case err == nil:
			first, some = min(first, m.Sequence), true
		case !errors.Is(err, jetstream.ErrMsgNotFound):
			return 0, false, fmt.Errorf("read stream %s: %w", f.stream, err)
		}
	}
	return first, some, nil
}

// ErrIdle means that no message arrived before there was something else to do.
var ErrIdle = errors.New("idle")

// Read waits for messages of the partition and returns those that have arrived, up to ReadAhead. When stop is closed
// it returns neither messages nor an error. When nothing has arrived and other has a value, it returns ErrIdle.
func (s *Subscription) Read(ctx context.Context, stop <-chan struct{}, other <-chan time.Time) ([]broker.Message, error) {
	for {
		messages, err := s.take()
		switch {
		case broker.Closed(stop):
			return nil, nil // messages taken and not done are read again
		case len(messages) > 0:
			return messages, nil
		case errors.Is(err, errAlone):
			messages, err := s.readAlone(ctx, stop)
			if len(messages) > 0 || err != nil || broker.Closed(stop) {
				return messages, err
			}
			continue // it has joined the feed again
		case err != nil:
			return nil, err
		}
		select {
		case <-s.arrived:
		case <-other:
			return nil, ErrIdle
		case <-stop:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Busy reports whether messages are queued.
func (s *Subscription) Busy() bool {
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	return len(s.queue) > 0
}

// takeAtOnce is how many messages a partition takes at once. They take memory beside the queued ones while it works
// on them.
const takeAtOnce = 64

// take returns the next queued messages, or the error that ended the queue.
func (s *Subscription) take() ([]broker.Message, error) {
	f := s.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	n := min(len(s.queue), takeAtOnce)
	messages := slices.Clone(s.queue[:n])
	s.remove(messages)
	s.queue = slices.Delete(s.queue, 0, n)
	s.taken = s.taken || n > 0
	if n == 0 {
		return nil, s.err
	}
	return messages, nil
}

// readAlone is [Subscription.Read] with a consumer of its own. Once the partition has caught up it joins the feed,
// and readAlone returns nothing.
func (s *Subscription) readAlone(ctx context.Context, stop <-chan struct{}) ([]broker.Message, error) {
	if s.alone == nil {
		r, err := streams.OpenRaw(ctx, s.feed.js, s.feed.stream, s.feed.Part, []int{s.partition}, s.next, s.feed.Ahead)
		if err != nil {
			return nil, err
		}
		s.beginAlone(r)
	}
	if s.caughtUp() {
		joined, err := s.join(ctx)
		if err != nil {
			return nil, err
		}
		if joined {
			s.endAlone()
			return nil, nil
		}
	}
	messages, err := s.alone.Next(ctx, stop)
	if len(messages) > 0 {
		last := messages[len(messages)-1]
		s.next = last.Sequence + 1
		s.unread.Store(int64(last.Pending))
	}
	return messages, err
}

// caughtUp reports whether a partition that reads alone can join the feed.
func (s *Subscription) caughtUp() bool {
	f := s.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	return s.unread.Load() == 0 || s.next+f.limits.Slack/2 >= f.middle()
}

func (s *Subscription) beginAlone(r *broker.Reader) {
	s.alone = r
	s.unread.Store(int64(r.Pending))
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	s.feed.apart[s.partition] = s
}

func (s *Subscription) endAlone() {
	if s.alone == nil {
		return
	}
	s.alone.Close()
	s.alone = nil
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	delete(s.feed.apart, s.partition)
}

// Close ends the subscription.
func (s *Subscription) Close() {
	s.endAlone()
	f := s.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	f.detach(s, context.Canceled)
	s.drop()
}

// hogs reports whether the queue takes half of the room for all queues.
func (s *Subscription) hogs() bool {
	return len(s.queue) >= s.feed.limits.Messages/2 || s.bytes >= s.feed.limits.Bytes/2
}

// append adds a message to the queue.
func (s *Subscription) append(m broker.Message) {
	s.queue = append(s.queue, m)
	s.next = m.Sequence + 1
	s.bytes += m.Size()
	s.feed.messages++
	s.feed.bytes += m.Size()
	s.signal()
}

// drop empties the queue.
func (s *Subscription) drop() {
	s.remove(s.queue)
	s.queue = nil
}

// remove gives back the room of messages that leave the queue.
func (s *Subscription) remove(messages []broker.Message) {
	bytes := 0
	for _, m := range messages {
		bytes += m.Size()
	}
	s.bytes -= bytes
	s.feed.messages -= len(messages)
	s.feed.bytes -= bytes
	select {
	case s.feed.room <- struct{}{}:
	default:
	}
}

// signal signals the goroutine of the partition.
func (s *Subscription) signal() {
	select {
	case s.arrived <- struct{}{}:
	default:
	}
}

// Waiting returns how many messages of the partitions are unread or queued, and the number of partitions that it
// knows this of.
func (f *Feed) Waiting() (n int64, known int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, known = f.unread.Load()+int64(f.messages), len(f.apart)
	for _, s := range f.apart {
		n += s.unread.Load()
	}
	for _, s := range f.members {
		if f.reading && s.fed {
			known++
		}
	}
	return n, known
}

// partitionOf returns the partition whose filters ([envelopes.RawFilters]) select a subject of the raw stream.
func partitionOf(subject string) int {
	if strings.Count(subject, ".") != 3 {
		return 0
	}
	_, rest, _ := strings.Cut(subject, ".")
	number, _, _ := strings.Cut(rest, ".")
	partition, err := strconv.Atoi(number)
	if err != nil {
		return 0
	}
	return partition
}
