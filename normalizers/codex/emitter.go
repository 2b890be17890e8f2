package codex

import (
	"cmp"
	"strconv"
	"strings"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// emitter emits the events of a record, and of the pending records that it releases.
type emitter struct {
	*core.Builder
	st     *state
	copied bool // the record is a copy of the history of another session
	// exported means that the record was exported by OpenTelemetry, not written to the rollout.
	exported bool
	skip     core.SkipReason // why the record has no event; empty if its events are duplicates
}

// finish returns the events of the record. A record without events is skipped for the reason in e.skip, or else as a
// duplicate, because the session has emitted all of its events before.
func (e *emitter) finish() (core.Result, error) {
	return e.Finish(cmp.Or(e.skip, core.SkipDuplicate))
}

// put emits an event of the current record, or of the pending record d.From. It returns false if the session has
// emitted the event before.
func (e *emitter) put(id lenient.Text, d core.Draft) bool {
	if strings.HasPrefix(string(id), "review_rollout_") {
		id = "" // every review has the same ids
	}
	d.EventID = string(id)
	if e.st.Agent != "" {
		d.Thread = core.FingerprintOf(e.st.Agent)
		d.AgentID, d.IsInternal = &e.st.Agent, true
		if d.EventType == envelopes.UserMessage && d.Origin == "" {
			d.Origin = envelopes.OriginAgent
		}
	}
	if e.copied && d.From == nil {
		d.Origin = envelopes.OriginCopied
	}
	if e.exported || d.EventType != envelopes.UserMessage || d.Origin == envelopes.OriginCopied {
		return e.Emit(d)
	}
	return e.EmitLogged(d)
}

// putSystem emits an event by the runtime.
func (e *emitter) putSystem(t envelopes.EventType, text lenient.Text) {
	e.put("", core.SystemDraft(t, text))
}

// model returns the model of the session for an event; nil if unknown.
func (e *emitter) model() *string { return lenient.Text(e.Session.Model).Ptr() }

// putFact emits a meta event with a fact in its metadata.
func (e *emitter) putFact(name string, fact any) {
	d := core.SystemDraft(envelopes.Meta, "")
	d.Metadata = e.Session.MetadataWithFacts(map[string]any{name: fact})
	e.put("", d)
}

// putPending emits an event of an earlier record. An event without an id gets one from its record. Only the first
// event of a record carries the raw record.
func (e *emitter) putPending(id lenient.Text, d core.Draft, from core.Pending, copied bool) {
	if copied {
		d.Origin = envelopes.OriginCopied
	}
	if id == "" {
		id = e.pendingID(&from)
		if strings.Contains(string(id), ".") {
			from.Raw = nil
		}
	}
	d.From = &from
	e.put(id, d)
}

// pendingID returns the first free id of an event of a pending record: @<n>, then @<n>.<i>.
func (e *emitter) pendingID(from *core.Pending) lenient.Text {
	base := "@" + strconv.FormatUint(from.Record, 10)
	id := base
	for i := 1; e.Session.HasEvent(id); i++ {
		id = base + "." + strconv.Itoa(i)
	}
	return lenient.Text(id)
}
