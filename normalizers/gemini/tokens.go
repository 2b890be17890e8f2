package gemini

import (
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

type wireModel struct {
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
	t := &tokens{Input: s.Input, Output: s.Output, Cached: s.Cached}
	if s.Total.OK {
		t.Thoughts = lenient.Number{Value: max(0, s.Total.Value-s.Input.Value-s.Output.Value), OK: true}
		return t
	}
	add := func(to *lenient.Number, v lenient.Number) {
		to.Value, to.OK = to.Value+v.Value, to.OK || v.OK
	}
	for _, m := range s.Models.Value {
		v := &m.Value.Tokens.Value
		add(&t.Input, v.Prompt)
		add(&t.Output, v.Candidates)
		add(&t.Cached, v.Cached)
		add(&t.Thoughts, v.Thoughts)
		add(&t.Tool, v.Tool)
	}
	return t
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

// increment returns what token counts add to the highest ones seen of an API call, and remembers them; nil for
// nothing. Cache reads are part of the input, so usage cannot have more of them than of the input: the rest follows
// with a later increment.
func (e *emitter) increment(apiCall core.Fingerprint, key string, t *tokens) *increment {
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
	if !e.copied && !i.leave(e.st.Balance.Logged) {
		e.repeated = true
		return nil
	}
	return i
}

// leave reduces the increment to what a balance leaves of it; false for nothing.
func (i *increment) leave(balance func([5]int64) [5]int64) bool {
	u := i.usage
	all := [5]int64{i.input - u.CacheRead, u.CacheRead, u.Output, u.Reasoning, i.tool}
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

// beginRunUsage resets the counts of a run.
func beginRunUsage(m *mapper) { m.Session.APICalls.Put(theRun, core.Consumption{}) }

// emitRunUsage adds the tokens of a run to the first event of the record, or emits an event for them if a document
// has taken the id of that.
func emitRunUsage(m *mapper) {
	i := m.increment(theRun, "", m.Stats.Value.tokens())
	if i == nil {
		return
	}
	if m.First < 0 {
		m.putSystem(lenient.Text("@"+strconv.FormatUint(m.Session.Records, 10)+"#usage"), envelopes.Meta, "")
	}
	model := runModel(m)
	m.AddUsage(i.usage, func(e *envelopes.AgentEventV1) {
		i.set(e)
		if e.Model == nil {
			e.Model = model.Ptr()
		}
	})
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
