package claude

import (
	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// The runs of the SDK (semantics.md section 3). A run ends with a result, whose figures
// are those of all its calls, while the lines of its stream have them from the start of
// each call. The same calls stand in the transcript of the session with their last
// figures, which may be shipped, too: before the stream, while it comes, or after it.
// Whatever the order, each token is on one event.

// runs is what a session remembers of its runs.
type runs struct {
	Ended int64            `json:"ended,omitzero"` // runs that have ended
	Told  core.Consumption `json:"told,omitzero"`  // of the present run: what its calls have used, as far as events carry it
	Named bool             `json:"named,omitzero"` // of the present run: a stream has named some of its calls
	Last  core.Fingerprint `json:"last,omitzero"`  // of the present run: the last thing that the assistant said

	Alone  core.Consumption `json:"alone,omitzero"`  // what calls have used that neither a stream has named nor a result carried
	Ahead  core.Consumption `json:"ahead,omitzero"`  // what results carried of calls of their streams before those calls state it
	Unseen core.Consumption `json:"unseen,omitzero"` // the same of runs that had no stream, but only a result
}

// present is the number of the run that is not over.
func (r *runs) present() int64 { return r.Ended + 1 }

// over ends the present run.
func (r *runs) over() {
	r.Ended, r.Told, r.Named, r.Last = min(r.Ended+1, lenient.MaxCount), core.Consumption{}, false, core.Fingerprint{}
}

// call takes in a call of the main conversation that has used now and had used before; u
// is the difference. A call that the stream names first, or after the transcript, is of
// the present run. It returns the run of the call, 0 for none, and takes from u what a
// result has carried.
func (r *runs) call(u *envelopes.Usage, before, now core.Consumption, stream bool) int64 {
	switch run := before.Run; {
	case run == 0 && stream:
		r.Alone = r.Alone.Minus(before)
		r.Told, r.Named = r.Told.Plus(now), true
		return r.present()
	case run == 0:
		settle(&r.Unseen, u)
		r.Alone.Add(u)
		return 0
	case run == r.present():
		r.Told = r.Told.Plus(now.Minus(before))
		return run
	default:
		settle(&r.Ahead, u)
		return run
	}
}

// result takes in the figures of a result, and returns what its event carries: what the
// calls of the run have not stated.
func (r *runs) result(is core.Consumption) *envelopes.Usage {
	ahead, told := &r.Ahead, r.Told
	if !r.Named { // its calls can only be in the transcript
		ahead, told = &r.Unseen, r.Alone
		r.Alone = r.Alone.Minus(is)
	}
	told.Told = told.Reasoning
	now := told.Raise(is)
	u := now.UsageSince(told, "")
	if u != nil {
		*ahead = ahead.Plus(now.Minus(told))
	}
	return u
}

// settle takes from the figures of a call what a result has carried already.
func settle(a *core.Consumption, u *envelopes.Usage) {
	if *a == (core.Consumption{}) {
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
