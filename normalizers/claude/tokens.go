package claude

import (
	"cmp"
	"encoding/binary"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// usage has the token counts of a message, or of a run in its result (README.md, Tokens).
type usage struct {
	counts
	Iterations lenient.List[lenient.Object[iteration]] `json:"iterations"`

	usageBeside
}

// iteration is a step of the API within one message, with its own counts.
type iteration struct {
	Type  lenient.Text `json:"type"`
	Model lenient.Text `json:"model"`
	counts
}

// counts are the token counts of a usage.
type counts struct {
	Input         lenient.Number                `json:"input_tokens"`
	Output        lenient.Number                `json:"output_tokens"`
	CacheRead     lenient.Number                `json:"cache_read_input_tokens"`
	CacheWrite    lenient.Number                `json:"cache_creation_input_tokens"`
	CacheCreation lenient.Object[cacheCreation] `json:"cache_creation"`
	OutputDetails lenient.Object[outputDetails] `json:"output_tokens_details"`
	ServerToolUse lenient.Object[serverToolUse] `json:"server_tool_use"`
}

type cacheCreation struct {
	FiveMinutes lenient.Number `json:"ephemeral_5m_input_tokens"`
	OneHour     lenient.Number `json:"ephemeral_1h_input_tokens"`
	Others      jsontext.Value `json:",embed"`
}

type serverToolUse struct {
	WebSearches lenient.Number  `json:"web_search_requests"`
	WebFetches  lenient.Present `json:"web_fetch_requests"`
	Others      jsontext.Value  `json:",embed"`
}

type outputDetails struct {
	Thinking lenient.Number `json:"thinking_tokens"`
	Others   jsontext.Value `json:",embed"`
}

// consumption returns the counts in the form kept by a session.
func (u *counts) consumption() core.Consumption {
	figures := core.Consumption{
		Input:      u.Input.Count(),
		CacheRead:  u.CacheRead.Count(),
		CacheWrite: u.CacheWrite.Count(),
		Output:     u.Output.Count(),
	}
	if !u.CacheWrite.OK {
		figures.CacheWrite = u.CacheCreation.Value.FiveMinutes.Count() + u.CacheCreation.Value.OneHour.Count()
	}
	figures.CacheWrite1h = min(u.CacheCreation.Value.OneHour.Count(), figures.CacheWrite)
	figures.WebSearches = u.ServerToolUse.Value.WebSearches.Count()
	figures.Reasoning = min(u.OutputDetails.Value.Thinking.Count(), figures.Output)
	return figures
}

// usageIncrement returns the tokens that the message of the record adds to the session; nil for none. Counts without
// the id of their API call count only with the first record.
func usageIncrement(c *mapper) *envelopes.Usage {
	id, request := c.callIDs()
	if !c.Message.Value.Usage.OK || id == "" && c.Duplicate {
		return nil
	}
	figures := c.Message.Value.Usage.Value.consumption()
	figures.Cost = core.CostOf(c.CostUSD)
	return c.increment(id, request, figures)
}

// callIDs returns the id of the message of the record, and that of its request; of a message without an id the request
// is its id.
func (r *wireRecord) callIDs() (id, request string) {
	id, request = string(r.Message.Value.ID), string(cmp.Or(r.RequestID, r.RequestIDSnake))
	if id == "" {
		return request, ""
	}
	return id, request
}

// advisorUsage emits what each call of an advisor within the message adds, as an event with the model of the advisor:
// the counts of the message are without it. isNew reports whether the record has an event of its own.
func advisorUsage(c *mapper, isNew bool) {
	id, request := c.callIDs()
	for i := range c.Message.Value.Usage.Value.Iterations {
		step := &c.Message.Value.Usage.Value.Iterations[i].Value
		if step.Type != "advisor_message" || id == "" && !isNew {
			continue
		}
		call := c.findCall(id, request)
		u := c.raise(call.step(c.Session, i), "", step.consumption())
		if u == nil {
			continue
		}
		d := core.SystemDraft(envelopes.Meta, "")
		d.Model = step.Model.Ptr()
		of := withSuffix(c.UUID, "#iter"+strconv.Itoa(i))
		if c.Session.HasEvent(string(of)) {
			of = c.usageID(of)
		}
		if c.put(of, d) {
			c.AddUsageAt(len(c.Events)-1, u, vendorFigures(u, step.OutputDetails.Value.Thinking.OK))
		}
	}
}

// step returns the i-th step of an API call. A result of a run states no step, so it belongs to no run.
func (a *apiCall) step(s *core.Session, i int) apiCall {
	if a.key == "" {
		return apiCall{before: core.Consumption{Run: outsideRuns}}
	}
	step := apiCall{key: a.key + "#iter" + strconv.Itoa(i), slot: core.FingerprintOf("step", string(a.slot[:]), strconv.Itoa(i))}
	step.before, step.known = s.APICalls.Get(step.slot)
	step.before.Run, step.stored = outsideRuns, step.known
	return step
}

// increment returns how far the counts of an API call exceed the highest ones seen in the session, in any thread; nil
// for nothing. Counts in copied history raise the highest ones and add nothing. Calls of the main conversation also
// count for their run, and what the result of the run already carried is deducted.
func (e *emitter) increment(id, request string, figures core.Consumption) *envelopes.Usage {
	return e.raise(e.findCall(id, request), request, figures)
}

// raise is [emitter.increment] for a call. An empty request adds none to the call.
func (e *emitter) raise(call apiCall, request string, figures core.Consumption) *envelopes.Usage {
	now := call.before.Raise(figures)
	if now.Request == 0 {
		now.Request = requestNumber(request)
	}
	if !call.known && (e.internal || e.copied) {
		now.Run = outsideRuns
	}
	u := now.UsageSince(call.before, call.key)
	if u == nil {
		u = new(envelopes.Usage)
	}
	if call.before.Run == e.st.Runs.current() {
		e.st.Runs.move(call.more)
	}
	if now.Run != outsideRuns && !e.copied {
		counted := e.st.Runs.Counted
		now.Run = e.st.Runs.addCall(u, call.before, now, e.streamed && !e.internal)
		if now.Run == e.st.Runs.current() {
			e.st.Runs.noteModel(e.model)
		}
		if e.whole {
			e.st.Runs.Whole = e.st.Runs.Whole.Plus(e.st.Runs.Counted.Minus(counted))
		}
	}
	if call.key != "" && (!call.stored || now != call.before) {
		e.Session.APICalls.Put(call.slot, now)
	}
	if e.copied || core.IsEmpty(u) {
		return nil
	}
	if call.key != "" {
		u.Prompt = now.Prompt()
	}
	return u
}

// apiCall is an API call as kept by the session.
type apiCall struct {
	key    string           // usage.key of its events
	slot   core.Fingerprint // where the session remembers it
	before core.Consumption // highest counts so far
	known  bool             // a record has stated it before
	stored bool             // the slot has it
	more   core.Consumption // what telemetry has stated above the log
}

// findCall returns the API call with an id. The same id with another request is another call. A record without a
// request belongs to the first call.
func (e *emitter) findCall(id, request string) apiCall {
	if id == "" {
		return apiCall{}
	}
	call := apiCall{key: cmp.Or(request, id), slot: core.FingerprintOf("call", id)}
	call.before, call.known = e.Session.APICalls.Get(call.slot)
	if first := call.before.Request; first != 0 && request != "" && first != requestNumber(request) {
		call.slot = core.FingerprintOf("call", id, request)
		call.before, call.known = e.Session.APICalls.Get(call.slot)
	}
	call.stored = call.known
	if exported, ok := e.Session.APICalls.Get(exportedSlot(call.key)); ok {
		if !call.known {
			call.before, call.known = exported, true
		} else {
			call.more = exported.Minus(call.before)
			call.before = call.before.Raise(exported)
		}
	}
	return call
}

// exportedSlot is where a session remembers what telemetry states of a request.
func exportedSlot(request string) core.Fingerprint { return core.FingerprintOf("exported", request) }

// findRequest returns the API call of a request that telemetry states: the one that the log states for the request, if
// it does already.
func (e *emitter) findRequest(request string) apiCall {
	call := apiCall{key: request, slot: exportedSlot(request)}
	call.before, call.known = e.Session.APICalls.Get(call.slot)
	slot, logged, ok := e.loggedCall(request)
	switch {
	case ok && call.known:
		call.slot, call.before = slot, logged.Raise(call.before)
	case ok:
		call.slot, call.before, call.known = slot, logged, true
	}
	call.stored = call.known
	return call
}

// loggedCall returns the call that the log has stated for a request.
func (e *emitter) loggedCall(request string) (core.Fingerprint, core.Consumption, bool) {
	slot := core.FingerprintOf("call", request) // of a message without an id
	if logged, ok := e.Session.APICalls.Get(slot); ok {
		return slot, logged, true
	}
	number := requestNumber(request)
	return e.Session.APICalls.Find(func(c core.Consumption) bool { return c.Request == number })
}

// requestNumber returns the number by which a session remembers a request; 0 for none.
func requestNumber(request string) int64 {
	if request == "" {
		return 0
	}
	var number [8]byte
	hash := core.FingerprintOf(request)
	copy(number[2:], hash[:])
	return int64(binary.BigEndian.Uint64(number[:]))
}

// vendorFigures returns a function that sets the vendor's own counts of an increment, with thinking tokens if the
// vendor states them.
func vendorFigures(u *envelopes.Usage, thinking bool) func(*envelopes.AgentEventV1) {
	return func(e *envelopes.AgentEventV1) {
		e.TokensInput = &u.Input
		e.TokensOutput = new(u.Output + u.Reasoning)
		e.TokensCached = &u.CacheRead
		if thinking {
			e.TokensThinking = &u.Reasoning
		}
	}
}
