// Package claude normalizes the records of Claude Code: the transcripts of its sessions and
// subagents, and the messages that its SDK prints. README.md describes both, with
// their traps.
//
// Telemetry and hooks are records of their own; telemetry.go and hook.go map them.
//
// Start with [Vendor], the row of the table of vendors. The path of a record: normalize reads
// it into a wireRecord, mapper.begin sets its thread and updates the session, mapper.record
// calls the function of its type, and that function emits events with emitter.put.
//
// The invariant: the log has one API message in several records, each with one block and with the token counts of the
// whole message so far. Every block yields one event, and every token counts on one event, whatever is repeated and
// wherever.
package claude

import (
	"cmp"
	"slices"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
	"tributary/normalizers/otlp"
)

// mapper maps one record to events.
type mapper struct {
	emitter
	wireRecord
	skip core.SkipReason // why the record yields no event; see skipReason
}

// mappers are pooled, because one takes 2.5 KB. No event refers to its mapper.
var mappers = sync.Pool{New: func() any { return new(mapper) }}

// normalize maps a record to events. At the end of input it emits messages that only have deltas.
func normalize(s *core.Session, r core.Record) (core.Result, error) {
	if r.Origin.End {
		e := emitter{Builder: s.Begin(r, ""), st: stateOf(s)}
		e.flushPartials(nil)
		return e.Finish("")
	}
	c := mappers.Get().(*mapper)
	defer func() {
		*c = mapper{}
		mappers.Put(c)
	}()
	if err := r.Read(&c.wireRecord); err != nil {
		return core.Result{}, err
	}
	if elements := objectsOf(r.Data); elements != nil {
		return normalizeArray(s, r, elements)
	}
	if c.Type == "" {
		if c.HookEvent != "" {
			return normalizeHook(s, r)
		}
		if exported, ok := otlp.Read(r.Data); ok {
			return normalizeExported(s, r, exported)
		}
	}
	c.begin(s.Begin(r, c.time()))
	c.record()
	return c.Finish(c.skipReason())
}

// normalizeArray maps the messages of a run that are printed as one JSON array (--output-format json --verbose). Each
// element counts as a record of the session, so that an array yields the same events as the same messages printed as
// lines.
func normalizeArray(s *core.Session, r core.Record, elements []jsontext.Value) (core.Result, error) {
	b := s.Begin(r, "")
	first := -1
	for i, element := range elements {
		if i > 0 {
			s.Records++
		}
		var c mapper
		lenient.ReadObject(element, &c.wireRecord)
		b.NextElement()
		b.Record.Data = element
		c.begin(b)
		c.record()
		if first < 0 {
			first = b.First
		}
	}
	b.First = first
	return b.Finish(core.SkipEmpty)
}

// objectsOf returns the elements of a JSON array of objects; nil for any other value.
func objectsOf(v jsontext.Value) []jsontext.Value {
	if v.Kind() != '[' {
		return nil
	}
	elements := lenient.Elements(v)
	if slices.ContainsFunc(elements, func(e jsontext.Value) bool { return e.Kind() != '{' }) {
		return nil
	}
	return elements
}

// begin prepares the emitter for the record and updates the session.
func (c *mapper) begin(b *core.Builder) {
	c.unwrap()
	c.emitter = emitter{
		Builder:         b,
		st:              stateOf(b.Session),
		agentID:         cmp.Or(c.AgentID, c.ParentToolUseID),
		parentToolUseID: c.ParentToolUseID,
		model:           c.Message.Value.Model,
		copied:          c.isCopied(b.Session.ID()),
		streamed:        c.isStreamed(),
	}
	c.internal = bool(c.IsSidechain) || c.agentID != ""
	c.whole = c.streamed && !c.internal && lenient.IsValue(c.Message.Value.StopReason)
	switch {
	case c.agentID != "":
		c.thread = core.FingerprintOf("agent", string(c.agentID))
	case c.internal:
		c.thread = core.FingerprintOf("sidechain")
	}
	c.updateSession()
}

// updateSession sets what the record states about its session.
func (c *mapper) updateSession() {
	c.Session.SetRoot(string(c.CWD))
	c.Session.SetResumeID(c.session())
	if c.model != syntheticModel {
		c.setModel(c.model)
	}
	c.Session.SetTextExtension("permissionMode", c.PermissionMode)
	c.Session.SetTextExtension("gitBranch", c.GitBranch)
	c.Session.SetBranch(c.GitBranch)
	if c.Type == "pr-link" {
		c.Session.SetPullRequest(c.PRURL, c.PRRepository)
	}
	c.Session.SetTextExtension("version", c.Version)
}

// syntheticModel is the model of messages that Claude Code makes up itself, such as errors.
const syntheticModel = "<synthetic>"

// skipReason returns why the record yields no event: c.skip, or that the session has emitted all of its events
// before.
func (c *mapper) skipReason() core.SkipReason { return cmp.Or(c.skip, core.SkipDuplicate) }

// record calls the function that emits the events of this type of record.
func (c *mapper) record() {
	switch c.Type {
	// Of a transcript.
	case "system":
		system(c)
	case "attachment":
		attached(c)
	case "queue-operation":
		queueOperation(c)
	case "file-history-snapshot":
		fileHistorySnapshot(c)
	case "file-history-delta":
		fileHistoryDelta(c)
	case "summary":
		summary(c, cmp.Or(c.Summary, c.Text))
	case "ai-title":
		stated(c, envelopes.SessionSummary, c.AITitle)
	case "custom-title":
		stated(c, envelopes.SessionSummary, c.CustomTitle)
	case "agent-name":
		stated(c, envelopes.Meta, c.AgentName)
	case "mode":
		stated(c, envelopes.Meta, c.Mode)
	case "permission-mode":
		stated(c, envelopes.Meta, c.PermissionMode)
	case "pr-link":
		stated(c, envelopes.Meta, c.PRURL, lenient.Text(c.PRNumber), c.PRRepository)
	case "cost-state":
		costState(c)
	case "worktree-state":
		stated(c, envelopes.Meta, "", lenient.Text(c.WorktreeSession))
	case "last-prompt", "api-request", "api-request-blob", "api-request-shape":
		c.skip = core.SkipMirror
	case "bridge-session":
		c.skip = core.SkipHeartbeat
	case "progress":
		c.skip = core.SkipProgress // the result, or the file of the subagent, has the content

	// Of the SDK.
	case "stream_event":
		apiEvent(c)
	case "result":
		if c.Key != "" { // of the journal of a workflow
			conversation(c)
		} else {
			runResult(c)
		}
	case "rate_limit_event":
		rateLimitEvent(c)
	case "auth_status":
		authStatus(c)
	case "control_request", "control_response", "control_cancel_request":
		c.skip = core.SkipControl
	case "keep_alive":
		c.skip = core.SkipHeartbeat
	case "tool_progress":
		c.skip = core.SkipProgress

	default:
		if !knownRecords[c.Type] {
			c.Unknown(core.UnknownRecord, c.Type)
		}
		conversation(c)
	}
}

// conversation emits the events of a message, whatever the type of its record, and of a tool result without a
// message. Any other record becomes a meta event that keeps it whole.
func conversation(c *mapper) {
	role := c.Message.Value.Role
	if role == "" && c.Message.OK {
		role = c.Type
	}
	noteMessage(c)
	switch {
	case role == "assistant":
		assistant(c)
	case role == "user":
		user(c)
	case lenient.IsValue(c.ToolUseResult):
		emitToolResult(c, &block{})
	default:
		unknown(c)
	}
}

// unknown emits the event of a record of an unknown type. Such a record changes no other event: it does not set the
// time of later records, nor count for the queue.
func unknown(c *mapper) {
	ts := c.Session.TS
	c.putSystem(c.UUID, envelopes.Meta, c.text())
	c.Session.TS = ts
	c.st.Unknown++
}
