package worker

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"time"

	"tributary/normalizers"
	"tributary/pipeline/claims"
	"tributary/pipeline/records"
	"tributary/pipeline/redact"
)

// findEarlier asks the raw stream about a record whose place its session has passed.
func (o *ownership) findEarlier(r *received) error {
	if !r.addressed() {
		return nil
	}
	session := o.sessions.live[r.key()]
	if session == nil || session.damaged != nil || !session.state.Passed(r.Record) {
		return nil //nolint:nilerr // the records of a damaged session are dead letters
	}
	earlier, err := o.histories.Earlier(o.ctx, r.raw.Subject, r.Record, session.state.First)
	r.Earlier = earlier
	return err
}

// apply normalizes a record and appends the result to the chunk that is built. The normalizer
// runs without the lock, so that a slow record stops neither the committer nor the metrics.
func (o *ownership) apply(r received) error {
	if pacer := o.p.stage.config.Pacer; pacer != nil {
		if err := pacer.acquire(o.ctx); err != nil {
			return err
		}
		defer o.hold(pacer.release)()
	}
	if err := o.between.Acquire(o.ctx); err != nil {
		return err
	}
	defer o.leaveRecord()
	if o.ctx.Err() != nil {
		return context.Cause(o.ctx)
	}
	out, err := o.normalize(r)
	if err != nil {
		o.cancel(err) // the session may be half changed: the committer must not seal the chunk
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.append(r, out)
	return nil
}

// leaveRecord lets the committer seal the chunk, and signals it only then: before, it could leave the chunk out
// once more and wait for a signal that comes with the next record alone.
func (o *ownership) leaveRecord() {
	o.between.Release()
	o.p.cell.signalPending()
}

// normalized is what a record yields.
type normalized struct {
	messages []message
	session  *liveSession // the session that the record changed; nil when it changed none
}

// normalize is the third stage: a record changes its session and yields events, or becomes
// a dead letter. An error ends the ownership.
func (o *ownership) normalize(r received) (normalized, error) {
	if o.isAhead(r) {
		return normalized{}, nil // a torn batch has stored what it yields
	}
	if r.err != nil {
		return o.reject(r, r.err), nil //nolint:nilerr // the error of the record; the ownership goes on
	}
	session := o.sessions.use(r.key())
	if session.damaged != nil {
		return o.reject(r, session.damaged), nil //nolint:nilerr // the error of the session; the ownership goes on
	}
	forgotten := session.state.Forgotten()
	began := time.Now()
	o.p.normalizing.BeginAt(began)
	result, panicked, err := o.callNormalizer(session.state, r.Record)
	o.p.normalizing.End()
	o.count(countNormalizing, r, int64(time.Since(began)))
	switch _, permanent := records.Reason(err); {
	case errors.Is(err, errLeftBehind):
		return normalized{}, err
	case panicked:
		return normalized{}, o.p.condemn(r.Sequence, err)
	case permanent:
		return o.reject(r, err), nil
	case err != nil:
		return normalized{}, err
	}
	messages, err := o.eventMessages(result.Events)
	if err != nil {
		return normalized{}, o.p.condemn(r.Sequence, err)
	}
	o.countResult(r, session, result)
	o.count(countForgotten, r, int64(session.state.Forgotten()-forgotten))
	return normalized{messages, session}, nil
}

// callNormalizer calls the normalizer. panicked reports a panic that the normalizer did not
// catch itself: the session may be half changed then. After [errLeftBehind] the caller returns
// and uses nothing that outlives the ownership.
func (o *ownership) callNormalizer(s *normalizers.Session, r normalizers.Record) (result normalizers.Result, panicked bool, err error) {
	call := o.calls.begin(r.Sequence)
	defer func() {
		if v := recover(); v != nil {
			panicked, err = true, &normalizers.PanicError{Value: v, Stack: debug.Stack()}
		}
		if caught, ok := errors.AsType[*normalizers.PanicError](err); ok {
			o.p.log.Error("normalizer panicked", slog.Uint64("sequence", r.Sequence), slog.String("source", string(r.Source)),
				slog.String("error", caught.Error()), slog.String("stack", string(caught.Stack)))
		}
		if !o.calls.end(call) {
			result, panicked, err = normalizers.Result{}, false, errLeftBehind
		}
	}()
	result, err = o.p.stage.config.Normalize(s, r)
	return result, false, err
}

// reject makes a record a dead letter. Its session notes it as open, in the same batch, so
// that a requeued copy is read once (README.md, Dead letters). A duplicate of a record that
// is settled yields nothing.
func (o *ownership) reject(r received, cause error) normalized {
	var session *liveSession
	if r.addressed() && o.sessions.use(r.key()).damaged == nil {
		session = o.sessions.use(r.key())
		result, ok := session.state.Reject(r.Record)
		o.countResult(r, session, result)
		if !ok {
			o.count(countSkipped, r, 1, string(normalizers.SkipDuplicate))
			return normalized{session: session}
		}
	}
	o.p.logRejected(r.Sequence, cause)
	reason, _ := records.Reason(cause)
	o.count(countDeadLetters, r, 1, reason)
	return normalized{[]message{o.deadLetterMessage(r, cause)}, session}
}

// logRejected logs a record that becomes a dead letter for a reason that does not lie with it:
// each that ended workers, and the first whose object is missing.
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

// append is the fourth stage: the record, what it yields and the session that it changed
// join the chunk that is built.
func (o *ownership) append(r received, out normalized) {
	c := o.building
	if out.session != nil {
		c.change(out.session)
		o.sessions.changed(out.session, c.number)
	}
	before := c.bytes
	c.add(r.raw, out.messages, o.storedBefore(r, len(out.messages)))
	o.wait(c.bytes - before)
	o.count(countRecords, r, 1)
	for _, hit := range r.hits {
		o.count(countRedactions, r, 1, hit.Rule)
	}
	if link, ok := o.p.stage.telemetry.link(o.ctx, &r); ok {
		c.links = append(c.links, link)
	}
}

// storedBefore returns how many of the messages of a record an earlier commit has stored:
// the checkpoint says so of records that are stored in part.
func (o *ownership) storedBefore(r received, messages int) int {
	switch {
	case records.Fatal(r.err): // what is stored came from an attempt; the dead letter is new
		return 0
	case r.Sequence < o.resume.Out:
		return messages
	case r.Sequence == o.resume.Out && o.resume.Part <= messages: // else the record can no longer be read
		return o.resume.Part
	default:
		return 0
	}
}

// count adds to a counter, from when the chunk that is built is stored.
func (o *ownership) count(counter int, r received, n int64, labels ...string) {
	o.building.tally.add(counter, r.Source, n, labels...)
}

// countResult counts what a record yielded, and notes what it changed about gaps.
func (o *ownership) countResult(r received, s *liveSession, result normalizers.Result) {
	for _, u := range result.Unknown {
		o.count(countUnknown, r, int64(u.Count), normalizers.VersionOf(s.state), string(u.Kind), u.Name)
	}
	for i := range result.Events {
		o.building.tally.addEvent(r.Source, &result.Events[i].Event)
	}
	if result.Skip != "" {
		o.count(countSkipped, r, 1, string(result.Skip))
	}
	if result.Gap {
		o.count(countGaps, r, 1)
	}
	if result.Late {
		o.count(countLate, r, 1)
	}
	if result.Rewritten {
		o.count(countRewritten, r, 1)
	}
	if result.Undecided {
		o.count(countUndecided, r, 1)
	}
	o.building.noteGap(r, s, result)
}
