package worker

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"time"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/claims"
	"tributary/pipeline/events"
	"tributary/pipeline/records"
	"tributary/pipeline/redact"
	"tributary/pipeline/streams"
)

// normalizer turns the records of a partition into results, in the goroutine of an ownership.
type normalizer struct {
	p         *partition
	ctx       context.Context    // of the ownership
	resume    streams.Checkpoint // where the ownership began
	sessions  *sessionCache
	histories *events.Histories
	encoder   *encoder
	calls     *calls
}

// skipErased is the reason why a record of an erased session yields nothing. The others are [core.SkipReasons].
const skipErased = "erased"

// redact applies the redaction of the generation to a record. It may take as long as the normalizer, and ends soon
// after the ownership does. The record becomes a dead letter without its bytes and without another try if redaction
// takes too much work, took too long before, or ended workers.
func (n *normalizer) redact(r *received) error {
	redactor := n.p.stage.redactor
	switch {
	case redactor == nil:
		return nil
	case records.Fatal(r.err):
		r.Data = nil
		return nil
	}
	call := n.calls.begin(r.Sequence)
	n.p.normalizing.Begin()
	data, hits, err := redactor.Search(n.ctx, r.Data)
	n.p.normalizing.End()
	if !n.calls.end(call) {
		return errLeftBehind
	}
	if err != nil && !errors.Is(err, redact.ErrUnsearched) {
		return err
	}
	r.Data, r.hits, r.err = data, hits, cmp.Or(r.err, err)
	return nil
}

// findEarlier looks in the raw stream for what a record repeats, if its session has passed its place.
func (n *normalizer) findEarlier(r *received) error {
	if !r.addressed() {
		return nil
	}
	session := n.sessions.live[r.key()]
	if session == nil || session.damaged != nil || !session.state.Passed(r.Record) {
		return nil //nolint:nilerr // the records of a damaged session become dead letters
	}
	earlier, err := n.histories.Earlier(n.ctx, r.raw.Subject, r.Record, session.state.First)
	r.Earlier = earlier
	return err
}

// normalize is the third stage: a record changes its session and yields events, or becomes a dead letter. It counts
// in the chunk that the record will join, and encodes events in the memory of that chunk. An error ends the
// ownership.
func (n *normalizer) normalize(r received, c *chunk) (normalized, error) {
	if r.erased {
		c.count(countSkipped, r, 1, skipErased)
		return normalized{}, nil
	}
	if n.isAhead(r) {
		return normalized{}, nil // the torn batch stored its result
	}
	if r.err != nil {
		return n.reject(r, r.err, c), nil //nolint:nilerr // the error of the record; the ownership goes on
	}
	session := n.sessions.use(r.key())
	if session.damaged != nil {
		return n.reject(r, session.damaged, c), nil //nolint:nilerr // the error of the session; the ownership goes on
	}
	forgotten := session.state.Forgotten()
	began := time.Now()
	n.p.normalizing.BeginAt(began)
	result, panicked, err := n.call(session.state, r.Record)
	n.p.normalizing.End()
	c.count(countNormalizing, r, int64(time.Since(began)))
	switch _, permanent := records.Reason(err); {
	case errors.Is(err, errLeftBehind):
		return normalized{}, err
	case panicked:
		return normalized{}, n.p.condemned.add(r.Sequence, err)
	case permanent:
		return n.reject(r, err, c), nil
	case err != nil:
		return normalized{}, err
	}
	messages, err := n.encoder.events(result.Events, &c.blocks)
	if err != nil {
		return normalized{}, n.p.condemned.add(r.Sequence, err)
	}
	c.countResult(r, session, result)
	c.count(countForgotten, r, int64(session.state.Forgotten()-forgotten))
	return normalized{messages, n.storedOf(r, len(messages)), session}, nil
}

// call calls the normalizer. panicked reports a panic that the normalizer did not catch itself: the session may then
// be half changed. After [errLeftBehind] the caller returns and uses nothing that outlives the ownership.
func (n *normalizer) call(s *core.Session, r core.Record) (result core.Result, panicked bool, err error) {
	call := n.calls.begin(r.Sequence)
	defer func() {
		if v := recover(); v != nil {
			panicked, err = true, &core.PanicError{Value: v, Stack: debug.Stack()}
		}
		if caught, ok := errors.AsType[*core.PanicError](err); ok {
			n.p.log.Error("normalizer panicked", slog.Uint64("sequence", r.Sequence), slog.String("source", string(r.Source)),
				slog.String("error", caught.Error()), slog.String("stack", string(caught.Stack)))
		}
		if !n.calls.end(call) {
			result, panicked, err = core.Result{}, false, errLeftBehind
		}
	}()
	result, err = n.p.stage.config.Normalize(s, r)
	return result, false, err
}

// reject makes a record a dead letter. Its session notes it as open in the same batch, so that a requeued copy is
// read once (pipeline/events/README.md, Dead letters). A duplicate of a settled record yields nothing.
func (n *normalizer) reject(r received, cause error, c *chunk) normalized {
	var session *liveSession
	if r.addressed() && n.sessions.use(r.key()).damaged == nil {
		session = n.sessions.use(r.key())
		result, ok := session.state.Reject(r.Record)
		c.countResult(r, session, result)
		if !ok {
			c.count(countSkipped, r, 1, string(core.SkipDuplicate))
			return normalized{session: session}
		}
	}
	n.p.logRejected(r.Sequence, cause)
	reason, _ := records.Reason(cause)
	c.count(countDeadLetters, r, 1, reason)
	return normalized{[]message{n.encoder.letter(n.ctx, r, cause)}, n.storedOf(r, 1), session}
}

// logRejected logs a record that becomes a dead letter through no fault of its own: each that ended workers, and the
// first whose object is missing.
func (p *partition) logRejected(sequence uint64, cause error) {
	switch {
	case errors.Is(cause, records.ErrCrashed):
		p.log.Error("record ended its workers and becomes a dead letter: give the workers more memory, then requeue it", slog.Uint64("sequence", sequence))
	case errors.Is(cause, redact.ErrUnsearched):
		p.log.Error("record takes too much work to search for secrets and becomes a dead letter without its bytes: the raw stream has them", slog.Uint64("sequence", sequence))
	case errors.Is(cause, claims.ErrMissing):
		p.stage.claimMissing.Do(func() {
			p.log.Error("objects of large records are missing, and these become dead letters: ship the logs again, then requeue them", slog.Uint64("sequence", sequence))
		})
	}
}

// isAhead reports whether a torn batch already stored the result of the record.
func (n *normalizer) isAhead(r received) bool {
	if len(n.resume.Ahead) == 0 || !r.addressed() {
		return false
	}
	_, session := envelopes.ArchiveOf(envelopes.StateSubject(n.p.cell.name, n.p.number, r.Source, r.Session))
	return r.Sequence <= n.resume.Ahead[session]
}

// storedOf returns how many of the messages of a record an earlier commit has stored, as the checkpoint states for a
// record that is stored in part.
func (n *normalizer) storedOf(r received, messages int) int {
	switch {
	case records.Fatal(r.err): // the stored messages came from an attempt; the dead letter is new
		return 0
	case r.Sequence < n.resume.Out:
		return messages
	case r.Sequence == n.resume.Out && n.resume.Part <= messages: // otherwise the record can no longer be read
		return n.resume.Part
	default:
		return 0
	}
}
