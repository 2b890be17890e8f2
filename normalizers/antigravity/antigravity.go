// Package antigravity normalizes the transcripts of Antigravity, Google's agent, and the tokens in its databases.
//
// Start with [Vendor]. A line is read by read, which has one case per type, a row by readRow. README.md has the rules.
//
// The invariant: a line is a step, in the order of completion. No line states its session; the number of a step shows
// the call that it is the result of.
package antigravity

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"

	"tributary/envelopes"
	"tributary/normalizers/chat"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// read writes what a step or a row states.
func read(w *chat.Writer, r *record) {
	if r.Row.OK {
		readRow(w, r.Table, &r.Row.Value)
		return
	}
	w.At(core.ParseTime(string(r.CreatedAt)))
	step := placeOf(r)
	if step.isKnown(w) {
		w.Skip = core.SkipMirror
		return
	}
	if readStep(w, r) {
		step.remember(w)
	}
}

// readStep writes what a step states; it returns false for a step of an unknown type.
func readStep(w *chat.Writer, r *record) bool {
	switch r.Type {
	case "USER_INPUT":
		readPrompt(w, r)
	case "PLANNER_RESPONSE":
		w.Truncated = r.isCut("thinking", string(r.Thinking))
		w.Think(r.Thinking)
		w.Truncated = r.isCut("content", r.Content.Value)
		w.Answer(lenient.Text(r.Content.Value))
		readCalls(w, r, r.Step.Count()+1)
	case "CHECKPOINT":
		w.System(envelopes.SessionSummary, lenient.Text(summaryOf(r.Content.Value)))
	case "EPHEMERAL_MESSAGE", "CONVERSATION_HISTORY", "KNOWLEDGE_ARTIFACTS": // often a marker without content
		w.Say(core.SpeechInjected, lenient.Text(r.Content.Value))
	case "SYSTEM_MESSAGE":
		w.System(envelopes.SystemMessage, lenient.Text(r.Content.Value))
	case "ERROR_MESSAGE":
		readError(w, r)
	default:
		if r.Source == "USER_EXPLICIT" {
			return readAction(w, r)
		}
		return readResult(w, r)
	}
	return true
}

// readPrompt writes the prompt of a human, which Antigravity wraps and follows with facts of its own.
func readPrompt(w *chat.Writer, r *record) {
	text := r.Content.Value
	typed, facts, notice := text, "", ""
	if strings.HasPrefix(text, review) {
		notice, typed, facts, w.Truncated = r.splitReview(text)
	} else if rest, ok := strings.CutPrefix(text, "<USER_REQUEST>"); ok {
		typed, facts, w.Truncated = r.splitRequest(rest)
	} else if strings.HasPrefix(text, "<ADDITIONAL_METADATA>") || strings.HasPrefix(text, "<USER_SETTINGS_CHANGE>") {
		typed, facts = "", text
	}
	w.Session.SetModel(chosenModel(facts))
	switch {
	case strings.TrimSpace(typed) != "":
		w.Say(core.SpeechHuman, lenient.Text(typed))
	case notice != "":
		w.Say(core.SpeechInjected, lenient.Text(notice))
	default:
		w.Truncated = false
		w.Meta()
	}
}

// readAction writes what a human did beside the agent; it returns false for an unknown action.
func readAction(w *chat.Writer, r *record) bool {
	if _, known := results[r.Type]; !known {
		w.UnknownRecord(r.Type)
		return false
	}
	speech := core.SpeechInjected
	if r.Type == "RUN_COMMAND" {
		speech = core.SpeechTerminal
	}
	w.Truncated = r.isCut("content", r.Content.Value)
	w.Say(speech, lenient.Text(r.Content.Value))
	return true
}

// chosenModel returns the model that a change of the settings states; empty for none. Its name may have dots and
// brackets: the sentence ends at a dot before a space.
func chosenModel(facts string) string {
	_, change, ok := strings.Cut(facts, "setting `Model Selection` from ")
	if !ok {
		return ""
	}
	change, _, _ = strings.Cut(change, "\n")
	change, _, _ = strings.Cut(change, ". ")
	at := strings.LastIndex(change, " to ")
	if at < 0 {
		return ""
	}
	return strings.TrimSuffix(strings.TrimSpace(change[at+len(" to "):]), ".")
}

// summaryOf returns what a checkpoint states after its fixed beginning: the title, and the rest. A checkpoint comes
// after the first turn of every session.
func summaryOf(text string) string {
	if _, rest, ok := strings.Cut(text, "# USER Objective:\n"); ok {
		return strings.TrimLeft(rest, "# \n")
	}
	return text
}

// readCalls writes the calls of a step. Their results are the steps from the number first on, in the order of the
// calls.
func readCalls(w *chat.Writer, r *record, first int64) {
	for i, c := range r.Calls {
		w.Truncated = c.isCut()
		id := w.Call(chat.Call{ID: c.ID, Name: c.Name, Arguments: c.arguments()})
		step := strconv.FormatInt(first+int64(i), 10)
		w.AwaitedOnly(step) // an older call of this number gets no result: the conversation went back
		w.Await(step, id)
	}
}

// callOf returns the call that a step is the result of; empty for none.
func callOf(w *chat.Writer, r *record) lenient.Text {
	return lenient.Text(w.AwaitedOnly(strconv.FormatInt(r.Step.Count(), 10)))
}

// invalidCall begins the error of a call that could not be read. The lines before it are of later versions.
var invalidCall = regexp.MustCompile(`^(?:(?:Created|Completed) At: .*\n)*Error invalid tool call`)

// codeInError is how the text of an error states the code of the API.
var codeInError = regexp.MustCompile(`\(code (\d+)\)`)

// readError writes an error: of a call that could not be read, which has no other result, or of the model.
func readError(w *chat.Writer, r *record) {
	if invalidCall.MatchString(r.Content.Value) {
		if id := callOf(w, r); id != "" {
			w.Result(chat.Result{ID: id, Text: r.Content.Ptr(), Failed: true})
			return
		}
	}
	message := cmp.Or(r.Error, lenient.Text(r.Content.Value))
	code := lenient.Scalar(r.ErrorCode)
	if found := codeInError.FindStringSubmatch(string(message)); code == "" && found != nil {
		code = lenient.Text(found[1])
	}
	w.Error(code, message)
}

// readResult writes the result of a call: any step of the model that is nothing else. It returns false for another step.
func readResult(w *chat.Writer, r *record) bool {
	readCalls(w, r, r.Step.Count()) // of another version
	name, known := results[r.Type]
	var id lenient.Text
	if r.Source == "MODEL" {
		id = callOf(w, r)
	}
	if id == "" && !known {
		w.UnknownRecord(r.Type)
		return false
	}
	result := chat.Result{
		ID: id, Name: name, Text: r.Content.Ptr(),
		Failed: r.Status == "ERROR" || r.Status == "CANCELED", Running: r.Status == "RUNNING",
	}
	if result.Exit = r.Exit.Integer(); result.Exit == nil && r.Type == "RUN_COMMAND" {
		result.Exit = exitOf(r.Content.Value)
	}
	w.Truncated = r.isCut("content", r.Content.Value)
	w.Result(result)
	return true
}

// exitLine is what a command's result states before the output; in older versions a failure alone does.
var exitLine = regexp.MustCompile(`(?m)^[ \t]*The command (?:failed with exit code:|exited with code) (-?\d{1,10})\b`)

// output begins the output of a command.
var output = regexp.MustCompile(`(?m)^[ \t]*(?:Output|Stdout|Stderr):`)

// exitOf returns the exit code that the result of a command states.
func exitOf(text string) *int64 {
	if at := output.FindStringIndex(text); at != nil {
		text = text[:at[0]]
	}
	return core.FirstExitCode(exitLine, text)
}
