package cursor

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/chat"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// The keys of the rows that are read: composerData:<session>, and bubbleId:<session>:<message>. A session may have
// colons in it.
const (
	composerKey = "composerData:"
	bubbleKey   = "bubbleId:"
)

// database is what is read of state.vscdb. The table ItemTable has the tokens of the account, other keys have copies of
// the messages and of files. Of a session nothing is read but the members that are named here: it has keys of
// encryption, and the draft of a prompt.
var database = core.Database{
	Folders: []string{".config/Cursor/User/globalStorage", "Library/Application Support/Cursor/User/globalStorage", "AppData/Roaming/Cursor/User/globalStorage"},
	Names:   []string{"state.vscdb"},
	Tables: []core.Table{{
		Name: "cursorDiskKV", Key: "key", Columns: []string{"value"}, JSON: []string{"value"}, Prefixes: []string{composerKey},
		Members: []string{"_v", "composerId", "name", "createdAt", "unifiedMode", "modelConfig", "workspaceIdentifier", "createdOnBranch", "subagentInfo", "usageData", "conversation"},
		Omitted: []string{"*EncryptionKey"},
	}, {
		Name: "cursorDiskKV", Key: "key", Columns: []string{"value"}, JSON: []string{"value"}, Prefixes: []string{bubbleKey},
		Omitted: []string{"*EncryptionKey", "richText"},
		Of:      "cursorDiskKV", ParentOf: composerOf, Listed: listed,
	}},
}

// composerOf returns the key of the session of a message.
func composerOf(key string) string {
	session, _ := cutKey(key)
	return composerKey + session
}

// cutKey returns the session of a key, and its message; empty for the key of a session.
func cutKey(key string) (session, message string) {
	if session, ok := strings.CutPrefix(key, composerKey); ok {
		return session, ""
	}
	rest := strings.TrimPrefix(key, bubbleKey)
	if at := strings.LastIndexByte(rest, ':'); at >= 0 {
		return rest[:at], rest[at+1:]
	}
	return rest, ""
}

// listed returns the keys of the messages of a session. Its list alone has their order, and leaves out what was taken
// back or generated anew. A message is complete when another one follows it, or when the session generates none.
func listed(parent string, value []byte) (keys []string, final int) {
	var in struct {
		lenient.Data

		Headers lenient.List[struct {
			lenient.Data

			ID lenient.Text `json:"bubbleId"`
		}] `json:"fullConversationHeadersOnly"`
		Status     lenient.Text               `json:"status"`
		Generating lenient.List[lenient.Text] `json:"generatingBubbleIds"`
	}
	lenient.ReadObject(value, &in)
	prefix := bubbleKey + strings.TrimPrefix(parent, composerKey) + ":"
	final = -1
	for _, h := range in.Headers {
		if slices.Contains(in.Generating, h.ID) && final < 0 {
			final = len(keys)
		}
		keys = append(keys, prefix+string(h.ID))
	}
	switch {
	case final >= 0:
		return keys, final
	case in.Status == "generating":
		return keys, max(len(keys)-1, 0)
	default:
		return keys, len(keys)
	}
}

// isRow recognizes a row of the database.
func isRow(s *core.Shape) bool {
	if s.Text("table") != "cursorDiskKV" || s.Kind("row") != '{' {
		return false
	}
	key := s.Text("row", "key")
	return strings.HasPrefix(key, composerKey) || strings.HasPrefix(key, bubbleKey)
}

// rowRecord is a row of the database.
type rowRecord struct {
	Table lenient.Text           `json:"table"`
	Row   lenient.Object[keyRow] `json:"row"`
}

type keyRow struct {
	Key   lenient.Text   `json:"key"`
	Value jsontext.Value `json:"value"` // null for a row without content
}

// composer is what is read of a session.
type composer struct {
	Name      lenient.Text              `json:"name"`
	CreatedAt jsontext.Value            `json:"createdAt"`
	Model     lenient.Object[modelName] `json:"modelConfig"`
	Workspace lenient.Object[workspace] `json:"workspaceIdentifier"`
	Branch    lenient.Text              `json:"createdOnBranch"`
	Subagent  lenient.Object[subagent]  `json:"subagentInfo"`
	Usage     jsontext.Value            `json:"usageData"`    // by the names of models
	Messages  lenient.List[bubble]      `json:"conversation"` // of old versions
}

// spent is what a model has cost a session so far. Its member amount counts requests.
type spent struct {
	lenient.Data

	Cents lenient.Number `json:"costInCents"`
}

type modelName struct {
	Name lenient.Text `json:"modelName"`
}

// name returns the name of a model; empty for that of the automatic choice.
func (m modelName) name() lenient.Text {
	if m.Name == "default" {
		return ""
	}
	return m.Name
}

type workspace struct {
	URI lenient.Object[struct {
		Path lenient.Text `json:"fsPath"`
	}] `json:"uri"`
}

type subagent struct {
	Parent lenient.Text `json:"parentComposerId"`
}

// bubble is a message: an answer, a thought or a call is one of its own.
type bubble struct {
	ID         lenient.Text               `json:"bubbleId"`
	Type       jsontext.Value             `json:"type"`
	Capability jsontext.Value             `json:"capabilityType"`
	CreatedAt  jsontext.Value             `json:"createdAt"`
	Timing     lenient.Object[timing]     `json:"timingInfo"`
	Model      lenient.Object[modelName]  `json:"modelInfo"`
	Text       lenient.Text               `json:"text"`
	Thinking   jsontext.Value             `json:"thinking"` // a text, or an object with one
	Tool       lenient.Object[formerTool] `json:"toolFormerData"`
	Tokens     lenient.Object[struct {
		Input  lenient.Number `json:"inputTokens"`
		Output lenient.Number `json:"outputTokens"`
	}] `json:"tokenCount"` // zero for unknown
	Images     lenient.List[lenient.Present] `json:"images"`
	Simulated  lenient.Flag                  `json:"isSimulatedMsg"` // by Cursor, also at a click
	Error      jsontext.Value                `json:"errorDetails"`
	Workspaces lenient.List[lenient.Text]    `json:"workspaceUris"`
}

// timing has times of versions before September 2025.
type timing struct {
	Sent  lenient.Number `json:"clientRpcSendTime"`
	Ended lenient.Number `json:"clientEndTime"`
}

// time returns when the message was written. A small number is no date, but counts from the start of the editor.
func (b *bubble) time() (ts string, ok bool) {
	if b.CreatedAt.Kind() == '"' {
		return core.ParseTime(lenient.Unquote(b.CreatedAt))
	}
	const y2000 = 946_684_800_000
	for _, n := range []lenient.Number{lenient.NumberOf(b.CreatedAt), b.Timing.Value.Sent, b.Timing.Value.Ended} {
		if n.OK && n.Value >= y2000 {
			return core.TimeOfMillis(n)
		}
	}
	return "", false
}

// rowTools are the tools of the editor that other agents lack.
var rowTools = map[string]core.Tool{
	"run_terminal_command":    core.ToolShell,
	"run_terminal_command_v2": core.ToolShell,
	"read_file_v2":            core.ToolRead,
	"edit_file_v2":            core.ToolModify,
	"edit_notebook":           core.ToolModify,
	"reapply":                 core.ToolModify,
	"ripgrep_raw_search":      core.ToolSearch,
	"glob_file_search":        core.ToolSearch,
}

// normalizeRow maps a row of the database.
var normalizeRow = chat.Normalizer(rowTools, readRow)

// readRow writes what a row states.
func readRow(w *chat.Writer, r *rowRecord) {
	setAgent(w)
	key, value := string(r.Row.Value.Key), r.Row.Value.Value
	session, message := cutKey(key)
	read := func() { readComposer(w, session, value) }
	switch {
	case r.Table != "cursorDiskKV", lenient.IsValue(value) && value.Kind() != '{':
		w.UnknownRecord(r.Table)
		return
	case strings.HasPrefix(key, composerKey):
	case strings.HasPrefix(key, bubbleKey) && message != "":
		var b bubble
		lenient.ReadObject(value, &b)
		if kind := lenient.Scalar(b.Type); lenient.IsValue(value) && kind != ofUser && kind != ofAssistant {
			w.UnknownRecord("bubble", kind)
			return
		}
		read = func() { readBubble(w, lenient.Text(message), &b) }
	default:
		w.UnknownRecord(r.Table, "key")
		return
	}
	s := stateOf(w.Session)
	if !s.reads(formRows) {
		w.Skip = core.SkipMirror
		return
	}
	if !lenient.IsValue(value) {
		return
	}
	if read(); s.hasTranscript() && len(w.Events) == 0 && !w.Duplicate {
		w.Skip = core.SkipMirror
	}
}

// readComposer notes what is stated about a session, and writes its title. Old versions have its messages, too.
func readComposer(w *chat.Writer, id string, value jsontext.Value) {
	var c composer
	lenient.ReadObject(value, &c)
	w.At(core.TimeOfMillis(lenient.NumberOf(c.CreatedAt)))
	s := w.Session
	s.SetResumeID(id)
	s.SetRoot(string(c.Workspace.Value.URI.Value.Path))
	s.SetModel(string(c.Model.Value.name()))
	s.SetBranch(c.Branch)
	if c.Subagent.OK {
		stateOf(s).IsChild = true
		stateOf(s).startedBy(s, c.Subagent.Value.Parent)
	}
	setAgent(w)
	w.SetID("session")
	if c.Name != "" {
		w.Say(core.SpeechSummary, c.Name)
	} else {
		w.Meta()
	}
	isDuplicate := w.Duplicate
	for i := range c.Messages {
		w.NextElement() // with tokens of its own
		readBubble(w, cmp.Or(c.Messages[i].ID, lenient.Text("conversation@"+strconv.Itoa(i+1))), &c.Messages[i])
		isDuplicate = isDuplicate || w.Duplicate
	}
	readSpent(w, id, c.Usage)
	if w.NextElement(); len(w.Events) > 0 {
		w.First = 0
	}
	w.Duplicate = isDuplicate
}

// readSpent writes what the models of a session have cost since it was stated last, an event for each. The key has the
// session in it, because models have the same names in all.
func readSpent(w *chat.Writer, id string, usage jsontext.Value) {
	for _, m := range lenient.ObjectMembers(usage) {
		var is spent
		lenient.ReadObject(m.Value, &is)
		is.Cents.Value /= 100
		w.NextElement()
		w.SetID(lenient.Text("cost of " + m.Name))
		w.Model = modelName{lenient.Text(m.Name)}.name()
		w.Use(lenient.Text(id+" cost of "+m.Name), chat.Tokens{Cost: is.Cents, Several: true})
	}
}

// setAgent marks the record of a session that is that of a subagent.
func setAgent(w *chat.Writer) {
	if stateOf(w.Session).IsChild {
		w.Agent = lenient.Text(w.Session.ID())
	}
}

// Who wrote a message, and the capability of one that sums up the conversation.
const (
	ofUser      = "1"
	ofAssistant = "2"
	summary     = "22"
)

// endOfText is all that some models write in a message with a call.
const endOfText = "<|eos|>"

// readBubble writes a message.
func readBubble(w *chat.Writer, id lenient.Text, b *bubble) {
	w.At(b.time())
	w.SetID(id)
	w.Model = b.Model.Value.name()
	if len(b.Workspaces) > 0 {
		w.Session.SetRoot(pathOf(string(b.Workspaces[0])))
	}
	isBlank := strings.TrimSpace(string(b.Text)) == ""
	st := stateOf(w.Session)
	switch kind := lenient.Scalar(b.Type); {
	case kind == ofUser && st.hasTranscript():
	case kind == ofUser && (bool(b.Simulated) || isNotification(string(b.Text))):
		w.Say(core.SpeechInjected, b.Text)
	case kind == ofUser && isBlank && len(b.Images) > 0:
		w.Attach()
	case kind == ofUser && w.Agent != "":
		w.Prompt(b.Text)
	case kind == ofUser:
		w.Say(core.SpeechHuman, b.Text)
	case lenient.Scalar(b.Capability) == summary:
		w.Say(core.SpeechSummary, b.Text)
	case kind == ofAssistant:
		if thought := b.thought(); strings.TrimSpace(string(thought)) != "" && st.thinks(formRows) {
			w.Think(thought)
		}
		if b.Text != endOfText && !st.hasTranscript() {
			w.Answer(b.Text)
		}
		if b.Tool.OK && b.Tool.Value.isCall() {
			readFormerTool(w, id, &b.Tool.Value)
		}
	}
	if lenient.IsValue(b.Error) && !st.hasTranscript() { // a transcript states the error of a turn
		code := ""
		if b.Error.Kind() == '{' {
			code, _ = core.VendorError(b.Error)
		}
		w.Error(lenient.Text(code), lenient.Text(errorText(b.Error)))
	}
	if t := &b.Tokens.Value; t.Input.Count()+t.Output.Count() > 0 {
		w.Use(id, chat.Tokens{Input: t.Input, Output: t.Output})
	}
}

// thought returns the reasoning of a message.
func (b *bubble) thought() lenient.Text {
	if b.Thinking.Kind() == '"' {
		return lenient.Text(lenient.Unquote(b.Thinking))
	}
	var in struct {
		Text lenient.Text `json:"text"`
	}
	lenient.ReadObject(b.Thinking, &in)
	return in.Text
}

// pathOf returns the path of a folder's URI; empty for one on another machine.
func pathOf(uri string) string {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "file" || u.Host != "" {
		return ""
	}
	if len(u.Path) > 2 && u.Path[2] == ':' {
		return u.Path[1:] // a drive
	}
	return u.Path
}

// formerTool is a call with its result. Arguments and results are JSON in texts.
type formerTool struct {
	ID       lenient.Text   `json:"toolCallId"`
	Name     lenient.Text   `json:"name"`
	Status   lenient.Text   `json:"status"`
	RawArgs  lenient.Text   `json:"rawArgs"` // as the model wrote them
	Params   lenient.Text   `json:"params"`
	Result   jsontext.Value `json:"result"`
	Error    jsontext.Value `json:"error"`
	Decision lenient.Text   `json:"userDecision"`
}

// isCall reports whether there was a call: Cursor also writes the member with nothing but the state of a message.
func (t *formerTool) isCall() bool { return t.Name+t.ID+t.Params+t.RawArgs != "" }

// readFormerTool writes a call, and its result once there is one.
func readFormerTool(w *chat.Writer, message lenient.Text, t *formerTool) {
	id := cmp.Or(t.ID, message+"#call") // a thought has the id of the message
	st := stateOf(w.Session)
	if !st.hasTranscript() {
		arguments := jsontext.Value(lenient.AppendQuote(nil, string(cmp.Or(t.RawArgs, t.Params))))
		w.Call(chat.Call{ID: id, Name: t.Name, Arguments: arguments, File: t.file()})
	}
	result, failure := parsed(t.Result), parsed(t.Error)
	isDone := t.Status == "completed" || t.Status == "error" || t.Status == "cancelled" || t.Decision == "rejected"
	if !isDone && (st.hasTranscript() || !lenient.IsValue(result) && !lenient.IsValue(failure)) {
		return
	}
	if st.hasTranscript() {
		if id = st.callOf(w, id, t); id == "" {
			return
		}
	}
	r := chat.Result{ID: id, Name: t.Name, Failed: t.Status == "error" || t.Status == "cancelled" || t.Decision == "rejected"}
	if lenient.IsValue(result) || t.Status == "completed" {
		r.Text = new(outputOf(result))
	}
	if w.IsShell(id, t.Name) {
		var o rowOutcome
		lenient.ReadObject(result, &o)
		if r.Exit = o.ExitCode.Integer(); r.Exit == nil {
			r.Exit = o.ExitCodeV2.Integer()
		}
	}
	if lenient.IsValue(failure) {
		var f rowFailure
		lenient.ReadObject(failure, &f)
		r.Failed, r.Message = true, cmp.Or(f.Shown, f.Model, lenient.Text(errorText(failure)))
	}
	w.Result(r)
}

// file returns the file of the call.
func (t *formerTool) file() lenient.Text {
	for _, text := range []lenient.Text{t.RawArgs, t.Params} {
		if v := jsontext.Value(text); v.Kind() == '{' && lenient.ReadValue(v) == nil {
			var args struct {
				toolArgs `json:",embed"`

				TargetCamel lenient.Text `json:"targetFile"`
			}
			lenient.ReadObject(v, &args)
			if file := cmp.Or(args.file(), string(args.TargetCamel)); file != "" {
				return lenient.Text(file)
			}
		}
	}
	return ""
}

// parsed returns a value that is written as JSON in a text; a text that is no JSON stays one. It is nil for none.
func parsed(v jsontext.Value) jsontext.Value {
	if v.Kind() != '"' {
		return v
	}
	text := jsontext.Value(lenient.Unquote(v))
	switch {
	case len(text) == 0:
		return nil
	case lenient.ReadValue(text) == nil:
		return text
	default:
		return v
	}
}

// rowOutcome has the members of a result that are read.
type rowOutcome struct {
	lenient.Data

	Output     jsontext.Value `json:"output"`
	Contents   jsontext.Value `json:"contents"`
	ExitCode   lenient.Number `json:"exitCode"`
	ExitCodeV2 lenient.Number `json:"exitCodeV2"`
}

// rowFailure is the error of a call.
type rowFailure struct {
	lenient.Data

	Shown lenient.Text `json:"clientVisibleErrorMessage"`
	Model lenient.Text `json:"modelVisibleErrorMessage"`
}

// outputOf returns the text of a result: its output, the contents of a file, or else all of it.
func outputOf(result jsontext.Value) string {
	var o rowOutcome
	lenient.ReadObject(result, &o)
	for _, v := range []jsontext.Value{o.Output, o.Contents, result} {
		if v.Kind() == '"' {
			return lenient.Unquote(v)
		}
	}
	if !lenient.IsValue(result) {
		return ""
	}
	return lenient.CompactText(result)
}
