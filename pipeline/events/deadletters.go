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

// maxErrorBytes is the longest error text of a dead letter.
const maxErrorBytes = 1 << 10

// requeuedHeaders are the headers of a raw record that its requeued copy keeps. The copy
// does not keep the record's position in its file, which the session has passed, and no
// header of the broker or of others.
var requeuedHeaders = []string{
	envelopes.HeaderSession,
	envelopes.HeaderDigest,
	envelopes.HeaderTime,
	envelopes.HeaderEnd,
	envelopes.HeaderClaim,
	envelopes.HeaderHost,
	envelopes.HeaderUser,
	envelopes.HeaderLabels,
	envelopes.HeaderTraceparent,
	envelopes.HeaderTracestate,
}

// LetterWriter is who writes a dead letter: a generation in a cell, which reads a raw stream.
type LetterWriter struct {
	Generation, Cell string
	Raw              string // name of the stream
	Partition        int
	Revision         int
}

// NewDeadLetter returns the message of a dead letter: the bytes of a record that could not be
// read, its headers under [envelopes.HeaderOriginal], and the reason. A message of
// maxPayload bytes that is too small for all of it leaves out the body first, then headers,
// those that a requeued copy keeps last of all. It always names the record, which the raw
// stream has whole.
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

// DeadLetter is a record that a generation could not read, as its events stream holds it.
// [DeadLetter.Load] returns the bytes of the record.
type DeadLetter struct {
	Cell       int       // whose events stream has it
	Position   uint64    // of the dead letter in that stream
	Stored     time.Time // when the record became one
	Generation string
	Partition  int

	// Source and Session are those of the record. When its subject could not be read,
	// they are [envelopes.UnknownSource] and the subject, or an empty Session when the
	// subject was too long to keep.
	Source   envelopes.Source
	Session  string
	Standing core.Standing // whether a copy of the record has been read since

	Reason   string // see [records.Reason]
	Error    string // repeats nothing of the record
	Revision int    // of the normalizers

	Stream    string // the raw stream
	Sequence  uint64 // of the record in it
	FirstSeen time.Time
	Requeued  uint64          // sequence of the record that this one is a copy of; 0 for none
	Header    nats.Header     // of the record
	Edge      *envelopes.Edge // who sent the record; nil if that is not stated, or cannot be read
	Size      int             // bytes of the message of the record
	Redacted  bool            // the record was redacted; the raw stream has it as it was
	Claim     claims.Claim    // names the object with the bytes of a large record; zero when they are in the message
	Whole     bool            // the dead letter has the bytes of the message; else only the raw stream has

	subject string
	token   string // of the session, in subjects

	traceparent, tracestate string // W3C context in which it was published
}

// DeadLettersQuery selects dead letters of a generation. The zero value of a field selects
// all.
type DeadLettersQuery struct {
	Source     envelopes.Source
	Session    string
	Partitions []int
	Reason     string
	Standing   core.Standing
	Since      time.Time         // stored at this time or later
	Until      time.Time         // stored before
	Sequences  []uint64          // of the records, in the raw stream
	After      streams.Positions // the positions in the events streams behind which it begins; nil for the beginning
	Through    streams.Positions // the last positions in the events streams; nil for all
}

// Matches reports whether q selects l by the fields that are not in its subject. [DeadLetters] yields those alone; who wants
// to know how many others there are leaves these fields out there.
func (q *DeadLettersQuery) Matches(l *DeadLetter) bool {
	return (q.Reason == "" || q.Reason == l.Reason) &&
		(q.Standing == "" || q.Standing == l.Standing) &&
		(q.Since.IsZero() || !l.Stored.Before(q.Since)) &&
		(q.Until.IsZero() || l.Stored.Before(q.Until)) &&
		(len(q.Partitions) == 0 || slices.Contains(q.Partitions, l.Partition)) &&
		(len(q.Sequences) == 0 || slices.Contains(q.Sequences, l.Sequence))
}

// lettersPage is how many dead letters are read at a time, together with the states of
// their sessions: at most 64 KiB and 128 KiB each.
const lettersPage = 100

// DeadLetters iterates over the dead letters of a generation in the order of the events
// stream, which within a partition is that of the raw stream, one cell after the other. It ends with the last one that
// is there at the beginning. It does not read the bytes of the records, and memory does not
// grow with the number of dead letters. A message that cannot be read is yielded as an error
// with its Position, and the iteration goes on; any other error ends it.
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
		// When this fails, the server drops the consumer by itself a minute later.
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

// createLettersConsumer creates the consumer of the dead letters that q selects by their
// subject, and by their time or position. generation is the name of the generation in the cell.
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
	end      uint64 // the last stream sequence
	read     uint64 // messages that have arrived
	pending  uint64 // messages up to the end that have not, or more
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

// checkGone returns nil when the pending messages have been purged meanwhile, an error when
// the server still has them and does not send them.
func (p *letterPages) checkGone(ctx context.Context) error {
	info, err := p.consumer.Info(ctx)
	if err == nil && info.NumPending > 0 {
		err = broker.ErrSilent
	}
	return err
}

// ErrDeadLetter is the error of a message at the subject of a dead letter that is not a dead
// letter.
var ErrDeadLetter = errors.New("not a dead letter")

// readDeadLetter reads the headers of a dead letter, which comes with its data or without. The
// result has its Position even when they cannot be read.
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
		l.Session, _ = envelopes.ResolveToken(l.token, stated) // it stays unknown when it was too long
	}
	if l.FirstSeen, err = envelopes.ParseTime(h.Get(envelopes.HeaderFirstSeen)); err != nil {
		return bad(envelopes.HeaderFirstSeen, err)
	}
	if l.Sequence, err = strconv.ParseUint(h.Get(envelopes.HeaderSequence), 10, 64); err != nil {
		return bad(envelopes.HeaderSequence, errNoNumber)
	}
	stored := len(m.Data)
	if size := h.Get(nats.MsgSize); size != "" { // of a message that comes without its data
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
	l.Edge, _ = records.ReadEdge(l.Header) // that it cannot be read is why the record is a dead letter
	if l.Size == 0 {
		l.Claim, _ = claims.Parse(l.Header.Get(envelopes.HeaderClaim)) // zero when it is none, or a bad one
	}
	return l, nil
}

var errNoNumber = errors.New("no number")

// cellName returns the name of its generation in its cell.
func (l *DeadLetter) cellName() string { return envelopes.CellName(l.Generation, l.Cell) }

// EventsStream returns the name of the stream that has it.
func (l *DeadLetter) EventsStream() string { return streams.EventsStream(l.cellName()) }

// addressed reports whether the session of the record is known.
func (l *DeadLetter) addressed() bool {
	return l.Source != envelopes.UnknownSource && l.Session != ""
}

// setStandings reads from the states of their sessions whether the records of dead letters
// have been read since. A state that is older than the dead letter, because a replica is
// behind or a chunk goes out in several batches, does not know the dead letter yet.
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
				continue // nobody here knows, and what may be open is not hidden
			}
			if err != nil {
				l.Standing = core.StandingForgotten // a copy would be a dead letter, too
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

// RecordSize returns the bytes of the record, those of its object when it travels by claim
// check.
func (l *DeadLetter) RecordSize() int64 { return cmp.Or(l.Claim.Size, int64(l.Size)) }

// ErrRecordGone is the error of a record whose bytes are lost: its dead letter does not have
// them, or is purged, and the record has left the raw stream.
var ErrRecordGone = errors.New("record is gone from the raw stream")

// LoadRecord is [DeadLetter.Load] for whoever wants the bytes of the record itself: those of a
// large one come from its object. The error is [ErrRecordGone] when that is gone, too, and
// [records.ErrRedacted] when only the record as it was before redaction exists.
func (l *DeadLetter) LoadRecord(ctx context.Context, js jetstream.JetStream) ([]byte, error) {
	if l.Redacted && (!l.Whole || l.Claim != (claims.Claim{})) {
		return nil, fmt.Errorf("load dead letter %d: %w, and its dead letter does not have it", l.Sequence, records.ErrRedacted)
	}
	if l.Claim == (claims.Claim{}) {
		return l.Load(ctx, js)
	}
	return loadClaimed(ctx, js, l.Claim)
}

// Load returns the bytes of the message of the record, which has none when a claim check
// names them: from the dead letter or, when they did not fit it, from the raw stream. The
// error is [ErrRecordGone] when no stream has them.
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

// PurgeDeadLetters removes dead letters from the events stream of their generation, and
// calls removed for each one that it has removed. It skips a dead letter that is gone
// already. An error ends it; those that it has reported stay removed.
//
// The sessions still note the records as open: a copy that was requeued before is read.
func PurgeDeadLetters(ctx context.Context, js jetstream.JetStream, letters iter.Seq2[DeadLetter, error], removed func(DeadLetter)) error {
	streams := make(map[string]jetstream.Stream)
	for l, err := range letters {
		if err != nil && !errors.Is(err, ErrDeadLetter) {
			return err
		}
		if err != nil {
			continue // it is no dead letter
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
				continue // another process has purged it
			}
			return fmt.Errorf("purge dead letter %d: %w", l.Sequence, err)
		}
		removed(l)
	}
	return nil
}
