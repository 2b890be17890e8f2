package opencode

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// tokens is what one call of a model used, as a message states it and its step-finish states
// it again. Input has no part that was read from a cache or written to one.
type tokens struct {
	Total     lenient.Number        `json:"total"`
	Input     lenient.Number        `json:"input"`
	Output    lenient.Number        `json:"output"`
	Reasoning lenient.Number        `json:"reasoning"`
	Cache     lenient.Object[cache] `json:"cache"`
	Others    jsontext.Value        `json:",embed"`

	cost lenient.Number // in dollars, stated beside the tokens
}

type cache struct {
	Read   lenient.Number `json:"read"`
	Write  lenient.Number `json:"write"`
	Others jsontext.Value `json:",embed"`
}

// includesReasoning reports whether output includes reasoning, as it did before 1.4. The
// total of the message decides; where there is none, the version of the session, and where
// that is unknown too, that the total is as old as 1.2 (README.md, Tokens).
func (t *tokens) includesReasoning(version string) bool {
	if t.Total.OK {
		without := t.Input.Count() + t.Output.Count() + t.Cache.Value.Read.Count() + t.Cache.Value.Write.Count()
		switch t.Total.Count() {
		case without + t.Reasoning.Count():
			return false
		case without:
			return true
		}
	}
	if major, minor, ok := parseVersion(version); ok {
		return major < 1 || major == 1 && minor < 4
	}
	return !t.Total.OK
}

// parseVersion returns the first two numbers of a version.
func parseVersion(v string) (major, minor int, ok bool) {
	first, rest, _ := strings.Cut(v, ".")
	second, _, _ := strings.Cut(rest, ".")
	major, err := strconv.Atoi(first)
	if err != nil {
		return 0, 0, false
	}
	minor, err = strconv.Atoi(second)
	return major, minor, err == nil
}

// bill puts what a message adds to the bill on an event, which carrier finds or makes. The
// message stands for its call: the figures come again with each update of the message, and
// only what they grow is new. stepped is what its steps used together. What was copied from another session is billed
// there.
func (e *emitter) bill(m message, t *tokens, stepped core.Consumption, carrier func() int) {
	if m.Copied {
		return
	}
	includes := t.includesReasoning(e.st.Version)
	now := t.consumption(e.st.Version)
	var before core.Consumption
	slot := core.FingerprintOf("message", m.key)
	if m.key != "" {
		before, _ = e.Session.APICalls.Get(slot)
		now = before.Raise(now)
	}
	now = now.Raise(stepped)
	u := now.UsageSince(before, m.key)
	if u == nil {
		return
	}
	i := carrier()
	if i < 0 {
		return
	}
	if m.key != "" {
		e.Session.APICalls.Put(slot, now)
	}
	if m.key != "" {
		u.Prompt = now.Prompt()
	}
	e.AddUsageAt(i, u, func(ev *envelopes.AgentEventV1) {
		ev.TokensInput = new(u.Input)
		ev.TokensOutput = new(u.Output)
		if includes {
			ev.TokensOutput = new(u.Output + u.Reasoning)
		}
		ev.TokensCached = new(u.CacheRead)
		ev.TokensThinking = new(u.Reasoning)
	})
}

// consumption returns the figures in parts that do not overlap, but for the reasoning.
func (t *tokens) consumption(version string) core.Consumption {
	c := core.Consumption{
		Input:      t.Input.Count(),
		CacheRead:  t.Cache.Value.Read.Count(),
		CacheWrite: t.Cache.Value.Write.Count(),
		Output:     t.Output.Count(),
		Reasoning:  t.Reasoning.Count(),
		Cost:       core.CostOf(t.cost),
	}
	if !t.includesReasoning(version) {
		c.Output += c.Reasoning
	}
	return c
}

// steps is what the steps of a message used together, of the last message that had one by itself. A message of 2025 may
// have several, and then states the tokens of the last one alone.
type steps struct {
	Message core.Fingerprint `json:"m,omitzero"`
	Used    core.Consumption `json:"u,omitzero"`
}

// stepsOf returns what the steps of a message used together, as far as they are known.
func (s *State) stepsOf(m message) core.Consumption {
	if s.Steps.Message != m.ID {
		return core.Consumption{}
	}
	return s.Steps.Used
}

// addStep adds what a step used to that of its message, unless it did before.
func (e *emitter) addStep(m message, p *part) {
	id := vendorID(p.ID)
	key := core.FingerprintOf("step", id)
	if _, known := e.Session.IDs.Get(key); known || m.key == "" || id == "" {
		return
	}
	e.Session.IDs.Put(key, core.Fingerprint{})
	e.st.Steps = steps{m.ID, e.st.stepsOf(m).Plus(p.used().consumption(e.st.Version))}
}

// used returns the tokens and the cost of a step.
func (p *part) used() *tokens {
	p.Tokens.Value.cost = p.Cost
	return &p.Tokens.Value
}

// usage emits an event that carries nothing but what a message used.
func (e *emitter) usage(m message, t *tokens) bool {
	id := m.key
	if id != "" {
		id += "#usage"
	}
	d := core.SystemDraft(envelopes.Meta, "")
	d.Identity = t.identity()
	return e.put(id, d)
}

// stepFinish emits the end of a step. It carries the tokens of the message, whose own record
// comes later or, in a run, not at all.
func stepFinish(c *mapper, m message, p *part, id string) {
	t := p.used()
	c.noteTokens(t)
	c.addStep(m, p)
	if c.endStep(m, t, id) {
		c.bill(m, t, c.st.stepsOf(m), func() int { return len(c.Events) - 1 })
	}
}

// endStep emits the end of a step.
func (e *emitter) endStep(m message, t *tokens, id string) bool {
	d := core.SystemDraft(envelopes.Meta, "")
	d.Identity = t.identity()
	return e.say(m, id, d)
}

// stepRow maps the end of a step in the database. The message, which was read before, states its tokens if it is the
// only one.
func stepRow(c *mapper, m message, p *part, id string) {
	c.skip = core.SkipMirror
	if m.key == "" || m.Created == "" {
		return // the message is not known
	}
	t := p.used()
	c.addStep(m, p)
	c.bill(m, t, c.st.stepsOf(m), func() int {
		if !c.endStep(m, t, id) {
			return -1
		}
		return len(c.Events) - 1
	})
}

// identity distinguishes the figures from others of the same message.
func (t *tokens) identity() string {
	return fmt.Sprint(t.Input.Count(), t.Cache.Value.Read.Count(), t.Cache.Value.Write.Count(), t.Output.Count(), t.Reasoning.Count(), core.CostOf(t.cost))
}
