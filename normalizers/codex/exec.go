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

// exec is a line of `codex exec --json`, beside its type. Its items have ids that
// begin anew in every turn, and no times.
type exec struct {
	ThreadID lenient.Text             `json:"thread_id"`
	Item     lenient.Object[execItem] `json:"item"`
	Usage    lenient.Object[usage]    `json:"usage"`
	Error    jsontext.Value           `json:"error"`
	Message  lenient.Text             `json:"message"`
}

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

// isExec reports whether the record is a line of the exec stream.
func (r *wireRecord) isExec() bool { return isExecType(string(r.Type)) }

func isExecType(t string) bool {
	kind, _, ok := strings.Cut(t, ".")
	return ok && (kind == "thread" || kind == "turn" || kind == "item") || t == "error"
}

// plain keeps a line of text that a program wrote between those of the exec stream.
func (c *mapper) plain() core.SkipReason {
	words := core.PlainText(c.Record.Data)
	if strings.TrimSpace(words) == "" {
		return core.SkipEmpty
	}
	c.Raw = lenient.AppendQuote(nil, words)
	c.runtime(envelopes.Log, words)
	return core.SkipDuplicate
}

// exec maps a line of the exec stream.
func (c *mapper) exec(e *exec, kind lenient.Text) core.SkipReason {
	c.st.Exec = true
	switch kind {
	case "thread.started":
		c.Session.SetTextExtension("threadId", e.ThreadID)
		c.runtime(envelopes.Meta, "")
	case "turn.started":
		c.st.Runs++
		return core.SkipHeartbeat
	case "turn.completed":
		d := core.Draft{OnChannel: envelopes.ChannelSystem}
		d.EventType = envelopes.Meta
		c.put("", d)
		if e.Usage.OK {
			// The figures are those of the thread so far.
			total := e.Usage.Value.tokens()
			before := c.st.Total
			if total.total() < before.total() {
				before = tokens{}
			}
			c.st.Total = total
			for i := range total {
				total[i] = max(0, total[i]-before[i])
			}
			c.billTokens(total, &e.Usage.Value)
		}
	case "turn.failed", "error":
		code, message := core.VendorError(e.Error)
		message = cmp.Or(message, string(e.Message), code)
		d := core.Draft{OnChannel: envelopes.ChannelSystem}
		d.EventType, d.Text = envelopes.Log, lenient.Text(message).Ptr()
		d.Metadata = c.Session.MetadataWithError(code, message)
		c.put("", d)
	case "item.started":
		return c.execItem(&e.Item.Value, false)
	case "item.updated":
		return core.SkipProgress
	case "item.completed":
		return c.execItem(&e.Item.Value, true)
	default:
		c.runtime(envelopes.Meta, "")
	}
	return core.SkipDuplicate
}

// execItem maps an item: what is said when it is complete, a tool when it starts and
// when it is complete.
func (c *mapper) execItem(i *execItem, completed bool) core.SkipReason {
	id := lenient.Text("")
	if i.ID != "" {
		id = lenient.Text(strconv.Itoa(max(1, c.st.Runs))) + "." + i.ID
	}
	var name lenient.Text
	var args jsontext.Value
	switch i.Type {
	case "command_execution":
		name, args = "command_execution", lenient.AppendQuote(nil, string(i.Command))
	case "file_change":
		name, args = "file_change", i.Changes
	case "mcp_tool_call":
		name, args = "mcp__"+i.Server+"__"+i.Tool, i.Arguments
	case "web_search":
		if !completed && i.Query == "" {
			return core.SkipProgress // what is searched for is told when it is done
		}
		name, args = "web_search", lenient.AppendQuote(nil, string(i.Query))
		if i.Query == "" && lenient.IsValue(i.Action) {
			args = i.Action
		}
	case "collab_tool_call":
		name, args = i.Tool, lenient.AppendQuote(nil, string(i.Prompt))
		if i.Prompt == "" {
			args = i.Receivers
		}
	default:
		if !completed {
			return core.SkipProgress
		}
		c.execSaid(id, i)
		return core.SkipDuplicate
	}
	if !c.Session.HasEvent(string(id)) || id == "" {
		c.emitCall(id, id, name, args, execFiles(i.Changes)...)
	}
	if !completed {
		return core.SkipDuplicate
	}
	o := output{words: string(i.Output), exit: i.ExitCode.Integer(), failed: i.Status == "failed" || i.Status == "declined"}
	switch i.Type {
	case "web_search", "collab_tool_call":
		for _, v := range []jsontext.Value{i.Results, i.Agents} {
			if lenient.IsValue(v) {
				o.words = lenient.CompactText(v)
			}
		}
	case "mcp_tool_call":
		var result struct {
			Content content `json:"content"`
		}
		lenient.ReadObject(i.Result, &result)
		o.words = strings.Join(result.Content.texts(), "\n")
		if _, message := core.VendorError(i.Error); message != "" {
			o.words, o.failed = message, true
		}
	}
	c.emitResult(id, c.made(id, name), o, execFiles(i.Changes), true)
	return core.SkipDuplicate
}

// execSaid maps an item that is no tool.
func (c *mapper) execSaid(id lenient.Text, i *execItem) {
	switch i.Type {
	case "agent_message", "plan":
		d := c.utterance(envelopes.AssistantMessage, string(i.Text))
		d.Text = i.Text.Ptr()
		c.put(id, d)
	case "reasoning":
		d := c.utterance(envelopes.Reasoning, string(i.Text))
		d.Text = i.Text.Ptr()
		c.put(id, d)
	case "error":
		d := core.Draft{OnChannel: envelopes.ChannelSystem}
		d.EventType, d.Text = envelopes.Log, i.Message.Ptr()
		d.Metadata = c.Session.MetadataWithError("", string(i.Message))
		c.put(id, d)
	default: // a to-do list, and what is not known
		d := core.Draft{OnChannel: envelopes.ChannelSystem}
		d.EventType, d.Text = envelopes.Meta, i.Text.Ptr()
		c.put(id, d)
	}
}

// execFiles are the files of a file_change.
func execFiles(changes jsontext.Value) []envelopes.File {
	if changes.Kind() != '[' {
		return nil
	}
	var files []envelopes.File
	for _, e := range lenient.Elements(changes) {
		var change struct {
			Path lenient.Text `json:"path"`
			Kind lenient.Text `json:"kind"`
		}
		lenient.ReadObject(e, &change)
		op := envelopes.OpModify
		switch change.Kind {
		case "add":
			op = envelopes.OpCreate
		case "delete":
			op = envelopes.OpDelete
		}
		if change.Path != "" {
			files = append(files, envelopes.File{Path: string(change.Path), Op: op})
		}
	}
	return files
}
