package normalizers

import "tributary/envelopes"

// The runs of the SDK (semantics.md section 3). A run ends with a result, whose figures
// are those of all its calls, while the lines of its stream have them from the start of
// each call. The same calls stand in the transcript of the session with their last
// figures, which may be shipped, too: before the stream, while it comes, or after it.
// Whatever the order, each token is on one event.

// claudeRuns is what a session remembers of its runs.
type claudeRuns struct {
	Ended int64       `json:"ended,omitzero"` // runs that have ended
	Told  consumption `json:"told,omitzero"`  // of the present run: what its calls have used, as far as events carry it
	Named bool        `json:"named,omitzero"` // of the present run: a stream has named some of its calls
	Last  fingerprint `json:"last,omitzero"`  // of the present run: the last thing that the assistant said

	Alone  consumption `json:"alone,omitzero"`  // what calls have used that neither a stream has named nor a result carried
	Ahead  consumption `json:"ahead,omitzero"`  // what results carried of calls of their streams before those calls state it
	Unseen consumption `json:"unseen,omitzero"` // the same of runs that had no stream, but only a result
}

// present is the number of the run that is not over.
func (r *claudeRuns) present() int64 { return r.Ended + 1 }

// over ends the present run.
func (r *claudeRuns) over() {
	r.Ended, r.Told, r.Named, r.Last = min(r.Ended+1, maxCount), consumption{}, false, fingerprint{}
}

// call takes in a call of the main conversation that has used now and had used before; u
// is the difference. A call that the stream names first, or after the transcript, is of
// the present run. It returns the run of the call, 0 for none, and takes from u what a
// result has carried.
func (r *claudeRuns) call(u *envelopes.Usage, before, now consumption, stream bool) int64 {
	switch run := before.Run; {
	case run == 0 && stream:
		r.Alone = r.Alone.minus(before)
		r.Told, r.Named = r.Told.plus(now), true
		return r.present()
	case run == 0:
		r.Unseen.settle(u)
		r.Alone.add(u)
		return 0
	case run == r.present():
		r.Told = r.Told.plus(now.minus(before))
		return run
	default:
		r.Ahead.settle(u)
		return run
	}
}

// result takes in the figures of a result, and returns what its event carries: what the
// calls of the run have not stated.
func (r *claudeRuns) result(is consumption) *envelopes.Usage {
	ahead, told := &r.Ahead, r.Told
	if !r.Named { // its calls can only be in the transcript
		ahead, told = &r.Unseen, r.Alone
		r.Alone = r.Alone.minus(is)
	}
	told.Told = told.Reasoning
	now := told.raise(is)
	u := now.usageSince(told, "")
	if u != nil {
		*ahead = ahead.plus(now.minus(told))
	}
	return u
}

// settle takes from the figures of a call what a result has carried already.
func (a *consumption) settle(u *envelopes.Usage) {
	if *a == (consumption{}) {
		return
	}
	take := func(from, of *int64) {
		n := min(*from, *of)
		*from -= n
		*of -= n
	}
	take(&a.Input, &u.Input)
	take(&a.CacheRead, &u.CacheRead)
	take(&a.CacheWrite, &u.CacheWrite)
	take(&a.Output, &u.Output)
	take(&a.Output, &u.Reasoning)
	a.Reasoning = min(a.Reasoning, a.Output)
}
