package vscode

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/chat"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// statedCall is a call as the model made it, with its result as the model reads it; nil for none.
type statedCall struct {
	roundCall
	at   lenient.Number
	text *string
}

// calls returns the calls of the model in their order.
func (u *metadata) calls() (list []statedCall) {
	var results map[string]jsontext.Value
	if u.Results.Kind() == '{' {
		lenient.ReadObject(u.Results, &results)
	}
	for _, r := range u.Rounds {
		for _, c := range r.Calls {
			s := statedCall{roundCall: c, at: r.Timestamp}
			var is struct {
				Content jsontext.Value `json:"content"`
			}
			if lenient.ReadObject(results[string(c.ID)], &is); is.Content.Kind() == '[' {
				s.text = new(contentText(is.Content))
			}
			list = append(list, s)
		}
	}
	return list
}

// pair finds the calls of the model among those that are shown, and gives each its id. Old versions of VS Code give the
// shown ones ids of their own: then the calls of a tool are in the same order. A call that has an event keeps its id.
// The result has the numbers of the shown calls; -1 for none.
func (m *mapper) pair(calls []statedCall, shown []shownCall) []int {
	byID, byTool := make(map[lenient.Text]int), make(map[lenient.Text][]int)
	for k, s := range slices.Backward(shown) {
		byID[s.ID] = k
	}
	for k, s := range shown {
		if isOwnID(s.ID) {
			byTool[s.Tool] = append(byTool[s.Tool], k)
		}
	}
	pairs := make([]int, len(calls))
	for i := range calls {
		c := &calls[i]
		id, _, _ := strings.Cut(string(c.ID), "__vscode") // Copilot adds this to keep it unique
		c.ID, pairs[i] = lenient.Text(id), -1
		if k, ok := byID[c.ID]; ok {
			pairs[i] = k
			delete(byID, c.ID)
		} else if list := byTool[c.Name]; len(list) > 0 {
			pairs[i], byTool[c.Name] = list[0], list[1:]
		}
		if k := pairs[i]; k >= 0 && m.Session.HasEvent(string(shown[k].ID)) {
			c.ID = shown[k].ID
		}
	}
	return pairs
}

// expect notes the calls of the model that parts of an answer show. The unshown calls of the request are shown before
// them, and are not noted.
func (m *mapper) expect(q *request, parts []part, used *metadata) {
	m.stated, m.written = make(map[lenient.Text]*statedCall), make(map[lenient.Text]bool)
	stated := used.calls()
	if len(stated) == 0 {
		return
	}
	var calls []statedCall
	for _, c := range q.Unshown {
		calls = append(calls, statedCall{roundCall: roundCall{ID: c.ID, Name: c.Tool}})
	}
	calls = append(calls, stated...)
	var shown []shownCall
	for _, p := range parts {
		if p.Kind == invoked && p.Agent == "" && p.CallID != "" {
			shown = append(shown, shownCall{ID: p.CallID, Tool: toolOf(p.ToolID)})
		}
	}
	for i, k := range m.pair(calls, shown) {
		if k >= 0 && i >= len(q.Unshown) {
			m.stated[shown[k].ID] = &calls[i]
		}
	}
}

// invocation writes a call that is shown, and its result as far as one is stated: isComplete is always true.
func (m *mapper) invocation(q *request, v *invocation) {
	c := chat.Call{ID: v.CallID, Name: toolOf(v.ToolID)}
	if c.ID == "" {
		c.ID = m.ID
	}
	r, ok := v.result()
	s := m.stated[v.CallID]
	var earlier *unshownCall
	if s == nil && v.Agent == "" {
		earlier = q.takeUnshown(c.ID, c.Name)
	}
	switch {
	case s != nil:
		m.At(core.TimeOfMillis(s.at))
		c.ID, c.Name, c.Arguments = s.ID, s.Name, s.Arguments
		m.written[c.ID] = true
		m.Call(c)
	case earlier != nil:
		c.ID, c.Name = earlier.ID, earlier.Tool
	default:
		c.Arguments, c.File = v.arguments()
		m.Call(c)
	}
	shown := shownCall{q.Parts, c.ID, c.Name, r.Exit, r.Latency, r.Failed}
	if v.Agent == "" && len(c.ID)+len(c.Name) <= core.MaxName {
		q.Calls = q.Calls.Push(shown, maxCalls, nil)
	}
	switch r.ID, r.Name = c.ID, c.Name; {
	case s != nil && s.text != nil:
		m.resultOf(s, shown)
	case earlier != nil && earlier.Returned:
		if earlier.Text != nil {
			r.Text = earlier.Text
		}
		if r.Exit != nil || r.Failed && r.Text != nil {
			if earlier.Text != nil {
				r.Exit = exitOf(r.Exit, c.Name, *earlier.Text)
			}
			m.Result(r)
		}
	case ok:
		m.Result(r)
	}
}

// exitLine is the last line of the result of a command that failed.
var exitLine = regexp.MustCompile(`(?:^|\n)Command exited with code ([1-9]\d*)\s*$`)

// exitOf returns the exit code of a call: the shown one, else that which the result ends with, because versions before
// autumn 2025 do not show it. It is nil, not 0, where neither states one.
func exitOf(shown *int64, tool lenient.Text, text string) *int64 {
	if shown != nil || tool != "run_in_terminal" {
		return shown
	}
	line := exitLine.FindStringSubmatch(text)
	if line == nil {
		return nil
	}
	code, err := strconv.ParseInt(line[1], 10, 64)
	if err != nil {
		return nil
	}
	return &code
}

// resultOf writes the result that the model reads.
func (m *mapper) resultOf(s *statedCall, shown shownCall) {
	m.Result(chat.Result{
		ID: shown.ID, Name: s.Name, Text: s.text, Exit: exitOf(shown.Exit, s.Name, *s.text), Latency: shown.Millis,
		Failed: shown.Failed || strings.HasPrefix(*s.text, "ERROR while calling tool: ") || strings.HasPrefix(*s.text, "ERROR: Your input to the tool was invalid"),
	})
}

// calls writes the calls of the model that no part of this record shows.
func (m *mapper) calls(q *request, used *metadata) {
	calls := used.calls()
	for i, k := range m.pair(calls, q.Calls) {
		s := &calls[i]
		if m.written[s.ID] {
			continue
		}
		m.At(core.TimeOfMillis(s.at))
		m.Call(chat.Call{ID: s.ID, Name: s.Name, Arguments: s.Arguments})
		shown := shownCall{ID: s.ID}
		if k >= 0 {
			shown = q.Calls[k]
		} else {
			u := unshownCall{ID: s.ID, Tool: s.Name, Returned: s.text != nil}
			if s.text != nil && (len(*s.text) <= core.MaxName || m.IsShell(s.ID, s.Name)) {
				u.Text = s.text
			}
			q.addUnshown(u)
		}
		if s.text != nil && (k >= 0 || !m.Session.HasEvent(string(s.ID)+"#result")) {
			m.resultOf(s, shown)
		}
	}
}

// arguments returns the arguments that a shown call states, and the one file that its message names.
func (v *invocation) arguments() (args jsontext.Value, file lenient.Text) {
	var io ioDetail
	lenient.ReadObject(v.Details, &io)
	d := &v.Specific.Value
	switch command := d.CommandLine.Value.Original + d.Command; {
	case command != "":
		args = memberOf("command", lenient.AppendQuote(nil, string(command)))
	case d.Prompt.OK:
		args = memberOf("prompt", lenient.AppendQuote(nil, d.Prompt.Value))
	case d.RawInput != nil:
		args = d.RawInput
	case io.Input != nil:
		args = io.Input
	}
	var message valued
	lenient.ReadObject(v.Message, &message)
	if files := lenient.ObjectMembers(message.URIs); len(files) == 1 {
		var u wireURI
		lenient.ReadObject(files[0].Value, &u)
		file = lenient.Text(u.file())
	}
	return args, file
}

// result returns the result that a shown call states, if any.
func (v *invocation) result() (r chat.Result, ok bool) {
	var confirmed struct {
		Type lenient.Number `json:"type"`
	}
	lenient.ReadObject(v.Confirmed, &confirmed)
	const denied, skipped = 0, 5
	if t := confirmed.Type; v.Confirmed.Kind() == 'f' || t.OK && (t.Value == denied || t.Value == skipped) {
		r.Failed, ok = true, true
	}
	if v.Error.Kind() == 't' || v.Error.Kind() == '"' {
		r.Failed, r.Message, ok = true, lenient.Text(lenient.Unquote(v.Error)), true
	}
	if v.Details.Kind() == '{' {
		var io ioDetail
		lenient.ReadObject(v.Details, &io)
		r.Failed, r.Text, ok = r.Failed || bool(io.IsError), new(contentText(io.Output)), true
	}
	ok = ok || v.Details.Kind() == '[' // files
	d := &v.Specific.Value
	for _, text := range []lenient.NullText{d.Output.Value.Text, d.Result} {
		if text.OK {
			r.Text, ok = text.Ptr(), true
		}
	}
	if r.Exit, r.Latency = d.State.Value.Exit.Integer(), d.State.Value.Duration; r.Exit != nil {
		ok = true
	}
	return r, ok
}

// contentText returns the text of a result: a text, or parts with texts and nodes of a prompt.
func contentText(v jsontext.Value) string {
	if v.Kind() == '"' {
		return lenient.Unquote(v)
	}
	var texts []string
	for _, c := range lenient.ReadElements[valued](v) {
		if text := lenient.Unquote(c.Value); text != "" {
			texts = append(texts, text)
		} else if c.Value.Kind() == '{' {
			var b strings.Builder
			writeNode(&b, c.Value)
			texts = append(texts, b.String())
		}
	}
	return strings.Join(texts, "\n")
}

// writeNode writes the texts of a node of a prompt.
func writeNode(b *strings.Builder, v jsontext.Value) {
	var n node
	lenient.ReadObject(v, &n)
	if n.Break && b.Len() > 0 {
		b.WriteByte('\n')
	}
	b.WriteString(string(n.Text))
	if n.Node.Kind() == '{' {
		writeNode(b, n.Node)
	}
	for _, child := range lenient.Elements(n.Children) {
		writeNode(b, child)
	}
}

// toolOf returns the name that the model has for a tool.
func toolOf(id lenient.Text) lenient.Text {
	if name, ok := modelNames[id]; ok {
		return name
	}
	return id
}
