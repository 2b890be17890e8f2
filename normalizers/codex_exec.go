package normalizers

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
)

// codexExec is a line of `codex exec --json`, beside its type. Its items have ids that
// begin anew in every turn, and no times.
type codexExec struct {
	ThreadID text                  `json:"thread_id"`
	Item     object[codexExecItem] `json:"item"`
	Usage    object[codexUsage]    `json:"usage"`
	Error    jsontext.Value        `json:"error"`
	Message  text                  `json:"message"`
}

type codexExecItem struct {
	ID        text           `json:"id"`
	Type      text           `json:"type"`
	Text      text           `json:"text"`
	Message   text           `json:"message"`
	Command   text           `json:"command"`
	Output    text           `json:"aggregated_output"`
	ExitCode  number         `json:"exit_code"`
	Status    text           `json:"status"`
	Changes   jsontext.Value `json:"changes"`
	Server    text           `json:"server"`
	Tool      text           `json:"tool"`
	Arguments jsontext.Value `json:"arguments"`
	Result    jsontext.Value `json:"result"`
	Error     jsontext.Value `json:"error"`
	Query     text           `json:"query"`
	Action    jsontext.Value `json:"action"`
	Results   jsontext.Value `json:"results"`
	Prompt    text           `json:"prompt"`
	Receivers jsontext.Value `json:"receiver_thread_ids"`
	Agents    jsontext.Value `json:"agents_states"`
}

// isExec reports whether the record is a line of the exec stream.
func (r *codexRecord) isExec() bool { return isExecType(string(r.Type)) }

func isExecType(t string) bool {
	kind, _, ok := strings.Cut(t, ".")
	return ok && (kind == "thread" || kind == "turn" || kind == "item") || t == "error"
}

// plain keeps a line of text that a program wrote between those of the exec stream.
func (c *codexFold) plain() SkipReason {
	words := plainText(c.r.Data)
	if strings.TrimSpace(words) == "" {
		return SkipEmpty
	}
	c.raw = appendQuote(nil, words)
	c.runtime(envelopes.Log, words)
	return SkipDuplicate
}

// exec maps a line of the exec stream.
func (c *codexFold) exec(e *codexExec, kind text) SkipReason {
	c.st.Exec = true
	switch kind {
	case "thread.started":
		c.s.setTextExtension("threadId", e.ThreadID)
		c.runtime(envelopes.Meta, "")
	case "turn.started":
		c.st.Runs++
		return SkipHeartbeat
	case "turn.completed":
		d := draft{on: envelopes.ChannelSystem}
		d.EventType = envelopes.Meta
		c.put("", d)
		if e.Usage.ok {
			// The figures are those of the thread so far.
			total := e.Usage.value.tokens()
			before := c.st.Total
			if total.total() < before.total() {
				before = codexTokens{}
			}
			c.st.Total = total
			for i := range total {
				total[i] = max(0, total[i]-before[i])
			}
			c.billTokens(total, &e.Usage.value)
		}
	case "turn.failed", "error":
		code, message := problemOf(e.Error)
		message = cmp.Or(message, string(e.Message), code)
		d := draft{on: envelopes.ChannelSystem}
		d.EventType, d.Text = envelopes.Log, text(message).ptr()
		d.Metadata = c.s.metadataWithError(code, message)
		c.put("", d)
	case "item.started":
		return c.execItem(&e.Item.value, false)
	case "item.updated":
		return SkipProgress
	case "item.completed":
		return c.execItem(&e.Item.value, true)
	default:
		c.runtime(envelopes.Meta, "")
	}
	return SkipDuplicate
}

// execItem maps an item: what is said when it is complete, a tool when it starts and
// when it is complete.
func (c *codexFold) execItem(i *codexExecItem, completed bool) SkipReason {
	id := text("")
	if i.ID != "" {
		id = text(strconv.Itoa(max(1, c.st.Runs))) + "." + i.ID
	}
	var name text
	var args jsontext.Value
	switch i.Type {
	case "command_execution":
		name, args = "command_execution", appendQuote(nil, string(i.Command))
	case "file_change":
		name, args = "file_change", i.Changes
	case "mcp_tool_call":
		name, args = "mcp__"+i.Server+"__"+i.Tool, i.Arguments
	case "web_search":
		if !completed && i.Query == "" {
			return SkipProgress // what is searched for is told when it is done
		}
		name, args = "web_search", appendQuote(nil, string(i.Query))
		if i.Query == "" && isValue(i.Action) {
			args = i.Action
		}
	case "collab_tool_call":
		name, args = i.Tool, appendQuote(nil, string(i.Prompt))
		if i.Prompt == "" {
			args = i.Receivers
		}
	default:
		if !completed {
			return SkipProgress
		}
		c.execSaid(id, i)
		return SkipDuplicate
	}
	if !c.s.knows(string(id)) || id == "" {
		c.emitCall(id, id, name, args, execFiles(i.Changes)...)
	}
	if !completed {
		return SkipDuplicate
	}
	o := output{words: string(i.Output), exit: i.ExitCode.integer(), failed: i.Status == "failed" || i.Status == "declined"}
	switch i.Type {
	case "web_search", "collab_tool_call":
		for _, v := range []jsontext.Value{i.Results, i.Agents} {
			if isValue(v) {
				o.words = compactText(v)
			}
		}
	case "mcp_tool_call":
		var result struct {
			Content codexContent `json:"content"`
		}
		readObject(i.Result, &result)
		o.words = strings.Join(result.Content.texts(), "\n")
		if _, message := problemOf(i.Error); message != "" {
			o.words, o.failed = message, true
		}
	}
	c.emitResult(id, c.made(id, name), o, execFiles(i.Changes), true)
	return SkipDuplicate
}

// execSaid maps an item that is no tool.
func (c *codexFold) execSaid(id text, i *codexExecItem) {
	switch i.Type {
	case "agent_message", "plan":
		d := c.utterance(envelopes.AssistantMessage, string(i.Text))
		d.Text = i.Text.ptr()
		c.put(id, d)
	case "reasoning":
		d := c.utterance(envelopes.Reasoning, string(i.Text))
		d.Text = i.Text.ptr()
		c.put(id, d)
	case "error":
		d := draft{on: envelopes.ChannelSystem}
		d.EventType, d.Text = envelopes.Log, i.Message.ptr()
		d.Metadata = c.s.metadataWithError("", string(i.Message))
		c.put(id, d)
	default: // a to-do list, and what is not known
		d := draft{on: envelopes.ChannelSystem}
		d.EventType, d.Text = envelopes.Meta, i.Text.ptr()
		c.put(id, d)
	}
}

// execFiles are the files of a file_change.
func execFiles(changes jsontext.Value) []envelopes.File {
	if changes.Kind() != '[' {
		return nil
	}
	var files []envelopes.File
	for _, e := range elementsOf(changes) {
		var change struct {
			Path text `json:"path"`
			Kind text `json:"kind"`
		}
		readObject(e, &change)
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
