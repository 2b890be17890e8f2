package kiro

import (
	"cmp"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/chat"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// readState writes the turns that the state of a session has ended, its title, and facts about the session.
func readState(w *chat.Writer, r *record) {
	state := &r.State.Value
	w.Session.SetResumeID(string(r.SessionID))
	w.Session.SetRoot(string(r.Cwd))
	setModel(w, state.Model.Value.Info.Value.ID)
	w.Session.SetTextExtension("agent", state.Agent)
	w.Session.SetTextExtension("parentSessionId", r.ParentID)
	if created, ok := core.ParseTime(string(r.CreatedAt)); ok {
		w.Remember("created", created)
	}
	w.Elements("turn", lenient.Elements(state.Conversation.Value.Turns), func(raw jsontext.Value) {
		var t turn
		lenient.ReadObject(raw, &t)
		readTurn(w, &t)
	})
	w.ID = r.SessionID
	w.At(core.ParseTime(string(r.UpdatedAt)))
	facts := core.SystemDraft(envelopes.Meta, "")
	facts.Identity = string(r.Cwd + "\n" + state.Agent + "\n" + state.Model.Value.Info.Value.ID + "\n" + r.ParentID)
	w.Put(facts)
	w.Say(core.SpeechSummary, r.Title)
}

// readTurn writes what a turn cost: credits, and tokens if there are any. Its messages are in the lines. Its id is the
// same in a copy of the session, and so is the key of its tokens.
func readTurn(w *chat.Writer, t *turn) {
	if rand := t.Loop.Value.Rand.Integer(); rand != nil {
		w.ID = lenient.Text("/" + strconv.FormatInt(*rand, 10))
		if len(t.Messages) > 0 {
			w.ID = lenient.Text(t.Messages[0].Value) + w.ID
		}
	}
	w.At(core.ParseTime(string(t.EndTimestamp)))
	if t.Model != "auto" {
		w.Model = t.Model
	}
	facts := make(map[string]any)
	if d := t.Duration.Value; d.Secs.OK {
		facts["turn"] = map[string]any{"durationMs": d.Secs.Count()*1000 + d.Nanos.Count()/1_000_000}
	}
	if t.EndReason != "" {
		facts["endReason"] = core.NameOf(t.EndReason)
	}
	credits, metered := 0.0, false
	for _, m := range t.Metering {
		if m.Unit == "credit" && m.Value.OK {
			credits, metered = credits+m.Value.Value, true
		}
	}
	if metered {
		facts["credits"] = credits
	}
	w.Facts(facts)
	w.Use(w.ID, chat.Tokens{Input: t.Input, CacheRead: t.CacheRead, CacheWrite: t.CacheWrite, Output: t.Output, Several: true})
	if failure := t.Result.Value.Err; lenient.IsValue(failure) {
		w.Error(t.EndReason, cmp.Or(lenient.Scalar(failure), lenient.Text(lenient.CompactText(failure))))
	}
}

// readConversation writes a conversation of Amazon Q: first the main one, if a tangent was begun in it.
func readConversation(w *chat.Writer, r *record) {
	w.Session.SetResumeID(string(r.ConversationID))
	setModel(w, cmp.Or(r.ModelInfo.Value.ID, r.OldModel))
	read := func(raw jsontext.Value) {
		var e entry
		lenient.ReadObject(raw, &e)
		if pair := lenient.Elements(raw); len(pair) >= 2 { // older versions
			lenient.ReadObject(pair[0], &e.User.Value)
			lenient.ReadObject(pair[1], &e.Assistant.Value)
		}
		readEntry(w, raw, &e)
	}
	w.Elements("main", lenient.Elements(r.Tangent.Value.Main), read)
	w.Elements("", lenient.Elements(r.History), read)
	if summary := lenient.Elements(r.LatestSummary); len(summary) > 0 && summary[0].Kind() == '"' {
		text := lenient.Unquote(summary[0])
		w.ID = lenient.Text("summary-" + core.HexHash(text)[:32])
		w.Say(core.SpeechSummary, lenient.Text(text))
		return
	}
	if !w.HasElements() {
		w.ID = r.ConversationID
		w.Put(core.SystemDraft(envelopes.Meta, ""))
	}
}

// readEntry writes an element of the history: what was sent, and the answer. Entries drop off the front of the
// history, so one without an id has that of its content.
func readEntry(w *chat.Writer, raw jsontext.Value, e *entry) {
	answer, request := &e.Assistant.Value.Response.Value, &e.Request.Value
	if e.Assistant.Value.ToolUse.OK {
		answer = &e.Assistant.Value.ToolUse.Value
	}
	w.ID = cmp.Or(answer.MessageID, request.MessageID, lenient.Text(core.HexHash([]byte(raw))[:32]))
	w.Session.SetRoot(string(e.User.Value.Env.Value.State.Value.Cwd))
	w.At(core.TimeOfMillis(request.Started))
	w.At(core.ParseTime(string(e.User.Value.Timestamp)))
	readUser(w, &e.User.Value)
	w.At(core.TimeOfMillis(request.Ended))
	if request.ModelID != "auto" {
		w.Model = request.ModelID
	}
	w.Answer(answer.Content)
	for _, use := range answer.Uses {
		w.Call(callOf(chat.Call{ID: use.ID, Name: use.Name, Arguments: use.Args}))
	}
	if w.First < 0 && !w.Duplicate {
		w.UnknownRecord("history")
	}
}

// readUser writes what was sent: a prompt, or the results of calls, which may have been cancelled.
func readUser(w *chat.Writer, u *user) {
	w.Say(core.SpeechInjected, u.Context)
	for _, m := range lenient.ObjectMembers(u.Content) {
		var is sent
		lenient.ReadObject(m.Value, &is)
		switch m.Name {
		case "Prompt", "ToolUseResults", "CancelledToolUses":
		default:
			w.Unknown(core.UnknownBlock, "user", lenient.Text(m.Name))
		}
		for _, r := range is.Results {
			result := resultOf(r.ID, blocksOfQ(r.Content), r.Status)
			result.Failed = result.Failed || m.Name == "CancelledToolUses"
			w.Result(result)
		}
		if is.Prompt == "" && lenient.IsValue(u.Images) && m.Name == "Prompt" {
			w.Attach()
		}
		w.Say(core.SpeechHuman, is.Prompt)
	}
}

// blocksOfQ returns the content of a result, whose blocks are objects with one member.
func blocksOfQ(content jsontext.Value) []block {
	var list []block
	for _, v := range lenient.Elements(content) {
		for _, m := range lenient.ObjectMembers(v) {
			b := block{Kind: "text", Data: m.Value}
			if m.Name == "Json" {
				b.Kind = "json"
			}
			list = append(list, b)
		}
	}
	return list
}
