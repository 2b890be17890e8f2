package copilot

import (
	"tributary/normalizers/core"
)

// The log and the telemetry state the tokens of a call under the same id, in any order: what one has billed of a call
// the other does not bill again. Where a statement names no call, as messages of old versions and the totals of a run
// do, the session bills of each part the higher of the two sums ([core.Balance]).

// maxJoinedID is how long the id of a call may be that joins the channels. GitHub's service encrypts longer ones, and
// nobody has seen that it does so twice in the same way.
const maxJoinedID = 128

// sentKey identifies an API call of the telemetry in the table of API calls.
func sentKey(call string) core.Fingerprint { return core.FingerprintOf("sent", call) }

// logged notes what the log states of a call beyond what it had stated before, and returns what the telemetry has not
// billed of it.
func (e *emitter) logged(call string, before, more core.Consumption) core.Consumption {
	if call == "" || len(call) > maxJoinedID {
		return consumptionOf(e.st.Balance.Logged(partsOf(more)))
	}
	sent, ok := e.Session.APICalls.Get(sentKey(call))
	if !ok {
		return more
	}
	covered := lower(more, sent.Minus(before))
	return more.Minus(covered).Plus(consumptionOf(e.st.Balance.Logged(partsOf(covered))))
}

// exported notes what the telemetry states of a call, and returns what the log has not billed of it.
func (e *emitter) exported(call string, now core.Consumption) core.Consumption {
	calls := &e.Session.APICalls
	before, _ := calls.Get(sentKey(call))
	now = before.Raise(now)
	calls.Put(sentKey(call), now)
	var logged core.Consumption
	if len(call) <= maxJoinedID {
		logged, _ = calls.Get(callKey(call))
	}
	ahead, more := partsOf(before.Minus(logged)), partsOf(now.Minus(logged))
	for i := range more {
		more[i] -= ahead[i]
	}
	return consumptionOf(e.st.Balance.Exported(more))
}

// partsOf returns the parts that a [core.Balance] compares. The reasoning is a part of the output, and in neither
// channel more than that.
func partsOf(c core.Consumption) [5]int64 {
	return [5]int64{c.Input, c.CacheRead, c.CacheWrite, c.Output, c.Reasoning}
}

func consumptionOf(parts [5]int64) core.Consumption {
	return core.Consumption{Input: parts[0], CacheRead: parts[1], CacheWrite: parts[2], Output: parts[3], Reasoning: parts[4]}
}
