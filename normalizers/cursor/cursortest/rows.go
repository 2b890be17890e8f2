package cursortest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"tributary/envelopes"
	"tributary/normalizers/normalizerstest"
)

// form is where the known records of a session come from: empty for none yet, log, transcript or rows. A stream turns a
// transcript into a log. Lines beside rows are not read, nor rows beside a log; rows beside a transcript are, in part.
type form string

// accepts reports whether a record is read.
func (f *form) accepts(v any, data []byte) bool {
	is := form("")
	_, messaged := normalizerstest.Member[any](v, "message").(map[string]any)
	switch kind := normalizerstest.Member[string](v, "type"); {
	case isKnownRow(v):
		is = "rows"
	case !json.Valid(data):
		if strings.TrimSpace(string(data)) != "" {
			is = "log"
		}
		if *f == "transcript" {
			return true
		}
	case cursorKnows(kind, messaged, normalizerstest.Member[string](v, "role")) && (kind == "" || kind == "turn_ended" || kind == "error"):
		is = "transcript"
	case kind == "thinking", cursorKnows(kind, messaged, normalizerstest.Member[string](v, "role")):
		is = "log"
	}
	if *f == "" || *f == "transcript" && is == "log" {
		*f = is
	}
	if is == "rows" {
		return *f != "log"
	}
	return is == "" || *f != "rows"
}

// keyOf returns the session and the message in the key of a row.
func keyOf(v any) (session, message string) {
	key := normalizerstest.Member[string](v, "row", "key")
	if session, ok := strings.CutPrefix(key, "composerData:"); ok {
		return session, ""
	}
	if rest, ok := strings.CutPrefix(key, "bubbleId:"); ok {
		parts := strings.Split(rest, ":")
		return strings.Join(parts[:len(parts)-1], ":"), parts[len(parts)-1]
	}
	return "", ""
}

// sessionOf returns the session that a record states.
func sessionOf(v any) string {
	if normalizerstest.Member[string](v, "table") == "cursorDiskKV" {
		session, _ := keyOf(v)
		return session
	}
	if id := normalizerstest.Member[string](v, "sessionId"); id != "" {
		return id
	}
	return normalizerstest.Member[string](v, "session_id")
}

// isKnownRow reports whether a record is a row of a session or of a message of a known type.
func isKnownRow(v any) bool {
	if normalizerstest.Member[string](v, "table") != "cursorDiskKV" {
		return false
	}
	_, message := keyOf(v)
	value := normalizerstest.Member[any](v, "row", "value")
	content, isObject := value.(map[string]any)
	switch {
	case value != nil && !isObject:
		return false
	case message == "":
		return strings.HasPrefix(normalizerstest.Member[string](v, "row", "key"), "composerData:")
	case value == nil:
		return true
	default:
		kind := fmt.Sprint(content["type"])
		return kind == "1" || kind == "2"
	}
}

// bubbles returns the messages of a row with their ids.
func bubbles(v any) (ids []string, list []any) {
	value := normalizerstest.Member[any](v, "row", "value")
	if _, message := keyOf(v); message != "" {
		return []string{message}, []any{value}
	}
	list = normalizerstest.Member[[]any](value, "conversation")
	for i, b := range list {
		id := normalizerstest.Member[string](b, "bubbleId")
		if id == "" {
			id = fmt.Sprint("conversation@", i+1)
		}
		ids = append(ids, id)
	}
	return ids, list
}

// rowFigures returns the figures of the messages of a row by their ids.
func rowFigures(v any) map[string]normalizerstest.Figures {
	all := make(map[string]normalizerstest.Figures)
	ids, list := bubbles(v)
	for i, b := range list {
		in, _ := normalizerstest.Member[json.Number](b, "tokenCount", "inputTokens").Int64()
		out, _ := normalizerstest.Member[json.Number](b, "tokenCount", "outputTokens").Int64()
		all[ids[i]] = normalizerstest.Figures{Input: in, Output: out, UsageInput: in, UsageOutput: out, Total: in + out}
	}
	if _, message := keyOf(v); message == "" {
		for model := range normalizerstest.Member[map[string]any](v, "row", "value", "usageData") {
			cents, err := normalizerstest.Member[json.Number](v, "row", "value", "usageData", model, "costInCents").Float64()
			if err == nil && cents > 0 {
				all["cost of "+model] = normalizerstest.Figures{Cost: normalizerstest.CostOf(cents / 100)}
			}
		}
	}
	return all
}

// row reads a row.
func (r *cursorReader) row(v any) {
	if normalizerstest.Member[map[string]any](v, "row", "value", "subagentInfo") != nil {
		r.child = true
	}
	sum := r.out.Naive[r.session]
	for _, f := range rowFigures(v) {
		sum.Add(f)
	}
	r.out.Naive[r.session] = sum
	ids, list := bubbles(v)
	for i, b := range list {
		r.bubble(ids[i], b)
	}
}

// bubble reads a message. Its texts have numbers, of which a thought takes one, too.
func (r *cursorReader) bubble(id string, b any) {
	n := 0
	say := func(who, text string) {
		key := fmt.Sprint(id, "#", n, " ", who, " ", text)
		n++
		if !r.said[key] && who != "" {
			r.out.Talk = append(r.out.Talk, normalizerstest.Utterance{Session: r.session, Who: who, Text: strings.TrimSpace(text), Line: r.line})
		}
		r.said[key] = true
	}
	text := normalizerstest.Member[string](b, "text")
	isBlank := strings.TrimSpace(text) == ""
	if r.form == "transcript" {
		r.beside(id, b)
		return
	}
	switch {
	case fmt.Sprint(normalizerstest.Member[any](b, "type")) == "1":
		switch images := normalizerstest.Member[[]any](b, "images"); {
		case normalizerstest.Member[bool](b, "isSimulatedMsg"), notice.MatchString(text): // typed by nobody
		case isBlank && len(images) == 0:
		case !isBlank && r.child:
			say("agent", text)
		default:
			say("human", text)
		}
		return
	case fmt.Sprint(normalizerstest.Member[any](b, "capabilityType")) == "22":
		return // a summary
	}
	if thoughtOf(b) != "" {
		n++
	}
	if !isBlank && text != "<|eos|>" {
		say("assistant", text)
	}
	tool := normalizerstest.Member[map[string]any](b, "toolFormerData")
	stated := func(member string) bool { return normalizerstest.Member[string](tool, member) != "" }
	if slices.ContainsFunc([]string{"name", "toolCallId", "params", "rawArgs"}, stated) {
		r.tool(id, tool)
	}
}

// thoughtOf returns the thought of a message.
func thoughtOf(b any) string {
	thought, _ := normalizerstest.Member[any](b, "thinking").(string)
	return strings.TrimSpace(thought + normalizerstest.Member[string](b, "thinking", "text"))
}

// beside reads a message of a session whose messages and calls a transcript has: only the result of a call is read.
func (r *cursorReader) beside(message string, b any) {
	tool := normalizerstest.Member[map[string]any](b, "toolFormerData")
	arguments := normalizerstest.Member[string](tool, "rawArgs")
	row, name, status := normalizerstest.Member[string](tool, "toolCallId"), normalizerstest.Member[string](tool, "name"), normalizerstest.Member[string](tool, "status")
	isOver := status == "completed" || status == "error" || status == "cancelled" || tool["userDecision"] == "rejected"
	if fmt.Sprint(normalizerstest.Member[any](b, "type")) != "2" || fmt.Sprint(normalizerstest.Member[any](b, "capabilityType")) == "22" {
		return
	}
	if thoughtOf(b) != "" && r.thoughts == "" {
		r.thoughts = "rows"
	}
	if row+name+arguments+normalizerstest.Member[string](tool, "params") == "" || !isOver {
		return
	}
	if row == "" {
		row = message + "#call"
	}
	if r.emitted["row "+row] {
		return
	}
	same := func(c openCall) bool {
		return c.id == row || !r.emitted["call "+row] && c.arguments != "" && c.arguments == sameArguments(normalizerstest.Parse([]byte(arguments)), arguments, name)
	}
	at := slices.IndexFunc(r.open, same)
	switch {
	case at >= 0:
		r.emitted["row "+row] = true
		made := r.open[at]
		r.open = slices.Delete(r.open, at, at+1)
		r.result(made.id, exitCode(made.name == "Shell", tool))
	case r.emitted["call "+row]:
		r.emitted["row "+row] = true
		r.result(row, nil)
	}
}

// openCall is a call of a transcript without a result.
type openCall struct{ id, name, arguments string }

// sameArguments returns the arguments of a call in a form for comparison; empty for none.
func sameArguments(v any, text, name string) string {
	remove := strings.HasPrefix(strings.ToLower(name), "delete")
	if object, ok := v.(map[string]any); ok {
		if len(object) == 0 {
			return ""
		}
		b, err := json.Marshal(object)
		if err != nil {
			return ""
		}
		text = string(b)
	}
	if text == "" {
		return ""
	}
	return fmt.Sprint(remove, text)
}

// exitCode returns the exit code that the result of a shell states.
func exitCode(isShell bool, tool map[string]any) (code *int64) {
	if !isShell {
		return nil
	}
	v := normalizerstest.Parse([]byte(normalizerstest.Member[string](tool, "result")))
	for _, member := range []string{"exitCodeV2", "exitCode"} {
		if stated, ok := normalizerstest.Member[any](v, member).(json.Number); ok {
			if n, err := stated.Int64(); err == nil {
				code = &n
			}
		}
	}
	return code
}

// tool reads a call with its result.
func (r *cursorReader) tool(message string, tool map[string]any) {
	id, name := normalizerstest.Member[string](tool, "toolCallId"), normalizerstest.Member[string](tool, "name")
	if id == "" {
		id = message + "#call"
	}
	r.call(id, name)
	if r.tools[id] == "" {
		r.tools[id] = name
	}
	status, result := normalizerstest.Member[string](tool, "status"), normalizerstest.Member[string](tool, "result")
	isOver := status == "completed" || status == "error" || status == "cancelled" || tool["userDecision"] == "rejected"
	if !isOver && result == "" && normalizerstest.Member[string](tool, "error") == "" {
		return
	}
	r.result(id, exitCode(strings.HasPrefix(r.tools[id], "run_terminal_c"), tool))
}

// vcs returns the branch that a session states.
func vcs() func(session string, l normalizerstest.Line) envelopes.VCS {
	known, forms := make(map[string]envelopes.VCS), make(map[string]*form)
	return func(session string, l normalizerstest.Line) envelopes.VCS {
		v := normalizerstest.Parse(l.Data)
		if forms[session] == nil {
			forms[session] = new(form)
		}
		branch := normalizerstest.Member[string](v, "row", "value", "createdOnBranch")
		if _, message := keyOf(v); forms[session].accepts(v, l.Data) && isKnownRow(v) && message == "" && branch != "" {
			known[session] = envelopes.VCS{Branch: normalizerstest.StatedBranch(branch)}
		}
		return known[session]
	}
}
