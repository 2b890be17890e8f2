package copilot

import (
	"slices"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

const (
	maxDecided = 16 // decisions of which the call is not known yet
	maxRan     = 32 // runs of tools
)

// permissions are the decisions about calls in the telemetry. Each is a span within that of its tool, which alone names
// the call, and mostly comes later.
type permissions struct {
	Decided core.Window[decision] `json:"d,omitzero"`
	Ran     core.Window[run]      `json:"r,omitzero"`
}

// decision is a decision about a call.
type decision struct {
	Tool   core.Fingerprint `json:"s"` // span of the run of the tool
	From   core.Pending     `json:"f"`
	Kind   string           `json:"k,omitzero"`
	Result string           `json:"w,omitzero"`
}

// run is the run of a tool.
type run struct {
	Span core.Fingerprint `json:"s"`
	Call string           `json:"c"`
}

// size returns the approximate bytes of the texts.
func (p *permissions) size() (n int) {
	for i := range p.Decided {
		n += 64 + p.Decided[i].From.Size() + len(p.Decided[i].Kind) + len(p.Decided[i].Result)
	}
	for i := range p.Ran {
		n += 32 + len(p.Ran[i].Call)
	}
	return n
}

// permission maps a decision, which is pending until the run of its tool names the call.
func (s *span) permission() {
	d := decision{
		Tool:   core.FingerprintOf(s.of.Parent()),
		From:   s.PendingRecord(),
		Kind:   core.Cut(s.of.Text("github.copilot.permission.kind"), core.MaxName),
		Result: core.Cut(s.of.Text("github.copilot.permission.result"), core.MaxName),
	}
	p := &s.st.Permissions
	call := lenient.Text(s.of.Text("gen_ai.tool.call.id"))
	if i := slices.IndexFunc(p.Ran, func(r run) bool { return r.Span == d.Tool }); i >= 0 && call == "" {
		call = lenient.Text(p.Ran[i].Call)
	}
	s.skip = core.SkipHeld
	if call != "" || s.of.Parent() == "" {
		s.skip = core.SkipMirror
		d.emit(&s.emitter, call, nil)
		return
	}
	if len(p.Decided) == maxDecided {
		p.Decided[0].emit(&s.emitter, "", &p.Decided[0].From)
	}
	p.Decided = p.Decided.Push(d, maxDecided, nil)
}

// ran notes the call of the run of a tool, and emits the decisions about it.
func (p *permissions) ran(e *emitter, span string, call lenient.Text) {
	if span == "" || len(call) > core.MaxIdentity {
		return
	}
	is := run{core.FingerprintOf(span), string(call)}
	p.Ran = p.Ran.Push(is, maxRan, nil)
	for i := range p.Decided {
		if p.Decided[i].Tool == is.Span {
			p.Decided[i].emit(e, call, &p.Decided[i].From)
		}
	}
	p.Decided = p.Decided.Without(func(d decision) bool { return d.Tool == is.Span })
}

// flush emits the decisions of which the call is not known.
func (p *permissions) flush(e *emitter) {
	for i := range p.Decided {
		p.Decided[i].emit(e, "", &p.Decided[i].From)
	}
	p.Decided = nil
}

// emit emits a decision, unless the log has stated it.
func (d *decision) emit(e *emitter, call lenient.Text, from *core.Pending) {
	id := ""
	if call != "" {
		stated := permissionsOf(e.Session, call)
		if id = stated.InTelemetry(); id == "" {
			return
		}
	}
	draft := core.SystemDraft(envelopes.Meta, "")
	draft.From = from
	draft.Metadata = e.Session.MetadataWithFacts(map[string]any{"permission": permissionFact{
		ToolCallID: core.NameOf(call), Kind: core.NameOf(lenient.Text(d.Kind)), Decision: core.NameOf(lenient.Text(d.Result)),
	}})
	e.put(lenient.Text(id), draft)
}
