package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

// Message is a message of a stream and its position.
type Message struct {
	*nats.Msg
	Sequence uint64
	Stored   time.Time
	Pending  uint64 // later messages that match the reader's filters
}

// How a stream is read.
const (
	ReadAhead     = 256 // messages per request
	readExpires   = 30 * time.Second
	readHeartbeat = 5 * time.Second
	readSilence   = 2*readHeartbeat + readHeartbeat/2 // a server that sends nothing for so long is gone
)

// Reader reads messages of a stream in order, with an ordered consumer of its own. It acknowledges nothing, and the
// server keeps no progress. A message out of sequence is an error; the caller then begins again behind its last
// checkpoint.
//
// Reader does not use the pull requests of nats.go, which take any stored message with an empty body and a Status
// header for a status of the server: a producer could stop a partition. Here a status is a message without a reply
// subject, which only the server can send.
type Reader struct {
	js       jetstream.JetStream
	nc       *nats.Conn
	stream   string
	filters  []string
	sub      *nats.Subscription
	messages chan *nats.Msg
	inbox    string
	Ahead    int    // messages per request; at most two requests are open
	ask      string // subject for requests
	asked    int    // messages per open request
	maxBytes int    // per request

	Pending     uint64 // matching messages when the reading began
	outstanding int    // requested messages that have not arrived
	last        uint64 // consumer sequence of the last message
	From        uint64 // stream sequence behind the last message
	checked     time.Time
	late        uint64 // first unread message that the leader had at the last check; 0 for none
	End         uint64 // last sequence wanted; 0 for no end
	Until       uint64 // requests ask for the messages up to it, and for one more at most; 0 for no limit
	Close       func()
}

// removeTimeout bounds the wait for the removal of a consumer. If it is not removed, the server drops it after a
// minute.
const removeTimeout = time.Second

// OpenReader begins to read a stream at the start given in cfg.
func OpenReader(ctx context.Context, js jetstream.JetStream, stream string, cfg jetstream.ConsumerConfig) (*Reader, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("read stream %s: %w", stream, err)
	}
	began := time.Now()
	// The creation may take longer than ctx, because a consumer can be removed only after it was created.
	making, cancel := context.WithTimeout(context.WithoutCancel(ctx), RequestTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(removeTimeout, cancel) })()
	cfg.AckPolicy = jetstream.AckNonePolicy
	cfg.MemoryStorage = true
	cfg.Replicas = 1
	cfg.InactiveThreshold = time.Minute
	cfg.Name = nuid.Next()
	remove := func() {
		if js.Conn().IsConnected() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
			defer cancel()
			_ = js.DeleteConsumer(ctx, stream, cfg.Name)
		}
	}
	consumer, err := js.CreateConsumer(making, stream, cfg)
	if err = cmp.Or(ctx.Err(), err); err != nil {
		if making.Err() != nil || ctx.Err() != nil {
			remove()
		}
		return nil, fmt.Errorf("read stream %s: %w", stream, NameRequest(err, "CONSUMER.CREATE", began))
	}
	nc := js.Conn()
	r := &Reader{
		js:       js,
		nc:       nc,
		stream:   stream,
		filters:  cfg.FilterSubjects,
		From:     max(cfg.OptStartSeq, consumer.CachedInfo().Delivered.Stream+1), // only the server knows where a start by time begins
		messages: make(chan *nats.Msg, 4*ReadAhead),
		inbox:    nc.NewInbox(),
		Ahead:    ReadAhead,
		ask:      APISubject(js, "CONSUMER.MSG.NEXT."+stream+"."+cfg.Name),
		maxBytes: int(nc.MaxPayload()) + 64<<10,
		Pending:  consumer.CachedInfo().NumPending,
	}
	if r.sub, err = nc.ChanSubscribe(r.inbox, r.messages); err != nil {
		remove()
		return nil, fmt.Errorf("read stream %s: %w", stream, err)
	}
	switch {
	case cfg.FilterSubject != "":
		r.filters = []string{cfg.FilterSubject}
	case len(r.filters) == 0:
		r.filters = []string{">"}
	}
	r.Close = func() {
		_ = r.sub.Unsubscribe()
		remove()
	}
	return r, nil
}

// Errors that end a [Reader]. Except for ErrEnd, reading again from behind the last message may help.
var (
	ErrSilent = errors.New("no answer from the server")
	ErrGap    = errors.New("messages out of sequence")
	ErrLate   = errors.New("the server has messages that it does not send")
	errStatus = errors.New("status")
	ErrEnd    = errors.New("there are no more messages")
)

// Next waits for messages and returns those that have arrived, at most r.Ahead. When stop is closed it returns
// neither messages nor an error.
func (r *Reader) Next(ctx context.Context, stop <-chan struct{}) ([]Message, error) {
	silence := time.NewTimer(readSilence)
	defer silence.Stop()
	var arrived []Message
	for len(arrived) < r.Ahead && !Closed(stop) {
		if err := r.request(); err != nil {
			return nil, err
		}
		idle := len(arrived) == 0
		m, err := r.receive(ctx, stop, silence, idle)
		switch {
		case err != nil:
			return nil, err
		case m == nil && idle:
			continue // stop is closed
		case m == nil:
			return arrived, nil
		}
		if m.Reply == "" {
			if err = r.status(m); err == nil && idle {
				err = r.check(ctx)
			}
			if err != nil {
				return nil, err
			}
			continue
		}
		message, err := r.accept(m)
		if err != nil {
			return nil, err
		}
		arrived = append(arrived, message)
	}
	if Closed(stop) {
		return nil, nil // the messages that arrived are not done and will be read again
	}
	return arrived, nil
}

// receive returns the next message, nil for none. When idle, it waits for one until stop is closed.
func (r *Reader) receive(ctx context.Context, stop <-chan struct{}, silence *time.Timer, idle bool) (*nats.Msg, error) {
	if !idle {
		select {
		case m := <-r.messages:
			return m, nil
		default:
			return nil, nil
		}
	}
	select {
	case m := <-r.messages:
		silence.Reset(readSilence)
		return m, nil
	case <-stop:
		return nil, nil
	case <-silence.C:
		return nil, ErrSilent
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// accept returns a message with its position in the stream. It must be the next one of the consumer.
func (r *Reader) accept(m *nats.Msg) (Message, error) {
	meta, err := m.Metadata()
	if err != nil {
		return Message{}, fmt.Errorf("read stream: %w", err)
	}
	if meta.Sequence.Consumer != r.last+1 {
		return Message{}, ErrGap
	}
	r.last++
	r.From = meta.Sequence.Stream + 1
	r.outstanding--
	return Message{m, meta.Sequence.Stream, meta.Timestamp, meta.NumPending}, nil
}

// check compares an idle consumer with the leader of the stream. The consumer lives on one replica, and a replica
// that no longer follows the leader sends heartbeats but no messages, sometimes for long. If a message that the
// leader had at one check has not arrived by the next, the reading ends: the next consumer may live on another
// replica. The error is ErrEnd if the leader has no message up to the end, because those that the consumer still
// counted were removed.
func (r *Reader) check(ctx context.Context) error {
	if len(r.messages) > 0 || time.Since(r.checked) < readHeartbeat/2 {
		return nil
	}
	r.checked = time.Now()
	first, err := r.firstUnread(ctx)
	if err != nil {
		return nil //nolint:nilerr // without a leader nothing is known about the consumer
	}
	if r.End > 0 && (first == 0 || first > r.End) {
		return ErrEnd
	}
	if first != 0 && first == r.late {
		return fmt.Errorf("%w: from sequence %d on", ErrLate, first)
	}
	r.late = first
	return nil
}

// firstUnread returns the sequence of the first unread message that the leader of the stream has; 0 for none.
func (r *Reader) firstUnread(ctx context.Context) (uint64, error) {
	first := uint64(0)
	for _, filter := range r.filters {
		m, err := LeaderGet(ctx, r.js, r.stream, GetRequest{Sequence: r.From, NextBySubject: filter})
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if first == 0 || m.Sequence < first {
			first = m.Sequence
		}
	}
	return first, nil
}

// Exhausted returns [ErrLate] if the leader has an unread message up to end although the consumer reports that it
// sent all.
func (r *Reader) Exhausted(ctx context.Context, end uint64) error {
	if r.From > end {
		return nil
	}
	first, err := r.firstUnread(ctx)
	if err == nil && first != 0 && first <= end {
		err = fmt.Errorf("%w: from sequence %d on", ErrLate, first)
	}
	return err
}

// request requests more messages once half of the requested ones have arrived. All open requests have the same number
// of messages, because [Reader.status] recognizes a request that ended without a message by that number.
func (r *Reader) request() error {
	most := r.Ahead
	if r.Until > 0 {
		most = int(min(uint64(r.Ahead+r.outstanding), max(r.Until+2, r.From)-r.From)) - r.outstanding
	}
	if most <= 0 || r.outstanding > r.Ahead || r.outstanding > 0 && most != r.asked {
		return nil
	}
	r.asked = most
	body, err := json.Marshal(struct {
		Batch     int   `json:"batch"`
		MaxBytes  int   `json:"max_bytes"`
		Expires   int64 `json:"expires"`        // nanoseconds
		Heartbeat int64 `json:"idle_heartbeat"` // nanoseconds
	}{most, r.maxBytes, int64(readExpires), int64(readHeartbeat)})
	if err != nil {
		return err
	}
	r.outstanding += most
	return Wrap(r.nc.PublishRequest(r.ask, r.inbox, body), "read stream")
}

// status handles a status of the server: a heartbeat, the end of a request, or an error.
func (r *Reader) status(m *nats.Msg) error {
	status, description := m.Header.Get("Status"), m.Header.Get("Description")
	ended := status == "408" || status == "409" &&
		(strings.EqualFold(description, "Message Size Exceeds MaxBytes") || strings.EqualFold(description, "Batch Completed"))
	switch {
	case status == "100":
		return nil
	case !ended:
		return fmt.Errorf("read stream: %w %s %s", errStatus, status, description)
	}
	left, err := strconv.Atoi(m.Header.Get("Nats-Pending-Messages"))
	if err != nil || left < 0 {
		return fmt.Errorf("read stream: status %s with a bad count", status)
	}
	if status == "409" && left == r.asked {
		return errors.New("read stream: a record is larger than max_payload of the server now allows")
	}
	r.outstanding -= left
	return nil
}
