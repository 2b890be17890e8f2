package gemini

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// tokens has the token counts of a message (README.md, Tokens).
type tokens struct {
	Input    lenient.Number `json:"input"` // including cache reads
	Output   lenient.Number `json:"output"`
	Cached   lenient.Number `json:"cached"`
	Thoughts lenient.Number `json:"thoughts"`
	Tool     lenient.Number `json:"tool"`

	tokensBeside
}

// wireStats has the token counts of a run: in total, where thoughts are the rest of the total, or by model.
type wireStats struct {
	Total  lenient.Number                                       `json:"total_tokens"`
	Input  lenient.Number                                       `json:"input_tokens"`
	Output lenient.Number                                       `json:"output_tokens"`
	Cached lenient.Number                                       `json:"cached"`
	Models lenient.Object[map[string]lenient.Object[wireModel]] `json:"models"`

	statsBeside
}

// wireModel has the token counts of a model under the names of the stats, or in an object.
type wireModel struct {
	Total  lenient.Number                  `json:"total_tokens"`
	Input  lenient.Number                  `json:"input_tokens"`
	Output lenient.Number                  `json:"output_tokens"`
	Cached lenient.Number                  `json:"cached"`
	Tokens lenient.Object[wireModelTokens] `json:"tokens"`
}

type wireModelTokens struct {
	Prompt     lenient.Number `json:"prompt"`
	Candidates lenient.Number `json:"candidates"`
	Cached     lenient.Number `json:"cached"`
	Thoughts   lenient.Number `json:"thoughts"`
	Tool       lenient.Number `json:"tool"`

	modelTokensBeside
}

// tokens returns the counts under the names of a message.
func (s *wireStats) tokens() *tokens {
	if s.Total.OK {
		return withRest(s.Total, tokens{Input: s.Input, Output: s.Output, Cached: s.Cached})
	}
	sum := new(tokens)
	for _, m := range s.Models.Value {
		sum.add(m.Value.tokens())
	}
	return sum
}

// tokens returns the counts of a model under the names of a message.
func (m *wireModel) tokens() *tokens {
	if m.Total.OK {
		return withRest(m.Total, tokens{Input: m.Input, Output: m.Output, Cached: m.Cached})
	}
	v := &m.Tokens.Value
	return &tokens{Input: v.Prompt, Output: v.Candidates, Cached: v.Cached, Thoughts: v.Thoughts, Tool: v.Tool}
}

// withRest returns counts whose thoughts are the rest of the total.
func withRest(total lenient.Number, t tokens) *tokens {
	t.Thoughts = lenient.Number{Value: max(0, total.Value-t.Input.Value-t.Output.Value), OK: true}
	return &t
}

// add adds counts.
func (t *tokens) add(more *tokens) {
	add := func(to *lenient.Number, v lenient.Number) {
		to.Value, to.OK = to.Value+v.Value, to.OK || v.OK
	}
	add(&t.Input, more.Input)
	add(&t.Output, more.Output)
	add(&t.Cached, more.Cached)
	add(&t.Thoughts, more.Thoughts)
	add(&t.Tool, more.Tool)
}

// increment is what token counts add to those that the session has seen of their API call.
type increment struct {
	usage               *envelopes.Usage
	input, cached, tool int64 // in the vendor's own counts
	stated              *tokens
}

// set writes the vendor's own counts.
func (i *increment) set(e *envelopes.AgentEventV1) {
	e.TokensInput, e.TokensOutput = &i.input, &i.usage.Output
	if i.stated.Cached.OK {
		e.TokensCached = &i.cached
	}
	if i.stated.Thoughts.OK {
		e.TokensThinking = &i.usage.Reasoning
	}
	if i.stated.Tool.OK {
		e.TokensTool = &i.tool
	}
}

// increment returns what token counts add to the highest ones seen of an API call, and to what telemetry has stated;
// nil for nothing.
func (e *emitter) increment(apiCall core.Fingerprint, key string, t *tokens) *increment {
	i := e.raise(apiCall, key, t)
	if i == nil || !e.balance(i) {
		return nil
	}
	return i
}

// raise returns what token counts add to the highest ones seen of an API call, and remembers them; nil for nothing.
// Cache reads are part of the input, so usage cannot have more of them than of the input: the rest follows with a later
// increment.
func (e *emitter) raise(apiCall core.Fingerprint, key string, t *tokens) *increment {
	before, _ := e.Session.APICalls.Get(apiCall)
	now := before.Raise(core.Consumption{
		Input:     t.Input.Count(),
		CacheRead: t.Cached.Count(),
		Output:    t.Output.Count(),
		Reasoning: t.Thoughts.Count(),
		Tool:      t.Tool.Count(),
	})
	i := &increment{
		input:  now.Input - before.Input,
		cached: now.CacheRead - before.CacheRead,
		tool:   now.Tool - before.Tool,
		stated: t,
	}
	fromCache := min(now.CacheRead-before.Reported, i.input)
	now.Reported = before.Reported + fromCache
	i.usage = &envelopes.Usage{
		Input:     i.input - fromCache + i.tool,
		CacheRead: fromCache,
		Output:    now.Output - before.Output,
		Reasoning: now.Reasoning - before.Reasoning,
		Key:       key,
	}
	if i.usage.Total() == 0 && i.cached == 0 {
		return nil
	}
	if key != "" {
		i.usage.Prompt = now.Input + now.Tool
	}
	e.Session.APICalls.Put(apiCall, now)
	return i
}

// balance reduces an increment to what telemetry has not stated; false for nothing.
func (e *emitter) balance(i *increment) bool {
	if e.copied || i.leave(e.st.Balance.Logged) {
		return true
	}
	e.repeated = true
	return false
}

// parts returns the counts of the increment that do not overlap.
func (i *increment) parts() [5]int64 {
	u := i.usage
	return [5]int64{i.input - u.CacheRead, u.CacheRead, u.Output, u.Reasoning, i.tool}
}

// leave reduces the increment to what a balance leaves of it; false for nothing.
func (i *increment) leave(balance func([5]int64) [5]int64) bool {
	u, all := i.usage, i.parts()
	left := balance(all)
	if left == all {
		return true
	}
	i.input, i.cached, i.tool = left[0]+left[1], left[1], left[4]
	u.Input, u.CacheRead, u.Output, u.Reasoning = left[0]+left[4], left[1], left[2], left[3]
	return u.Total() > 0
}

// emitMessageUsage adds the tokens stated in a message to its first event, or emits an event for them if the message
// has none. Copied messages are billed elsewhere.
func emitMessageUsage(m *mapper, w *wireMessage) {
	if !w.Tokens.OK || w.ID == "" && m.Duplicate {
		return
	}
	apiCall := messageKey(w.ID)
	if w.ID == "" {
		apiCall = core.FingerprintOf("record", strconv.FormatUint(m.Session.Records, 10), strconv.Itoa(m.number))
	}
	i := m.increment(apiCall, core.BoundID(string(w.ID)), &w.Tokens.Value)
	if i == nil || m.copied {
		return
	}
	if m.First < 0 {
		d := core.SystemDraft(envelopes.Meta, "")
		d.Model = w.Model.Ptr()
		m.put(m.usageID(w.ID), d)
	}
	m.AddUsage(i.usage, i.set)
}

// usageID returns the id of an event for token counts that came late. Counts that grow again do not replace earlier
// ones but add to them, so they get an id of their own.
func (e *emitter) usageID(message lenient.Text) lenient.Text {
	if message == "" {
		return ""
	}
	id := message + "#usage"
	for n := 2; e.Session.HasEvent(string(id)); n++ {
		id = message + lenient.Text("#usage"+strconv.Itoa(n))
	}
	return id
}

// theRun stands for a run as a whole in the table of API calls.
var theRun = core.FingerprintOf("run")

// beginRunUsage resets the counts of a run, and numbers it.
func beginRunUsage(m *mapper) {
	m.Session.APICalls.Put(theRun, core.Consumption{Run: int64(m.Session.Records)})
}

// emitRunUsage emits the tokens of a run: an event for each model if the run states several, else on the first event
// of the record.
func emitRunUsage(m *mapper) {
	i, models := m.raise(theRun, "", m.Stats.Value.tokens()), modelIncrements(m)
	switch {
	case i == nil:
	case len(m.Stats.Value.Models.Value) > 1 && isSum(i, models):
		for n := range models {
			emitModelUsage(m, n, &models[n])
		}
	case m.balance(i):
		addRunUsage(m, i)
	}
}

// addRunUsage adds the tokens of a run to the first event of the record, or emits an event for them if a document has
// taken the id of that.
func addRunUsage(m *mapper, i *increment) {
	if m.First < 0 {
		m.putSystem(runUsageID(m, ""), envelopes.Meta, "")
	}
	model := runModel(m)
	m.AddUsage(i.usage, func(e *envelopes.AgentEventV1) {
		i.set(e)
		if e.Model == nil {
			e.Model = model.Ptr()
		}
	})
}

// runUsageID returns the id of an event with tokens of a run.
func runUsageID(m *mapper, suffix string) lenient.Text {
	return lenient.Text("@" + strconv.FormatUint(m.Session.Records, 10) + "#usage" + suffix)
}

// modelIncrement is what a model adds to the tokens of a run; nil for nothing.
type modelIncrement struct {
	*increment
	model string
}

// modelIncrements returns the increments of the models of a run by their names, and remembers their counts.
func modelIncrements(m *mapper) []modelIncrement {
	run, _ := m.Session.APICalls.Get(theRun)
	models := m.Stats.Value.Models.Value
	var all []modelIncrement
	for _, name := range slices.Sorted(maps.Keys(models)) {
		counts := models[name]
		slot := core.FingerprintOf("run", strconv.FormatInt(run.Run, 10), name)
		all = append(all, modelIncrement{m.raise(slot, "", counts.Value.tokens()), name})
	}
	return all
}

// isSum reports whether the increment of a run is the sum of those of its models.
func isSum(run *increment, models []modelIncrement) bool {
	parts, cached := run.parts(), run.cached
	for _, of := range models {
		if of.increment == nil {
			continue
		}
		cached -= of.cached
		for n, part := range of.parts() {
			parts[n] -= part
		}
	}
	return parts == [5]int64{} && cached == 0
}

// emitModelUsage emits the tokens of the n-th model of a run.
func emitModelUsage(m *mapper, n int, of *modelIncrement) {
	if of.increment == nil || !m.balance(of.increment) {
		return
	}
	d := core.SystemDraft(envelopes.Meta, "")
	d.Model = lenient.Text(core.Cut(of.model, core.MaxName)).Ptr()
	if m.put(runUsageID(m, strconv.Itoa(n+1)), d) {
		m.AddUsageAt(len(m.Events)-1, of.usage, of.set)
	}
}

// runModel returns the model of the tokens of a run: the only one of its figures by model, or the one with which the
// run began where there are no such figures. Empty for several, or if the run began with the name of a choice of
// models.
func runModel(m *mapper) lenient.Text {
	models := m.Stats.Value.Models.Value
	if len(models) > 1 {
		return ""
	}
	for name := range models {
		return lenient.Text(core.Cut(name, core.MaxName))
	}
	switch model := m.Session.Model; {
	case strings.HasPrefix(model, "auto"), model == "pro", model == "flash", model == "flash-lite":
		return ""
	default:
		return lenient.Text(model)
	}
}
