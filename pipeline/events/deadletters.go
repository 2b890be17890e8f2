package events

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/broker"
	"tributary/pipeline/claims"
	"tributary/pipeline/records"
	"tributary/pipeline/states"
	"tributary/pipeline/streams"
)

// maxErrorBytes is the maximum length of the error text of a dead letter.
const maxErrorBytes = 1 << 10

// requeuedHeaders are the headers of a raw record that its requeued copy keeps. The copy does not keep the position
// in the file, which the session has passed, nor headers of the broker or of others.
var requeuedHeaders = []string{
	envelopes.HeaderSession,
	envelopes.HeaderDigest,
	envelopes.HeaderTime,
	envelopes.HeaderParent,
	envelopes.HeaderEnd,
	envelopes.HeaderClaim,
	envelopes.HeaderHost,
	envelopes.HeaderUser,
	envelopes.HeaderLabels,
	envelopes.HeaderVerified,
	envelopes.HeaderTraceparent,
	envelopes.HeaderTracestate,
}

// LetterWriter identifies the writer of dead letters: a generation in a cell, and the raw stream it reads.
type LetterWriter struct {
	Generation, Cell string
	Raw              string // name of the stream
	Partition        int
	Revision         int
}

// NewDeadLetter returns the message of a dead letter: the bytes of an unreadable record, its headers under
// [envelopes.HeaderOriginal], and the reason. If all of that exceeds maxPayload, it omits the body first, then
// headers, and last of all those that a requeued copy keeps. The message always names the record, and the raw stream
// has it whole.
func NewDeadLetter(by LetterWriter, r core.Record, original nats.Header, cause error, maxPayload int64) *nats.Msg {
	reason, _ := records.Reason(cause)
	text := cause.Error()
	h := nats.Header{
		envelopes.HeaderReason:     {reason},
		envelopes.HeaderError:      {strings.ToValidUTF8(text[:min(len(text), maxErrorBytes)], "")},
		envelopes.HeaderStream:     {by.Raw},
		envelopes.HeaderSequence:   {strconv.FormatUint(r.Sequence, 10)},
		envelopes.HeaderGeneration: {by.Generation},
		envelopes.HeaderNormalizer: {strconv.Itoa(by.Revision)},
		envelopes.HeaderFirstSeen:  {envelopes.FormatTime(r.Stored)},
		envelopes.HeaderSize:       {strconv.Itoa(len(r.Data))},
	}
	if n := r.Origin.Requeued; n != 0 {
		h[envelopes.HeaderRequeued] = []string{strconv.FormatUint(n, 10)}
	}
	broker.SetTrace(h, r.Origin.Traceparent, r.Origin.Tracestate)
	if records.Hashed(r.Session) && len(r.Session) <= records.MaxSessionBytes {
		h[envelopes.HeaderSession] = []string{envelopes.EncodeHeaderValue(r.Session)}
	}
	size := broker.HeaderSize(h)
	names := slices.Clone(requeuedHeaders)
	for name := range original {
		if !slices.Contains(requeuedHeaders, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names[len(requeuedHeaders):])
	for _, name := range names {
		kept := nats.Header{envelopes.HeaderOriginal + name: original[name]}
		if n := broker.HeaderSize(kept); n > 0 && size+n <= broker.MaxHeaderBytes {
			size += n
			h[envelopes.HeaderOriginal+name] = original[name]
		}
	}
	m := &nats.Msg{Subject: envelopes.DeadLetterSubject(by.Cell, by.Partition, r.Source, r.Session), Header: h}
	if int64(size+len(r.Data)+broker.BatchHeaderBytes) <= maxPayload {
		m.Data = r.Data
	}
	return m
}

// DeadLetter is a record that a generation could not read, as stored in its events stream. [DeadLetter.Load] returns
// the bytes of the record.
type DeadLetter struct {
	Cell       int       // cell of its events stream
	Position   uint64    // sequence of the dead letter in that stream
	Stored     time.Time // when the record became a dead letter
	Generation string
	Partition  int

	// Source and Session belong to the record. If its subject was unreadable, they are [envelopes.UnknownSource] and
	// the subject, or an empty Session if the subject was too long to keep.
	Source   envelopes.Source
	Session  string
	Standing core.Standing // whether a copy of the record was read since

	Reason   string // see [records.Reason]
	Error    string // repeats nothing of the record
	Revision int    // of the normalizers

	Stream    string // the raw stream
	Sequence  uint64 // of the record in it
	FirstSeen time.Time
	Requeued  uint64          // sequence of the record that this one copies; 0 for none
	Header    nats.Header     // of the record
	Edge      *envelopes.Edge // sender of the record; nil if not stated or unreadable
	Size      int             // bytes of the message of the record
	Redacted  bool            // the record was redacted; the raw stream has the original
	Claim     claims.Claim    // names the object with the bytes of a large record; zero if the message has them
	Whole     bool            // the dead letter has the bytes of the message; otherwise only the raw stream has

	subject string
	token   string // of the session, in subjects

	traceparent, tracestate string // W3C context of its publication
}

// DeadLettersQuery selects dead letters of a generation. The zero value of a field selects all.
type DeadLettersQuery struct {
	Source     envelopes.Source
	Session    string
	Partitions []int
	Reason     string
	Standing   core.Standing
	Since      time.Time         // stored at or after this time
	Until      time.Time         // stored before this time
	Sequences  []uint64          // raw sequences of the records
	After      streams.Positions // positions in the events streams to begin after; nil for the beginning
	Through    streams.Positions // last positions in the events streams; nil for all
}

// Matches reports whether q selects l by the fields that are not part of its subject. [DeadLetters] yields only
// matching ones; to count the others, leave these fields empty there and call Matches.
func (q *DeadLettersQuery) Matches(l *DeadLetter) bool {
	return (q.Reason == "" || q.Reason == l.Reason) &&
		(q.Standing == "" || q.Standing == l.Standing) &&
		(q.Since.IsZero() || !l.Stored.Before(q.Since)) &&
		(q.Until.IsZero() || l.Stored.Before(q.Until)) &&
		(len(q.Partitions) == 0 || slices.Contains(q.Partitions, l.Partition)) &&
		(len(q.Sequences) == 0 || slices.Contains(q.Sequences, l.Sequence))
}

// lettersPage is how many dead letters are read at a time, together with the states of their sessions: at most 64 KiB
// and 128 KiB each.
const lettersPage = 100

// DeadLetters iterates over the dead letters of a generation, cell by cell, in the order of the events stream, which
// within a partition is the order of the raw stream. It ends with the last dead letter that exists at the beginning.
// It does not read the bytes of the records, and its memory does not grow with their number. For an unreadable
// message it yields an error with its Position and continues; any other error ends it.
func DeadLetters(ctx context.Context, js jetstream.JetStream, generation string, q DeadLettersQuery) iter.Seq2[DeadLetter, error] {
	return func(yield func(DeadLetter, error) bool) {
		err := eachCellPage(ctx, js, generation, &q, func(cell int, page []broker.Message) (bool, error) {
			letters := make([]DeadLetter, len(page))
			errs := make([]error, len(page))
			for i, m := range page {
				letters[i], errs[i] = readDeadLetter(streams.EventsStream(envelopes.CellName(generation, cell)), m)
				letters[i].Cell = cell
			}
			if err := setStandings(ctx, js, letters); err != nil {
				return false, err
			}
			for i, l := range letters {
				if (errs[i] != nil || q.Matches(&l)) && !yield(l, errs[i]) {
					return false, nil
				}
			}
			return true, nil
		})
		if err != nil {
			yield(DeadLetter{}, fmt.Errorf("read dead letters of %s: %w", generation, err))
		}
	}
}

// eachCellPage is [eachPage] for each cell.
func eachCellPage(ctx context.Context, js jetstream.JetStream, generation string, q *DeadLettersQuery, page func(int, []broker.Message) (bool, error)) error {
	streams, err := streams.EventsStreams(ctx, js, generation)
	if err != nil {
		return err
	}
	for c, stream := range streams {
		pages := letterPages{end: stream.CachedInfo().State.LastSeq}
		if q.Through != nil {
			pages.end = min(pages.end, q.Through.In(c))
		}
		if q.After.In(c) >= pages.end {
			continue
		}
		if pages.consumer, err = createLettersConsumer(ctx, stream, envelopes.CellName(generation, c), q, q.After.In(c)); err != nil {
			return err
		}
		more := true
		err := pages.each(ctx, stream, func(messages []broker.Message) (_ bool, err error) {
			more, err = page(c, messages)
			return more, err
		})
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// each reads the headers of the dead letters, page by page, until page returns false.
func (p *letterPages) each(ctx context.Context, stream jetstream.Stream, page func([]broker.Message) (bool, error)) error {
	defer func() {
		// If this fails, the server drops the consumer by itself a minute later.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = stream.DeleteConsumer(ctx, p.consumer.CachedInfo().Name)
	}()
	for p.pending = p.consumer.CachedInfo().NumPending; p.pending > 0; {
		messages, err := p.next(ctx)
		if err != nil {
			return err
		}
		if len(messages) == 0 && p.pending > 0 {
			return p.checkGone(ctx)
		}
		if more, err := page(messages); err != nil || !more {
			return err
		}
	}
	return nil
}

// createLettersConsumer creates the consumer of the dead letters that q selects by subject, time and position.
// generation is the name of the generation in the cell.
func createLettersConsumer(ctx context.Context, stream jetstream.Stream, generation string, q *DeadLettersQuery, after uint64) (jetstream.Consumer, error) {
	cfg := jetstream.ConsumerConfig{
		Description:       "A reader of dead letters.",
		FilterSubject:     envelopes.DeadLetterFilter(generation, q.Source, q.Session),
		DeliverPolicy:     jetstream.DeliverAllPolicy,
		AckPolicy:         jetstream.AckNonePolicy,
		HeadersOnly:       true,
		MemoryStorage:     true,
		Replicas:          1,
		InactiveThreshold: time.Minute,
	}
	switch {
	case after > 0:
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, after+1
	case !q.Since.IsZero():
		cfg.DeliverPolicy, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, &q.Since
	}
	return stream.CreateConsumer(ctx, cfg)
}

// letterPages reads the messages of a consumer in pages, up to a stream sequence.
type letterPages struct {
	consumer jetstream.Consumer
	end      uint64 // last stream sequence
	read     uint64 // messages received
	pending  uint64 // upper bound of the messages up to the end that have not arrived
}

// next reads the next page.
func (p *letterPages) next(ctx context.Context) ([]broker.Message, error) {
	batch, err := p.consumer.Fetch(int(min(lettersPage, p.pending)), jetstream.FetchMaxWait(broker.RequestTimeout))
	if err != nil {
		return nil, err
	}
	var messages []broker.Message
	for m := range batch.Messages() {
		meta, err := m.Metadata()
		if err != nil {
			return nil, err
		}
		if p.read++; meta.Sequence.Consumer != p.read {
			return nil, broker.ErrGap
		}
		if p.pending = meta.NumPending; meta.Sequence.Stream >= p.end {
			p.pending = 0
		}
		if meta.Sequence.Stream <= p.end {
			sent := &nats.Msg{Subject: m.Subject(), Header: m.Headers(), Data: m.Data()}
			messages = append(messages, broker.Message{Msg: sent, Sequence: meta.Sequence.Stream, Stored: meta.Timestamp, Pending: meta.NumPending})
		}
	}
	if err := batch.Error(); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return messages, nil
}

// checkGone returns nil if the pending messages were purged meanwhile, and an error if the server still has them and
// does not send them.
func (p *letterPages) checkGone(ctx context.Context) error {
	info, err := p.consumer.Info(ctx)
	if err == nil && info.NumPending > 0 {
		err = broker.ErrSilent
	}
	return err
}

// ErrDeadLetter is the error of a message that is not a dead letter although its subject says so.
var ErrDeadLetter = errors.New("not a dead letter")

// readDeadLetter reads the headers of a dead letter, whose data may be missing. The result has a Position even on an
// error.
func readDeadLetter(stream string, m broker.Message) (DeadLetter, error) {
	l := DeadLetter{Position: m.Sequence, Stored: m.Stored.UTC()}
	bad := func(what string, err error) (DeadLetter, error) {
		return l, fmt.Errorf("message %d of stream %s: %w: %s: %w", l.Position, stream, ErrDeadLetter, what, err)
	}
	address, err := envelopes.ParseDeadLetterSubject(m.Subject)
	if err != nil {
		return bad("subject", err)
	}
	h := m.Header
	l.Generation, l.Cell, l.Partition, l.Source, l.token = address.Generation, address.Cell, address.Partition, address.Source, address.Token
	l.subject = m.Subject
	l.traceparent, l.tracestate = envelopes.TraceContext(h.Get(envelopes.HeaderTraceparent), h.Get(envelopes.HeaderTracestate))
	l.Reason, l.Error, l.Stream = h.Get(envelopes.HeaderReason), h.Get(envelopes.HeaderError), h.Get(envelopes.HeaderStream)
	if stated, err := envelopes.DecodeHeaderValue(h.Get(envelopes.HeaderSession)); err == nil {
		l.Session, _ = envelopes.ResolveToken(l.token, stated) // unknown if it was too long
	}
	if l.FirstSeen, err = envelopes.ParseTime(h.Get(envelopes.HeaderFirstSeen)); err != nil {
		return bad(envelopes.HeaderFirstSeen, err)
	}
	if l.Sequence, err = strconv.ParseUint(h.Get(envelopes.HeaderSequence), 10, 64); err != nil {
		return bad(envelopes.HeaderSequence, errNoNumber)
	}
	stored := len(m.Data)
	if size := h.Get(nats.MsgSize); size != "" { // the message came without its data
		if stored, err = strconv.Atoi(size); err != nil {
			return bad(nats.MsgSize, errNoNumber)
		}
	}
	if l.Size, err = strconv.Atoi(h.Get(envelopes.HeaderSize)); err != nil {
		return bad(envelopes.HeaderSize, errNoNumber)
	}
	if l.Revision, err = strconv.Atoi(h.Get(envelopes.HeaderNormalizer)); err != nil {
		return bad(envelopes.HeaderNormalizer, errNoNumber)
	}
	if before := h.Get(envelopes.HeaderRequeued); before != "" {
		if l.Requeued, err = strconv.ParseUint(before, 10, 64); err != nil {
			return bad(envelopes.HeaderRequeued, errNoNumber)
		}
	}
	l.Whole = stored == l.Size
	l.Redacted = h.Get(envelopes.HeaderRedacted) != ""
	l.Header = make(nats.Header)
	for name, values := range h {
		if own, ok := strings.CutPrefix(name, envelopes.HeaderOriginal); ok {
			l.Header[own] = values
		}
	}
	l.Edge, _ = records.ReadEdge(l.Header) // an unreadable sender is why the record is a dead letter
	if l.Size == 0 {
		l.Claim, _ = claims.Parse(l.Header.Get(envelopes.HeaderClaim)) // zero for a missing or bad claim
	}
	return l, nil
}

var errNoNumber = errors.New("no number")

// cellName returns the name of the generation in the cell of l.
func (l *DeadLetter) cellName() string { return envelopes.CellName(l.Generation, l.Cell) }

// EventsStream returns the name of the stream with the dead letter.
func (l *DeadLetter) EventsStream() string { return streams.EventsStream(l.cellName()) }

// addressed reports whether the session of the record is known.
func (l *DeadLetter) addressed() bool {
	return l.Source != envelopes.UnknownSource && l.Session != ""
}

// setStandings reads from the states of sessions whether the records of dead letters were read since. A state older
// than the dead letter, because a replica is behind or a chunk is sent in several batches, does not know the dead
// letter yet.
func setStandings(ctx context.Context, js jetstream.JetStream, letters []DeadLetter) error {
	subject := func(l *DeadLetter) string {
		return envelopes.StateSubject(l.cellName(), l.Partition, l.Source, l.Session)
	}
	var subjects []string
	var stream string
	for i := range letters {
		l := &letters[i]
		l.Standing = core.StandingOpen
		if l.addressed() {
			subjects = append(subjects, subject(l))
			stream = l.EventsStream()
		}
	}
	if subjects == nil {
		return nil
	}
	slices.Sort(subjects)
	subjects = slices.Compact(subjects)
	read := states.Reader(func(subjects []string) (map[string]broker.Stored, error) {
		return broker.MessagesOf(ctx, js, stream, subjects)
	})
	stored, err := read.States(subjects, math.MaxUint64)
	if err != nil {
		return err
	}
	sessions := make(map[string]*core.Session, len(stored))
	for i := range letters {
		l := &letters[i]
		if !l.addressed() {
			continue
		}
		state, ok := stored[subject(l)]
		if !ok {
			continue
		}
		s := sessions[subject(l)]
		if s == nil {
			if s, err = state.Decode(); errors.Is(err, core.ErrSessionVersion) {
				continue // unknown here, and a letter that may be open must not be hidden
			}
			if err != nil {
				l.Standing = core.StandingForgotten // a copy would become a dead letter, too
				continue
			}
			sessions[subject(l)] = s
		}
		if state.Sequence < l.Position {
			continue
		}
		l.Standing = s.Standing(l.Sequence)
	}
	return nil
}

// RecordSize returns the bytes of the record, including its object.
func (l *DeadLetter) RecordSize() int64 { return cmp.Or(l.Claim.Size, int64(l.Size)) }

// ErrRecordGone means that the bytes of a record are lost: its dead letter lacks them or was purged, and the record
// has left the raw stream.
var ErrRecordGone = errors.New("record is gone from the raw stream")

// LoadRecord returns the bytes of the record itself, for a large record those of its object. It returns
// [ErrRecordGone] if the object is gone, too, and [records.ErrRedacted] if only the unredacted record exists.
func (l *DeadLetter) LoadRecord(ctx context.Context, js jetstream.JetStream) ([]byte, error) {
	if l.Redacted && (!l.Whole || l.Claim != (claims.Claim{})) {
		return nil, fmt.Errorf("load dead letter %d: %w, and its dead letter does not have it", l.Sequence, records.ErrRedacted)
	}
	if l.Claim == (claims.Claim{}) {
		return l.Load(ctx, js)
	}
	return loadClaimed(ctx, js, l.Claim)
}

// Load returns the body of the message of the record, from the dead letter or, if it did not fit there, from the raw
// stream. The body is empty if a claim check names the bytes. Load returns [ErrRecordGone] if no stream has the
// message.
func (l *DeadLetter) Load(ctx context.Context, js jetstream.JetStream) ([]byte, error) {
	if l.Whole {
		m, err := broker.LeaderGet(ctx, js, l.EventsStream(), broker.GetRequest{Sequence: l.Position})
		if err == nil && m.Subject == l.subject {
			return m.Data, nil
		}
		if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil, fmt.Errorf("load dead letter %d: %w", l.Sequence, err)
		}
	}
	m, err := broker.LeaderGet(ctx, js, streams.RawStreamOf(l.Cell), broker.GetRequest{Sequence: l.Sequence})
	if errors.Is(err, jetstream.ErrMsgNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) ||
		err == nil && !m.Time.Equal(l.FirstSeen) { // the raw stream was created anew
		err = ErrRecordGone
	}
	if err != nil {
		return nil, fmt.Errorf("load record %d: %w", l.Sequence, err)
	}
	return m.Data, nil
}

// PurgeDeadLetters removes dead letters from the events stream of their generation, and calls removed for each one
// that it removed. It skips a dead letter that is already gone. It stops at the first error; reported ones stay
// removed.
//
// The sessions still note the records as open, so copies that were requeued before are read.
func PurgeDeadLetters(ctx context.Context, js jetstream.JetStream, letters iter.Seq2[DeadLetter, error], removed func(DeadLetter)) error {
	streams := make(map[string]jetstream.Stream)
	for l, err := range letters {
		if err != nil && !errors.Is(err, ErrDeadLetter) {
			return err
		}
		if err != nil {
			continue // not a dead letter
		}
		stream := streams[l.EventsStream()]
		if stream == nil {
			if stream, err = js.Stream(ctx, l.EventsStream()); err != nil {
				return fmt.Errorf("purge dead letters: %w", err)
			}
			streams[l.EventsStream()] = stream
		}
		if err := stream.DeleteMsg(ctx, l.Position); err != nil {
			_, there := broker.LeaderGet(ctx, js, l.EventsStream(), broker.GetRequest{Sequence: l.Position})
			if errors.Is(there, jetstream.ErrMsgNotFound) {
				continue // another process purged it
			}
			return fmt.Errorf("purge dead letter %d: %w", l.Sequence, err)
		}
		removed(l)
	}
	return nil
}
