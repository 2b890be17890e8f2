package copilot

import (
	"cmp"
	"maps"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// Copilot states tokens up to three times: the output with the message, everything about an API call in a record of
// its own, and totals at a clean exit. Each place bills only what exceeds the tokens already on events, of the
// session or since its last run began (README.md, Tokens).

// figures has the token counts of an API call, or of a model: input includes cache reads and writes, output includes
// reasoning.
type figures struct {
	Model      lenient.Text               `json:"model"`
	Input      lenient.Number             `json:"inputTokens"`
	Output     lenient.Number             `json:"outputTokens"`
	CacheRead  lenient.Number             `json:"cacheReadTokens"`
	CacheWrite lenient.Number             `json:"cacheWriteTokens"`
	Reasoning  lenient.Number             `json:"reasoningTokens"`
	APICallID  lenient.Text               `json:"apiCallId"`
	Accounting lenient.Object[accounting] `json:"accounting"`
	Bill       lenient.Object[bill]       `json:"copilotUsage"`

	// Names that compactions of 2025 have.
	OldInput     lenient.Number `json:"input"`
	OldOutput    lenient.Number `json:"output"`
	OldCacheRead lenient.Number `json:"cachedInput"`

	Others jsontext.Value `json:",embed"`
}

type accounting struct {
	UsageID lenient.Text `json:"usageId"`
}

// bill has the counts by which an API call is billed.
type bill struct {
	Details lenient.List[lenient.Object[billedPart]] `json:"tokenDetails"`
}

type billedPart struct {
	Type  lenient.Text   `json:"tokenType"`
	Count lenient.Number `json:"tokenCount"`
}

// cacheWrite returns the cache write of the call. That of a compaction is 0 in its own count, and only in its bill.
func (f *figures) cacheWrite() int64 {
	written := f.CacheWrite.Count()
	for _, p := range f.Bill.Value.Details {
		if written == 0 && p.Value.Type == "cache_write" {
			written = p.Value.Count.Count()
		}
	}
	return written
}

// metrics is what the session has used of one model.
type metrics struct {
	Usage lenient.Object[figures] `json:"usage"`

	metricsBeside
}

// consumption converts the counts to parts that do not overlap.
func (f *figures) consumption() core.Consumption {
	input, output := f.Input.Count(), f.Output.Count()
	read := min(f.CacheRead.Count(), input)
	written := min(f.cacheWrite(), input-read)
	return core.Consumption{
		Input:      input - read - written,
		CacheRead:  read,
		CacheWrite: written,
		Output:     output,
		Reasoning:  min(f.Reasoning.Count(), output),
	}
}

// callKey identifies an API call in the table of API calls.
func callKey(call string) core.Fingerprint { return core.FingerprintOf("api", call) }

// billMessage bills the output tokens stated in a message, on the event at this index, else on the first of the
// record. It bills nothing once the session has records of API calls.
func billMessage(m *mapper, event int) {
	st := m.st
	call := core.BoundID(string(cmp.Or(m.data.APICallID, m.data.MessageID, m.ID)))
	key := callKey(call)
	if st.Recorded {
		key = core.FingerprintOf("said", call) // the call's own key is for what its records state
	}
	stated, known := m.Session.APICalls.Get(key)
	output := m.data.OutputTokens.Count()
	more := core.Consumption{Output: output - stated.Output}
	if more.Output <= 0 || m.First < 0 && m.Duplicate && !known {
		return // nothing new, or a repeated message whose call is forgotten
	}
	if event < 0 {
		event = m.First
	}
	if event < 0 && m.Session.HasEvent(string(core.PartID(m.ID, "usage"))) {
		return // a repeated message
	}
	if call != "" {
		m.Session.APICalls.Put(key, core.Consumption{Output: output})
	}
	st.Said = min(st.Said+more.Output, lenient.MaxExact)
	if st.Recorded {
		return
	}
	st.Output = output
	st.add(m.model(), more)
	before := st.Sum
	st.Sum = before.Plus(m.logged(string(m.data.APICallID), stated, more))
	billed := st.Sum.Output - before.Output
	if billed == 0 {
		return // the telemetry has billed it
	}
	if event < 0 {
		if event = m.putUsage(); event < 0 {
			return
		}
	}
	e := &m.Events[event].Event
	e.Usage = &envelopes.Usage{Output: billed, Key: call}
	e.TokensOutput, e.TokensTotal = &billed, new(billed)
}

// putUsage emits an event for the tokens of a message without another event. It returns its index; -1 if the session
// has emitted it before.
func (e *emitter) putUsage() int {
	d := core.SystemDraft(envelopes.Meta, "")
	d.Identity, d.Model = string(e.Data), e.model()
	if !e.put(core.PartID(e.ID, "usage"), d) {
		return -1
	}
	return e.First
}

// usageRecord emits the record of an API call, with the tokens that exceed those of the call's message.
func usageRecord(m *mapper, f *figures) {
	noteUsage(m, f)
	d := core.SystemDraft(envelopes.Meta, "")
	d.Identity, d.Model = string(m.Data), m.model()
	if isModel(f.Model) {
		d.Model = f.Model.Ptr()
	}
	if !m.put(m.ID, d) {
		return
	}
	key := core.BoundID(string(cmp.Or(f.APICallID, m.data.APICallID, f.Accounting.Value.UsageID)))
	now := f.consumption()
	billed := m.st.billedOf(key, now, &m.Session.APICalls)
	m.st.Recorded = true
	if key != "" {
		m.Session.APICalls.Put(callKey(key), billed.Raise(now))
	}
	m.bill(m.First, billed, now.Minus(billed), d.Model, key, f)
}

// billCompaction bills the API call that compacted the conversation. The accounts lack it, because the totals of a
// shutdown do, too. It bills nothing once the session has records of API calls.
func billCompaction(m *mapper, f *figures) {
	if !f.Input.OK {
		f.Input, f.Output, f.CacheRead = f.OldInput, f.OldOutput, f.OldCacheRead
	}
	noteUsage(m, f)
	used := f.consumption()
	if m.First < 0 || m.st.Recorded || used == (core.Consumption{}) {
		return
	}
	model := m.model()
	if isModel(f.Model) {
		model = f.Model.Ptr()
	}
	m.Events[m.First].Event.Model = model
	m.charge(m.First, m.logged("", core.Consumption{}, used), "", f)
}

// shutdown emits the end of a run, with the tokens by which its totals exceed those on events: one event per model,
// the first of which is the end.
func shutdown(m *mapper) {
	m.putFacts(envelopes.SessionSummary, m.data.accounts())
	if m.First < 0 {
		return
	}
	settle(m)
	if reason := m.data.ErrorReason; m.data.ShutdownType == "error" || reason != "" {
		m.put(core.PartID(m.ID, "error"), m.Session.ErrorDraft(string(cmp.Or(m.data.ShutdownType, "error")), string(reason)))
	}
}

// settle bills the totals of the models. Together they bill what their sum exceeds the account by, because an earlier
// event may have named no model, or a model by another name.
func settle(m *mapper) {
	used := m.data.Metrics.Value
	noteModels(m, used)
	var total core.Consumption
	for _, u := range used {
		total = total.Plus(u.Value.Usage.Value.consumption())
	}
	account := m.st.totalsOf(total)
	left := total.Minus(account.Billed)
	event := m.First
	for _, name := range slices.Sorted(maps.Keys(used)) {
		f := used[name].Value.Usage.Value
		more := lower(f.consumption().Minus(account.of(name)), left)
		if more == (core.Consumption{}) {
			continue
		}
		if event < 0 {
			d := core.SystemDraft(envelopes.Meta, "")
			d.Identity = string(m.Data)
			if !m.put(core.PartID(m.ID, "usage:"+name), d) {
				continue
			}
			event = len(m.Events) - 1
		}
		model := lenient.Text(name).Ptr()
		m.Events[event].Event.Model = model
		m.bill(event, core.Consumption{}, more, model, "", &f)
		left, event = left.Minus(more), -1
	}
}

// lower returns the lower value of a and b for each field.
func lower(a, b core.Consumption) core.Consumption {
	return core.Consumption{
		Input:      min(a.Input, b.Input),
		CacheRead:  min(a.CacheRead, b.CacheRead),
		CacheWrite: min(a.CacheWrite, b.CacheWrite),
		Output:     min(a.Output, b.Output),
		Reasoning:  min(a.Reasoning, b.Reasoning),
	}
}

// bill notes what the log states beyond what it has stated of a call, and puts what the telemetry has not billed of it
// on an event.
func (e *emitter) bill(event int, before, more core.Consumption, model *string, key string, stated *figures) {
	e.st.add(model, more)
	e.charge(event, e.logged(key, before, more), key, stated)
}

// charge raises the sum of the events, and puts its growth on an event. Counts that are not stated are unknown, not
// zero. Reasoning counts in tokens_thinking whatever event carried its output; in usage only up to the output of the
// event, and the rest in none, because the next event may be of another call.
func (e *emitter) charge(event int, more core.Consumption, key string, stated *figures) {
	before := e.st.Sum
	e.st.Sum = before.Plus(more)
	grown := e.st.Sum.Minus(before)
	thinking := grown.Reasoning
	u := grown.UsageSince(core.Consumption{}, key)
	if u == nil {
		if thinking == 0 {
			return
		}
		u = &envelopes.Usage{Key: core.BoundID(key)}
	}
	if key != "" {
		u.Prompt = stated.consumption().Prompt()
	}
	e.AddUsageAt(event, u, func(ev *envelopes.AgentEventV1) {
		ev.TokensInput = new(u.Input + u.CacheRead + u.CacheWrite)
		ev.TokensOutput = new(u.Output + u.Reasoning)
		if stated.CacheRead.OK {
			ev.TokensCached = &u.CacheRead
		}
		if stated.Reasoning.OK || thinking > 0 {
			ev.TokensThinking = &thinking
		}
	})
}

// maxModels is how many models have sums of their own.
const maxModels = 16

// account has the tokens that the log has stated since some record: their sum, and the sum of each model.
type account struct {
	Billed core.Consumption       `json:"sum,omitzero"`
	Models core.Window[modelBill] `json:"of,omitzero"`
}

// modelBill is the sum of the events of one model.
type modelBill struct {
	Model  string           `json:"m"`
	Billed core.Consumption `json:"b"`
}

// of returns the sum of a model.
func (a *account) of(model string) core.Consumption {
	for _, b := range a.Models {
		if b.Model == core.Cut(model, core.MaxName) {
			return b.Billed
		}
	}
	return core.Consumption{}
}

// add adds to the sum, and to that of the model if it is known.
func (a *account) add(model *string, more core.Consumption) {
	a.Billed = a.Billed.Plus(more)
	if model == nil {
		return
	}
	name := core.Cut(*model, core.MaxName)
	sum := a.of(name).Plus(more)
	others := a.Models.Without(func(b modelBill) bool { return b.Model == name })
	a.Models = others.Push(modelBill{name, sum}, maxModels, nil)
}

// accounts has the tokens that the log has stated, and what each of its three places has.
type accounts struct {
	All      account `json:"all,omitzero"`  // of the session
	Run      account `json:"run,omitzero"`  // since its last start or resumption
	Said     int64   `json:"said,omitzero"` // output tokens stated in messages
	Output   int64   `json:"last,omitzero"` // output tokens of the last billed message
	Recorded bool    `json:"rec,omitzero"`  // API calls have records of their own

	Sum     core.Consumption `json:"out,omitzero"`  // on events, whichever channel stated it
	Balance core.Balance     `json:"sent,omitzero"` // of the telemetry and of what the log states of no known call
}

// add adds to the accounts of the session and of its run.
func (a *accounts) add(model *string, more core.Consumption) {
	a.All.add(model, more)
	a.Run.add(model, more)
}

// totalsOf returns the account that the totals of a shutdown belong to: that of the session, or that of the ending
// run if their output is less than that of all messages.
func (a *accounts) totalsOf(total core.Consumption) *account {
	if total.Output < a.Said {
		return &a.Run
	}
	return &a.All
}

// billedOf returns the tokens of an API call already on events. A call without the id of its message is found by its
// output: that of the message before the first record.
func (a *accounts) billedOf(key string, now core.Consumption, calls *core.Memory[core.Consumption]) core.Consumption {
	if billed, ok := calls.Get(callKey(key)); ok && key != "" {
		return billed
	}
	if !a.Recorded && a.Output == now.Output {
		return core.Consumption{Output: now.Output}
	}
	return core.Consumption{}
}
