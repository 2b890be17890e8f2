// Package kimi normalizes the journals of Kimi Code, and those of kimi-cli before it.
//
// Start with [Vendor]. A line of Kimi Code is read by read, one case per type, and a line of kimi-cli by readWire.
// README.md has the rules.
//
// The invariant: a journal states a prompt and the tokens of an API call twice, and each counts once, where it stands
// first.
package kimi

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"tributary/normalizers/chat"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// read writes what a record states.
func read(w *chat.Writer, r *record) {
	begin(w, r)
	switch r.Type {
	case "turn.prompt", "turn.steer":
		readTurn(w, r)
	case "context.append_message":
		readMessage(w, &r.Message.Value)
	case "context.append_loop_event":
		readStep(w, &r.Event.Value)
	case "usage.record":
		w.Session.SetModel(string(r.Model))
		w.Model = r.Model
		use(w, lenient.Text(core.HexHash([]byte(w.Raw))[:32]), &r.Usage.Value, byRecord, r.Scope != "session")
	case "context.apply_compaction":
		w.Say(core.SpeechSummary, summaryOf(r))
	case "turn.ended":
		if r.Reason == "failed" {
			w.Error(r.Error.Value.Code, r.Error.Value.Message)
		} else {
			w.Meta()
		}
	case "turn.step.retrying":
		w.Error(r.Failure, r.Problem)
	case "plugin.session_start":
		w.Say(core.SpeechInjected, r.Content)
	case "llm.request", "llm.tools_snapshot", "mcp.tools_discovered", "prompt.accepted":
		w.Skip = core.SkipHeartbeat
	case "":
		readOther(w, r)
	default:
		readState(w, r.Type)
	}
}

// begin sets what holds for all types.
func begin(w *chat.Writer, r *record) {
	for _, n := range []lenient.Number{millis(r.Seconds), r.Created, r.Time} {
		ts, ok := core.TimeOfMillis(n)
		w.At(ts, ok)
	}
	resume, agent := placeOf(w.Session.ID())
	if agent == "" && r.Agent != mainAgent {
		agent = r.Agent
	}
	w.Agent = agent
	w.Session.SetResumeID(resume)
	w.Session.SetRoot(string(r.Cwd))
	w.Session.SetRoot(string(r.Place.Value.Cwd))
	w.Session.SetModel(string(r.Alias))
	w.Session.SetTextExtension("provider", r.Provider)
	w.Session.SetTextExtension("thinkingEffort", r.Effort)
	w.Model = lenient.Text(w.Session.Model)
}

// states are the types of records that change a state of the agent, up to their dot.
var states = []string{
	"config", "context", "cron", "file_history", "forked", "full_compaction", "goal", "interaction",
	"interruptionReminder", "metadata", "permission", "plan", "plan_mode", "profile", "prompt", "runtime", "staleGuard",
	"swarm_mode", "task", "tools", "tower_mode", "turn",
}

// readState writes a change of a state.
func readState(w *chat.Writer, kind lenient.Text) {
	group, _, _ := strings.Cut(string(kind), ".")
	if group == "token_counting" { // the size of the context
		w.Skip = core.SkipHeartbeat
		return
	}
	if slices.Contains(states, group) {
		w.Meta()
	} else {
		w.UnknownRecord(kind)
	}
}

// readOther writes a record without a type: one of kimi-cli.
func readOther(w *chat.Writer, r *record) {
	switch {
	case r.Message.Value.Type != "":
		readWire(w, r.Message.Value.Type, r.Message.Value.Payload)
	case r.Role != "": // the context, which the journal beside it states
		w.Skip = core.SkipMirror
	default:
		w.UnknownRecord("")
	}
}

// readMessage writes a message that was added to the context.
func readMessage(w *chat.Writer, m *message) {
	w.ID = m.ID
	list := chat.Blocks[part](m.Content)
	switch m.Role {
	case "user":
		if o := &m.Origin.Value; isExpected(w, o.author(), joined(list), m.ID) {
			w.Skip = core.SkipMirror
		} else {
			readPrompt(w, list, o)
		}
	case "assistant":
		for _, p := range list {
			readPart(w, p)
		}
		for _, c := range m.Calls {
			f := c.Function.Value
			if !c.Function.OK {
				f = function{c.Name, c.Arguments}
			}
			w.Call(chat.Call{ID: newCall(w, c.ID), Name: f.Name, Arguments: f.Arguments})
		}
	case "tool":
		readResult(w, m.CallID, &outcome{m.Content, m.IsError, lenient.Number{}})
	case "system":
		w.Say(core.SpeechInjected, lenient.Text(joined(list)))
	default:
		w.UnknownRecord("message", m.Role)
	}
}

// readPart writes a part of an answer.
func readPart(w *chat.Writer, p part) {
	switch {
	case p.Type == "text":
		w.Answer(p.Text)
	case p.Type == "think":
		w.Think(p.Think)
	case isMedia(p):
		w.Meta()
	default:
		w.Unknown(core.UnknownBlock, p.Type)
	}
}

// readTurn writes the input of a turn, unless its message is in the context already, which else repeats it later.
func readTurn(w *chat.Writer, r *record) {
	o, list, id := &r.Origin.Value, chat.Blocks[part](r.Input), r.messageID()
	if w.Session.HasEvent(string(id)) {
		w.Skip = core.SkipMirror
		return
	}
	expect(w, o.author(), joined(list), id)
	readPrompt(w, list, o)
}

// readPrompt writes a text under the user's name by its author.
func readPrompt(w *chat.Writer, list []part, o *origin) {
	text := joined(list)
	switch o.author() {
	case "user":
		skills := min(len(o.Skills), len(list))
		sayPrompt(w, list[skills:])
		w.Say(core.SpeechInjected, lenient.Text(joined(list[:skills])))
	case "skill_activation", "plugin_command":
		if o.Trigger == "user-slash" {
			w.Say(core.SpeechCommand, command(o))
		}
		w.Say(core.SpeechInjected, lenient.Text(text))
	case "shell_command": // a command that the human ran, or its output
		w.Say(core.SpeechTerminal, lenient.Text(text))
	case "compaction_summary":
		w.Say(core.SpeechSummary, lenient.Text(text))
	case "system_trigger":
		if o.Name == "subagent" {
			w.Prompt(lenient.Text(gitContext.ReplaceAllString(text, "")))
			return
		}
		w.Say(core.SpeechInjected, lenient.Text(text))
	default: // injection, hook_result, task, cron_job, cron_missed, retry
		w.Say(core.SpeechInjected, lenient.Text(text))
	}
}

// sayPrompt writes what a human typed, or attached.
func sayPrompt(w *chat.Writer, list []part) {
	chat.Typed(w, lenient.Text(joined(list)), slices.ContainsFunc(list, isMedia))
}

// gitContext is what Kimi puts before the prompt of a subagent.
var gitContext = regexp.MustCompile(`(?s)^\s*<git-context(?:>.*?</git-context>|[^>]*/>)\s*`)

// command returns what the human typed to start a skill or a command of a plugin.
func command(o *origin) lenient.Text {
	name, arguments := o.Skill, o.SkillArgs
	if o.Kind == "plugin_command" {
		name, arguments = o.Plugin+":"+o.Command, o.Arguments
	}
	return lenient.Text(strings.TrimSpace("/" + string(name) + " " + string(arguments)))
}

// A session remembers the inputs of turns whose messages are not in the context yet as two values, oldest first: a key
// of fixed length for the text of each, and one for the id of its message.
const (
	inputs    = "inputs"
	inputIDs  = "input ids"
	inputSize = 8
)

func inputKey(kind lenient.Text, text string) string {
	return core.FingerprintOf(string(kind), strings.TrimSpace(text)).String()
}

func inputIDKey(id lenient.Text) string { return core.FingerprintOf("message", string(id)).String() }

// expect notes that a message of the context will repeat an input.
func expect(w *chat.Writer, kind lenient.Text, text string, id lenient.Text) {
	texts, ids := openInputs(w)
	keepInputs(w, texts+inputKey(kind, text), ids+inputIDKey(id))
}

// openInputs returns the keys of the inputs that are expected again. A session of an earlier version has no ids.
func openInputs(w *chat.Writer) (texts, ids string) {
	texts, ids = w.Remembered(inputs), w.Remembered(inputIDs)
	return texts, strings.Repeat(inputIDKey(""), max(0, len(texts)-len(ids))/inputSize) + ids
}

func keepInputs(w *chat.Writer, texts, ids string) {
	first := max(0, len(texts)-core.MaxName)
	w.Remember(inputs, texts[first:])
	w.Remember(inputIDs, ids[first:])
}

// isExpected reports whether a message of the context repeats an input, which then is no longer expected.
func isExpected(w *chat.Writer, kind lenient.Text, text string, id lenient.Text) bool {
	at := expected(w, inputKey(kind, text), id)
	if at < 0 {
		return false
	}
	texts, ids := openInputs(w)
	keepInputs(w, texts[:at]+texts[at+inputSize:], ids[:at]+ids[at+inputSize:])
	return true
}

// expected returns the place of the input that a message repeats; -1 for none. The id decides if both state one,
// because the message may lack images that the model does not accept; else the text does.
func expected(w *chat.Writer, text string, id lenient.Text) int {
	texts, ids := openInputs(w)
	none, is, first := inputIDKey(""), inputIDKey(id), -1
	for i := 0; i < len(texts); i += inputSize {
		of := ids[i : i+inputSize]
		if of == is && id != "" {
			return i
		}
		if first < 0 && (of == none || id == "") && texts[i:i+inputSize] == text {
			first = i
		}
	}
	return first
}

// readStep writes an event of the loop.
func readStep(w *chat.Writer, s *step) {
	w.ID = s.UUID
	switch s.Type {
	case "step.begin":
		w.Remember(tokens, "")
		w.Skip = core.SkipProgress
	case "content.part":
		readPart(w, s.Part.Value)
	case "tool.call":
		var input place
		lenient.ReadObject(s.Arguments, &input)
		if input.Cwd == "" { // the call runs in the folder of the session
			w.Session.SetRoot(string(s.Display.Value.Cwd))
		}
		w.Call(chat.Call{ID: newCall(w, s.CallID), Name: s.Name, Arguments: s.Arguments})
	case "tool.result":
		readResult(w, s.CallID, &s.Result.Value)
	case "step.end":
		w.Skip = core.SkipProgress
		call := s.MessageID
		if call == "" {
			call = s.UUID
		}
		use(w, call, &s.Usage.Value, byStep, true)
	default:
		w.UnknownRecord("step", s.Type)
	}
}

// A step and a record of tokens state the same numbers. A session remembers the first until the second follows.
const (
	tokens   = "tokens"
	byStep   = "step"
	byRecord = "record"
)

// use writes the tokens of an API call. paired means that the other kind of statement may repeat them: the record of a
// compaction has no step.
func use(w *chat.Writer, call lenient.Text, u *usage, by string, paired bool) {
	counts := fmt.Sprint(u.Input.Count(), u.CacheRead.Count(), u.CacheWrite.Count(), u.Output.Count())
	if before, same := strings.CutSuffix(w.Remembered(tokens), " "+counts); paired && same && before != by {
		w.Remember(tokens, "")
		w.Skip = core.SkipMirror
		return
	}
	if paired && counts != "0 0 0 0" {
		w.Remember(tokens, by+" "+counts)
	}
	w.Use(call, chat.Tokens{Input: u.Input, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite, Output: u.Output, ReasoningInOutput: true})
}

// newCall returns the id of a call. The model counts its calls, and may begin again after a compaction: an id that has
// a result then belongs to another call, and gets a number.
func newCall(w *chat.Writer, id lenient.Text) lenient.Text {
	is := id
	for n := 2; id != "" && w.Session.HasEvent(string(is)+"#result"); n++ {
		is = numbered(id, n)
	}
	return is
}

// lastCall returns the id of the call that a result belongs to.
func lastCall(w *chat.Writer, id lenient.Text) lenient.Text {
	is := id
	for n := 2; id != "" && w.Session.HasEvent(string(numbered(id, n))); n++ {
		is = numbered(id, n)
	}
	return is
}

func numbered(id lenient.Text, n int) lenient.Text { return id + lenient.Text("~"+strconv.Itoa(n)) }

// exitLine is the line that the shell adds to the output of a failed command, perhaps before a note on its length.
var exitLine = regexp.MustCompile(`(?m)^Command failed with exit code: (-?\d{1,10})\.`)

// readResult writes the result of a call.
func readResult(w *chat.Writer, id lenient.Text, is *outcome) {
	text := joined(chat.Blocks[part](is.Output))
	r := chat.Result{ID: lastCall(w, id), Text: &text, Failed: bool(is.IsError), Latency: is.Duration}
	if r.Failed && w.IsShell(r.ID, "") {
		r.Exit = core.ExitCode(exitLine, text)
	}
	w.Result(r)
}

// summaryOf returns the summary of a compaction, without what introduces it to the model.
func summaryOf(r *record) lenient.Text {
	var m message
	lenient.ReadObject(r.Summary, &m)
	if text := joined(chat.Blocks[part](m.Content)); text != "" {
		return lenient.Text(text)
	}
	if text := joined(chat.Blocks[part](r.Summary)); text != "" {
		return lenient.Text(text)
	}
	return r.Context
}
