package claude

import (
	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// runs attributes API calls of the main conversation to the runs of the SDK, so that each token is on one event
// (README.md, Tokens).
//
// A run ends with a result. The token counts of a result cover all calls of its run, while the messages of its stream
// have those of the start of each call. The transcript of the session has the same calls with their final counts, and
// the session may receive the transcript, too: before the stream, after it, or interleaved.
//
// So the event of a result carries what the run used beyond the counts of its calls. This is a credit: it reduces the
// counts of calls that state the same tokens later.
type runs struct {
	Ended int64 `json:"ended,omitzero"` // number of runs that have ended

	// Of the current run.
	Counted  core.Consumption `json:"counted,omitzero"` // sum of the counts of its calls
	Streamed bool             `json:"named,omitzero"`   // a stream has shown at least one of its calls
	LastText core.Fingerprint `json:"last,omitzero"`    // key of the assistant's last text

	Model lenient.Text `json:"model,omitzero"` // of its calls so far, if all have the same
	Mixed bool         `json:"mixed,omitzero"` // they have not

	// The part of Counted from messages that came whole, which the result may leave out of its usage.
	Whole core.Consumption `json:"whole,omitzero"`
	// What the last result with a modelUsage has counted there. It goes on over the runs of a process.
	Models modelTotals `json:"totals,omitzero"`

	// Sum of the counts of calls that are only in the transcript: no stream has shown them and no result has covered
	// them.
	Unattributed core.Consumption `json:"alone,omitzero"`

	StreamCredit core.Consumption `json:"ahead,omitzero"`  // for calls shown by a stream
	ResultCredit core.Consumption `json:"unseen,omitzero"` // for calls of runs with only a known result
}

// Runs are numbered from firstRun on. A call of the main conversation that is only in the transcript has the number
// 0.
const (
	outsideRuns = 1 // for calls first stated by a subagent or in copied history: no result covers them
	firstRun    = 2
)

// current returns the number of the current run.
func (r *runs) current() int64 { return r.Ended + firstRun }

// end ends the current run.
func (r *runs) end() {
	r.Ended, r.Counted, r.Streamed, r.LastText = min(r.Ended+1, lenient.MaxCount), core.Consumption{}, false, core.Fingerprint{}
	r.Model, r.Mixed, r.Whole = "", false, core.Consumption{}
}

// addCall adds a call of the main conversation, whose counts were before and are now; u is their difference, from
// which it deducts the credit of a result. It returns the run of the call, 0 for none: the current run, if the stream
// of the main conversation (streamed) shows a call for the first time.
func (r *runs) addCall(u *envelopes.Usage, before, now core.Consumption, streamed bool) int64 {
	switch run := before.Run; {
	case run == 0 && streamed:
		r.Unattributed = r.Unattributed.Minus(before)
		r.Counted, r.Streamed = r.Counted.Plus(now), true
		return r.current()
	case run == 0:
		deduct(&r.ResultCredit, u)
		r.Unattributed.Add(u)
		return 0
	case run == r.current():
		r.Counted = r.Counted.Plus(now.Minus(before))
		return run
	default:
		deduct(&r.StreamCredit, u)
		return run
	}
}

// noteModel notes the model of a call of the current run.
func (r *runs) noteModel(model lenient.Text) {
	switch {
	case model == "" || model == syntheticModel || len(model) > core.MaxName:
	case r.Model == "":
		r.Model = model
	case r.Model != model:
		r.Mixed = true
	}
}

// move attributes counts of telemetry to the current run, once a stream has shown their call.
func (r *runs) move(more core.Consumption) {
	r.Unattributed, r.Counted = r.Unattributed.Minus(more), r.Counted.Plus(more)
}

// addResult adds the counts of a result and returns the tokens for its event: those beyond the counts of its calls;
// nil for none. Claude Code adds a message to the usage when its stream ends, so a message that came whole, after a
// stream that failed, is in modelUsage alone. Old versions state why a message of a stream ended too: only exact sums
// show which it is.
func (r *runs) addResult(figures core.Consumption, models modelTotals) *envelopes.Usage {
	sum := models.sum()
	if all := figures.Plus(r.Whole); sameTokens(all, sum) || sameTokens(all, sum.Minus(r.Models.sum())) {
		figures = all
	}
	if !sameTokens(sum, core.Consumption{}) {
		r.Models = models
	}
	credit, counted := &r.StreamCredit, r.Counted
	if !r.Streamed { // its calls can only be in the transcript
		credit, counted = &r.ResultCredit, r.Unattributed
		r.Unattributed = r.Unattributed.Minus(figures)
	}
	counted.Reported = counted.Reasoning
	now := counted.Raise(figures)
	u := now.UsageSince(counted, "")
	if u != nil {
		*credit = credit.Plus(now.Minus(counted))
	}
	return u
}

// modelOfResult returns the model of the tokens that only a result states: that of its calls if all have the same, else
// the only one of its modelUsage, else the one that has its figures there, because others are helpers. Empty for none.
func (r *runs) modelOfResult(figures core.Consumption, models modelTotals) lenient.Text {
	switch {
	case r.Model != "" && !r.Mixed:
		return r.Model
	case len(models) == 1:
		return models[0].Model
	default:
		return models.modelWith(figures, r.Models)
	}
}

// sameTokens reports whether two counts are the same in all that a modelUsage states of tokens.
func sameTokens(a, b core.Consumption) bool {
	return a.Input == b.Input && a.CacheRead == b.CacheRead && a.CacheWrite == b.CacheWrite && a.Output == b.Output
}

// deduct reduces the counts of a call and a credit by what they have in common.
func deduct(credit *core.Consumption, u *envelopes.Usage) {
	if *credit == (core.Consumption{}) {
		return
	}
	reduce := func(credit, figure *int64) {
		n := min(*credit, *figure)
		*credit -= n
		*figure -= n
	}
	reduce(&credit.Input, &u.Input)
	reduce(&credit.CacheRead, &u.CacheRead)
	reduce(&credit.CacheWrite, &u.CacheWrite)
	reduce(&credit.CacheWrite1h, &u.CacheWrite1h)
	credit.CacheWrite1h = min(credit.CacheWrite1h, credit.CacheWrite)
	u.CacheWrite1h = min(u.CacheWrite1h, u.CacheWrite)
	reduce(&credit.WebSearches, &u.WebSearchRequests)
	reduce(&credit.Output, &u.Output)
	reduce(&credit.Output, &u.Reasoning)
	credit.Reasoning = min(credit.Reasoning, credit.Output)
}
