package codex

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// execRecord is a line of the exec stream, without its type. The lines have no times.
type execRecord struct {
	ThreadID lenient.Text             `json:"thread_id"`
	Item     lenient.Object[execItem] `json:"item"`
	Usage    lenient.Object[usage]    `json:"usage"`
	Error    jsontext.Value           `json:"error"`
	Message  lenient.Text             `json:"message"`
}

// execItem is an item of the exec stream. Its ids restart in every turn.
type execItem struct {
	ID        lenient.Text   `json:"id"`
	Type      lenient.Text   `json:"type"`
	Text      lenient.Text   `json:"text"`
	Message   lenient.Text   `json:"message"`
	Command   lenient.Text   `json:"command"`
	Output    lenient.Text   `json:"aggregated_output"`
	ExitCode  lenient.Number `json:"exit_code"`
	Status    lenient.Text   `json:"status"`
	Changes   jsontext.Value `json:"changes"`
	Server    lenient.Text   `json:"server"`
	Tool      lenient.Text   `json:"tool"`
	Arguments jsontext.Value `json:"arguments"`
	Result    jsontext.Value `json:"result"`
	Error     jsontext.Value `json:"error"`
	Query     lenient.Text   `json:"query"`
	Action    jsontext.Value `json:"action"`
	Results   jsontext.Value `json:"results"`
	Prompt    lenient.Text   `json:"prompt"`
	Receivers jsontext.Value `json:"receiver_thread_ids"`
	Agents    jsontext.Value `json:"agents_states"`
}

// isExecType reports whether a record of this type is a line of the exec stream.
func isExecType(t string) bool {
	kind, _, ok := strings.Cut(t, ".")
	return ok && (kind == "thread" || kind == "turn" || kind == "item") || t == "error"
}

// isExecShape reports whether a record is a line of the exec stream.
func isExecShape(s *core.Shape) bool { return s.Kind("payload") == 0 && isExecType(s.Text("type")) }

// plainText emits a line of text that a program wrote between the lines of the exec stream.
func plainText(m *mapper) {
	text := core.PlainText(m.Record.Data)
	if strings.TrimSpace(text) == "" {
		m.skip = core.SkipEmpty
		return
	}
	m.Raw = lenient.AppendQuote(nil, text)
	m.putSystem(envelopes.Log, lenient.Text(text))
}

// exec maps a line of the exec stream by its type.
func exec(m *mapper, r *wireRecord) {
	m.st.Exec = true
	switch r.Type {
	case "thread.started":
		m.Session.SetTextExtension("threadId", r.ThreadID)
		m.putSystem(envelopes.Meta, "")
	case "turn.started":
		m.st.ExecTurns++
		m.skip = core.SkipHeartbeat
	case "turn.completed":
		execTurnEnd(m, &r.Usage)
	case "turn.failed", "error":
		code, message := core.VendorError(r.Error)
		message = cmp.Or(message, string(r.Message), code)
		m.put("", m.Session.ErrorDraft(code, message))
	case "item.started":
		execItemStarted(m, &r.Item.Value)
	case "item.updated":
		m.skip = core.SkipProgress
	case "item.completed":
		execItemCompleted(m, &r.Item.Value)
	default:
		if strings.HasSuffix(string(r.Type), ".delta") {
			m.skip = core.SkipProgress // the end of the item has all of it
			return
		}
		m.Unknown(core.UnknownRecord, r.Type)
		m.putSystem(envelopes.Meta, "")
	}
}

// execTurnEnd emits the end of a turn with its tokens: the counts are those of the thread so far, and restart at zero
// when they fall.
func execTurnEnd(m *mapper, u *lenient.Object[usage]) {
	m.putSystem(envelopes.Meta, "")
	if !u.OK {
		return
	}
	noteUsage(m.Builder, &u.Value)
	total, before := u.Value.tokens(), m.st.Total
	if total.total() < before.total() {
		before = tokens{}
	}
	m.st.Total = total
	m.bill(m.st.logged(total.since(before)), &u.Value, "", 0)
}

// execItemStarted emits a tool call. Other items are emitted when complete.
func execItemStarted(m *mapper, i *execItem) {
	call, ok := i.call(m.st.execID(i))
	if !ok || i.Type == "web_search" && i.Query == "" { // the query comes with the end
		m.skip = core.SkipProgress
		return
	}
	execCall(m, call)
}

// execItemCompleted emits the result of a tool, after its call if the start is missing, or an item that is not a
// tool.
func execItemCompleted(m *mapper, i *execItem) {
	id := m.st.execID(i)
	call, ok := i.call(id)
	if !ok {
		m.put(id, execText(m, i))
		return
	}
	execCall(m, call)
	m.emitResult(id, m.callOf(id, call.name), i.result())
}

// execCall emits a call, unless the start of its item emitted it.
func execCall(m *mapper, call toolCall) {
	if !m.Session.HasEvent(string(call.id)) {
		m.emitCall(call)
	}
}

// execID returns the id of an item in the session: <turn>.<id>.
func (s *state) execID(i *execItem) lenient.Text {
	if i.ID == "" {
		return ""
	}
	return lenient.Text(strconv.Itoa(max(1, s.ExecTurns))) + "." + i.ID
}

// execText returns the event of an item that is not a tool.
func execText(m *mapper, i *execItem) core.Draft {
	switch i.Type {
	case "agent_message", "plan":
		return execAgentText(envelopes.AssistantMessage, i.Text, m.Session.Model)
	case "reasoning":
		return execAgentText(envelopes.Reasoning, i.Text, m.Session.Model)
	case "error":
		return m.Session.ErrorDraft("", string(i.Message))
	case "todo_list":
		return core.SystemDraft(envelopes.Meta, i.Text)
	default:
		m.Unknown(core.UnknownRecord, "item", i.Type)
		return core.SystemDraft(envelopes.Meta, i.Text)
	}
}

func execAgentText(t envelopes.EventType, text lenient.Text, model string) core.Draft {
	d := agentDraft(t, string(text), model)
	d.Text = text.Ptr()
	return d
}

// call returns the call of the item under an id; false if the item is not a tool.
func (i *execItem) call(id lenient.Text) (toolCall, bool) {
	call := toolCall{id: id, files: i.changedFiles()}
	switch i.Type {
	case "command_execution":
		call.name, call.args = "command_execution", quoted(i.Command)
	case "file_change":
		call.name, call.args = "file_change", i.Changes
	case "mcp_tool_call":
		call.name, call.args = mcpName(i.Server, i.Tool), i.Arguments
	case "web_search":
		call.name, call.args = "web_search", quoted(i.Query)
		if i.Query == "" && lenient.IsValue(i.Action) {
			call.args = i.Action
		}
	case "collab_tool_call":
		call.name, call.args = i.Tool, quoted(i.Prompt)
		if i.Prompt == "" {
			call.args = i.Receivers
		}
	default:
		return toolCall{}, false
	}
	return call, true
}

func quoted(s lenient.Text) jsontext.Value { return lenient.AppendQuote(nil, string(s)) }

// result returns what a completed item of a tool states about its result.
func (i *execItem) result() result {
	r := result{
		text:   string(i.Output),
		stated: true,
		exit:   i.ExitCode.Integer(),
		failed: i.Status == "failed" || i.Status == "declined",
		files:  i.changedFiles(),
	}
	switch i.Type {
	case "web_search", "collab_tool_call":
		for _, v := range []jsontext.Value{i.Results, i.Agents} {
			if lenient.IsValue(v) {
				r.text = lenient.CompactText(v)
			}
		}
	case "mcp_tool_call":
		var returned mcpResult
		lenient.ReadObject(i.Result, &returned)
		r.text = returned.Content.text()
		if _, message := core.VendorError(i.Error); message != "" {
			r.text, r.failed = message, true
		}
	}
	return r
}

// changedFiles returns the files of a file_change.
func (i *execItem) changedFiles() []envelopes.File {
	if i.Changes.Kind() != '[' {
		return nil
	}
	var files []envelopes.File
	for _, e := range lenient.Elements(i.Changes) {
		var change struct {
			Path lenient.Text `json:"path"`
			Kind lenient.Text `json:"kind"`
		}
		lenient.ReadObject(e, &change)
		if change.Path != "" {
			files = append(files, envelopes.File{Path: string(change.Path), Op: opOf(change.Kind)})
		}
	}
	return files
}
