package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
)

// rawMessage is a message of the raw stream with where it lies.
type rawMessage struct {
	*nats.Msg
	sequence uint64
	stored   time.Time
	pending  uint64 // messages of the partition behind it
}

// How a partition is read.
const (
	readAhead     = 256 // messages of one request; two are on their way at most
	readExpires   = 30 * time.Second
	readHeartbeat = 5 * time.Second
)

// reader reads a partition of the raw stream in its order: an ordered consumer. Nothing
// is acknowledged, the server keeps nothing; what is not in sequence is an error, and the
// one who reads begins again behind the last checkpoint.
//
// It asks for messages itself, because the library takes any stored message with an empty
// body and a header Status for a word of the server: a producer could stop a partition.
// The server's own words come without a reply subject.
type reader struct {
	js       jetstream.JetStream
	nc       *nats.Conn
	stream   string
	filters  []string
	sub      *nats.Subscription
	messages chan *nats.Msg
	inbox    string
	ask      string // subject of requests
	maxBytes int    // of one request

	pending     uint64 // messages that were there when it began
	outstanding int    // messages asked for that have not come
	last        uint64 // consumer sequence of the last message
	from        uint64 // stream sequence behind the last message
	checked     time.Time
	late        uint64 // the first unread record that the leader had then; 0 for none
	close       func()
}

// openReader begins to read a partition at a sequence of the raw stream.
func openReader(ctx context.Context, js jetstream.JetStream, partition int, from uint64) (*reader, error) {
	return openStream(ctx, js, RawStream, jetstream.ConsumerConfig{
		Description:    "Partition " + strconv.Itoa(partition) + " of a stage.",
		FilterSubjects: envelopes.RawFilters(partition),
		DeliverPolicy:  jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:    from,
	})
}

// openStream begins to read a stream in its order.
func openStream(ctx context.Context, js jetstream.JetStream, stream string, cfg jetstream.ConsumerConfig) (*reader, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	cfg.AckPolicy = jetstream.AckNonePolicy
	cfg.MemoryStorage = true
	cfg.Replicas = 1
	cfg.InactiveThreshold = time.Minute
	consumer, err := js.CreateConsumer(ctx, stream, cfg)
	if err != nil {
		return nil, fmt.Errorf("read stream %s: %w", stream, err)
	}
	name := consumer.CachedInfo().Name
	nc := js.Conn()
	r := &reader{
		js:       js,
		nc:       nc,
		stream:   stream,
		filters:  cfg.FilterSubjects,
		from:     cfg.OptStartSeq,
		messages: make(chan *nats.Msg, 4*readAhead),
		inbox:    nc.NewInbox(),
		ask:      apiSubject(js, "CONSUMER.MSG.NEXT."+stream+"."+name),
		maxBytes: int(nc.MaxPayload()) + 64<<10,
		pending:  consumer.CachedInfo().NumPending,
	}
	if r.sub, err = nc.ChanSubscribe(r.inbox, r.messages); err != nil {
		return nil, fmt.Errorf("read stream %s: %w", stream, err)
	}
	if cfg.FilterSubject != "" {
		r.filters = []string{cfg.FilterSubject}
	}
	r.close = func() {
		_ = r.sub.Unsubscribe()
		if nc.IsConnected() {
			// Without an answer the server drops the consumer by itself, a minute later.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_ = js.DeleteConsumer(ctx, stream, name)
		}
	}
	return r, nil
}

var (
	errSilent = errors.New("no word from the server")
	errGap    = errors.New("messages out of sequence")
	errLate   = errors.New("the server holds records that it does not send")
)

// next waits for messages and returns what is there, up to readAhead. It returns none,
// and no error, when stop is closed.
func (r *reader) next(ctx context.Context, stop <-chan struct{}) ([]rawMessage, error) {
	silence := time.NewTimer(2*readHeartbeat + readHeartbeat/2)
	defer silence.Stop()
	var run []rawMessage
	for len(run) < readAhead && !closed(stop) {
		if err := r.request(); err != nil {
			return nil, err
		}
		var m *nats.Msg
		if len(run) > 0 {
			select {
			case m = <-r.messages:
			default:
				return run, nil
			}
		} else {
			select {
			case m = <-r.messages:
				silence.Reset(2*readHeartbeat + readHeartbeat/2)
			case <-stop:
				continue
			case <-silence.C:
				return nil, errSilent
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		if m.Reply == "" {
			err := r.status(m)
			if err == nil && len(run) == 0 {
				err = r.check(ctx)
			}
			if err != nil {
				return nil, err
			}
			continue
		}
		meta, err := m.Metadata()
		if err != nil {
			return nil, fmt.Errorf("read stream: %w", err)
		}
		if meta.Sequence.Consumer != r.last+1 {
			return nil, errGap
		}
		r.last++
		r.from = meta.Sequence.Stream + 1
		r.outstanding--
		run = append(run, rawMessage{m, meta.Sequence.Stream, meta.Timestamp, meta.NumPending})
	}
	if closed(stop) {
		return nil, nil // what was read is not done, and will be read again
	}
	return run, nil
}

// check compares an idle consumer with the leader of the stream. The consumer lies on one
// of the replicas, and where that one no longer follows the leader, which can last, it
// sends its signs of life and no records. A record that the leader had and that has not
// come until the next check ends the reading: the next consumer may lie elsewhere.
func (r *reader) check(ctx context.Context) error {
	if len(r.messages) > 0 || time.Since(r.checked) < readHeartbeat/2 {
		return nil
	}
	r.checked = time.Now()
	first := uint64(0)
	for _, filter := range r.filters {
		m, err := leaderGet(ctx, r.js, r.stream, getRequest{Sequence: r.from, NextBySubject: filter})
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return nil //nolint:nilerr // a leader that is away says nothing about the consumer
		}
		if first == 0 || m.Sequence < first {
			first = m.Sequence
		}
	}
	if first != 0 && first == r.late {
		return fmt.Errorf("%w: from sequence %d on", errLate, first)
	}
	r.late = first
	return nil
}

// request asks for more when half of what was asked for has come.
func (r *reader) request() error {
	if r.outstanding > readAhead {
		return nil
	}
	body, err := json.Marshal(struct {
		Batch     int   `json:"batch"`
		MaxBytes  int   `json:"max_bytes"`
		Expires   int64 `json:"expires"`        // nanoseconds
		Heartbeat int64 `json:"idle_heartbeat"` // nanoseconds
	}{readAhead, r.maxBytes, int64(readExpires), int64(readHeartbeat)})
	if err != nil {
		return err
	}
	r.outstanding += readAhead
	return wrap(r.nc.PublishRequest(r.ask, r.inbox, body), "read stream")
}

// status handles a word of the server: a request that has ended, or an error.
func (r *reader) status(m *nats.Msg) error {
	status, description := m.Header.Get("Status"), m.Header.Get("Description")
	ended := status == "408" || status == "409" &&
		(strings.EqualFold(description, "Message Size Exceeds MaxBytes") || strings.EqualFold(description, "Batch Completed"))
	switch {
	case status == "100":
		return nil
	case !ended:
		return fmt.Errorf("read stream: status %s %s", status, description)
	}
	left, err := strconv.Atoi(m.Header.Get("Nats-Pending-Messages"))
	if err != nil || left < 0 {
		return fmt.Errorf("read stream: status %s with a bad count", status)
	}
	if status == "409" && left == readAhead {
		return errors.New("read stream: a record is larger than max_payload of the server now allows")
	}
	r.outstanding -= left
	return nil
}
