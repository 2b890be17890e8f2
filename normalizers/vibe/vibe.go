// Package vibe normalizes the sessions of Mistral Vibe.
//
// Start with [Vendor]. A record is read by read: a message, the state of a session, or a session of older versions.
// README.md has the rules.
//
// The invariant: messages state neither a time nor tokens; the state of a session counts the tokens of all of them.
package vibe

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/chat"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// read writes what a record states.
func read(w *chat.Writer, r *record) {
	switch {
	case r.Metadata.Value.SessionID != "" && r.Messages.Kind() == '[':
		know(w, &r.Metadata.Value)
		w.Elements("", lenient.Elements(r.Messages), func(raw jsontext.Value) {
			var m message
			lenient.ReadObject(raw, &m)
			readMessage(w, &m)
		})
		readMeta(w, &r.Metadata.Value)
	case r.Role == "" && r.SessionID != "":
		w.Raw = shown(w.Raw)
		know(w, &r.meta)
		readMeta(w, &r.meta)
	default:
		readMessage(w, &r.message)
	}
}

// readMessage writes a message by its role.
func readMessage(w *chat.Writer, m *message) {
	w.ID, w.Agent = m.MessageID, lenient.Text(w.Remembered("subagent"))
	switch m.Role {
	case "user":
		readUser(w, m)
	case "assistant":
		w.ID = m.ReasoningID
		w.Think(m.Reasoning)
		w.ID = m.MessageID
		w.Answer(m.Content)
		for _, c := range m.Calls {
			w.Call(chat.Call{ID: c.ID, Name: c.Function.Value.Name, Arguments: c.Function.Value.Arguments})
		}
	case "tool":
		readResult(w, m)
	case "system":
		w.Meta()
	default:
		w.UnknownRecord(m.Role)
	}
}

// How texts begin that Vibe puts in the place of a prompt, and what it puts before that of a subagent.
const (
	compacted  = "You are continuing a trajectory after a context compaction."
	ownCommand = "Manual `!` command result from the user."
	scratchpad = "Scratchpad directory: "
	permitted  = "\nYou can read and write files here without permission prompts.\n\n"
)

// readUser writes a text under the user's name: a prompt, unless Vibe injected it.
func readUser(w *chat.Writer, m *message) {
	text := string(m.Content)
	_, task, isTask := strings.Cut(text, permitted)
	_, rest, _ := strings.Cut(text, "</previous_user_messages>")
	summary := core.TagContent(rest, "compaction_summary")
	switch {
	case !bool(m.Injected) && isTask && strings.HasPrefix(text, scratchpad):
		w.Agent = lenient.Text(w.Session.ID())
		w.Remember("subagent", w.Session.ID())
		w.Prompt(lenient.Text(task))
	case !bool(m.Injected):
		chat.Typed(w, m.Content, m.Images.Kind() == '[')
	case strings.HasPrefix(text, compacted) && summary != "":
		w.Say(core.SpeechSummary, lenient.Text(strings.Trim(summary, "\n")))
	case strings.HasPrefix(text, ownCommand):
		w.Say(core.SpeechTerminal, m.Content)
	default:
		w.Say(core.SpeechInjected, m.Content)
	}
}

// The lines of a result that state its outcome: of a command that succeeded or failed, and of a subagent.
var (
	succeeded = regexp.MustCompile(`(?m)^returncode: (-?\d{1,10})$`)
	failed    = regexp.MustCompile(`(?m)^Return code: (-?\d{1,10})$`)
	completed = regexp.MustCompile(`(?m)^completed: (True|False)$`)
)

// readResult writes the result of a call. Its text has a line for each member of the tool's result, so that the last
// one of a name counts; an error has one tag around it, and states the exit code before the output. A command that ran
// too long states none.
func readResult(w *chat.Writer, m *message) {
	text := string(m.Content)
	isError := strings.HasPrefix(text, "<tool_error>")
	r := chat.Result{ID: m.ToolCallID, Name: m.Name, Text: &text, Failed: isError || strings.HasPrefix(text, "<user_cancellation>")}
	switch {
	case m.Name == "task":
		r.Failed = r.Failed || lastOf(completed, text) == "False"
	case !w.IsShell(m.ToolCallID, m.Name):
	case isError:
		r.Exit = core.FirstExitCode(failed, text)
	case !r.Failed:
		r.Exit = core.ExitCode(succeeded, text)
	}
	w.Result(r)
}

// lastOf returns what the last match of an expression has; empty if there is none.
func lastOf(e *regexp.Regexp, text string) string {
	all := e.FindAllStringSubmatch(text, -1)
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1][1]
}

// know keeps the facts about a session.
func know(w *chat.Writer, m *meta) {
	w.Session.SetResumeID(string(m.SessionID))
	w.Session.SetRoot(string(m.Environment.Value.Folder))
	w.Session.SetModel(string(m.Config.Value.Model))
	w.Session.SetTextExtension("agent", m.Profile.Value.Name)
	w.Session.SetTextExtension("parentSessionId", m.ParentID)
	w.Session.SetCheckout(core.Checkout{Branch: m.GitBranch, Commit: m.GitCommit})
}

// readMeta writes the title of a session, and the tokens that were used since its state was read.
func readMeta(w *chat.Writer, m *meta) {
	w.ID, w.Agent = m.SessionID, lenient.Text(w.Remembered("subagent"))
	w.At(core.ParseTime(string(m.StartTime)))
	w.At(core.ParseTime(string(m.EndTime)))
	facts := core.SystemDraft(envelopes.Meta, "")
	facts.Identity = strings.Join([]string{
		string(m.Environment.Value.Folder), string(m.Config.Value.Model), string(m.Profile.Value.Name), string(m.ParentID),
	}, "\n")
	w.Put(facts)
	w.Say(core.SpeechSummary, m.Title)
	if m.Stats.OK {
		use(w, &m.Stats.Value, m.ParentID != "")
	}
}

// use writes the tokens that were used since the last state. A session that was resumed counts from 0 again. The first
// state of a session that continues another one states what that one used, too, which is not known apart.
func use(w *chat.Writer, s *stats, continues bool) {
	cached := min(s.Cached.Count(), s.Prompt.Count())
	now := [...]int64{s.Prompt.Count() - cached, cached, s.Completion.Count()}
	var before [len(now)]int64
	n, _ := fmt.Sscan(w.Remembered("totals"), &before[0], &before[1], &before[2])
	run, _ := strconv.Atoi(w.Remembered("run"))
	if now[0] < before[0] || now[1] < before[1] || now[2] < before[2] {
		run++
		w.Remember("run", strconv.Itoa(run))
	}
	w.Remember("totals", fmt.Sprint(now[0], now[1], now[2]))
	w.Copied = n == 0 && continues
	w.Use(lenient.Text("run-"+strconv.Itoa(run)), chat.Tokens{
		Input: s.Prompt, CacheRead: s.Cached, Output: s.Completion, CacheInInput: true, ReasoningInOutput: true, Several: true,
	})
	w.Copied = false
}

// carried are the members of a state that its event has: the others are long, or may be secrets.
var carried = []string{
	"session_id", "parent_session_id", "start_time", "end_time", "git_commit", "git_branch", "title", "title_source",
	"total_messages", "stats",
}

// shown returns a state without the members that its event does not carry.
func shown(state jsontext.Value) jsontext.Value {
	out := []byte{'{'}
	for _, name := range carried {
		for _, m := range lenient.ObjectMembers(state) {
			if m.Name != name {
				continue
			}
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(append(lenient.AppendQuote(out, name), ':'), m.Value...)
		}
	}
	return append(out, '}')
}
