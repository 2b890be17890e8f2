// Package chat turns the records of agents with a plain log into events: logs whose records state whole messages,
// calls and results, as most agents write them.
//
// Start with [Normalizer], which a vendor calls with one function that reads a record, and with [Writer], which that
// function writes to. The rules are those of all vendors (README.md of package normalizers): the Writer knows the ids
// of events, the outcome of tools and the increments of tokens, so a vendor only says what its record states.
//
// The invariant: a Writer has no state of its own. All that is remembered between two records is in the session.
package chat

import (
	"cmp"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// Normalizer returns the normalizer of a vendor. read gets each record in a wire struct, and writes what it states.
// tools are the tools whose names other agents lack or use with another meaning, by name.
func Normalizer[T any](tools map[string]core.Tool, read func(w *Writer, record *T)) core.Normalizer {
	return func(s *core.Session, r core.Record) (core.Result, error) {
		if r.Origin.End {
			return s.Begin(r, "").Finish("")
		}
		var record T
		if err := r.Read(&record); err != nil {
			return core.Result{}, err
		}
		b := s.Begin(r, "")
		w := &Writer{Builder: b, memory: memory{s}, channels: channels{builder: b}, tools: tools}
		read(w, &record)
		return w.Finish(skipOf(w))
	}
}

// Writer writes the events of one record. The fields are set before the events that they belong to.
type Writer struct {
	*core.Builder
	memory
	channels

	ID     lenient.Text // id of the record, or of a message in it, unique in its session; empty for none
	Agent  lenient.Text // subagent that the record belongs to; empty for the main conversation
	Model  lenient.Text // model of the messages; empty for the session's
	Copied bool         // history of another session
	// Truncated means that the agent cut the text of the next event; that event resets it.
	Truncated bool
	Skip      core.SkipReason // why the record has no event; empty if its events are duplicates or it has no content

	tools   toolTable
	number  int          // of events with an id made of named
	named   lenient.Text // the last ID that an event has
	element element
}

// At sets the time of the record, if ok.
func (w *Writer) At(ts string, ok bool) {
	if ok {
		w.TS = ts
	}
}

// SetID sets the id of the next event; further ones of the record get suffixes.
func (w *Writer) SetID(id lenient.Text) { w.ID, w.number = id, 0 }

// Say writes a text under the user's name. It ignores a blank one.
func (w *Writer) Say(kind core.Speech, text lenient.Text) {
	if !isBlank(text) {
		w.write(core.DraftOf(kind, string(text)))
	}
}

// Attach writes a prompt without a text, which only has attachments.
func (w *Writer) Attach() { w.write(core.ChatDraft(envelopes.UserMessage, nil, nil)) }

// Answer writes a text of the assistant. It ignores a blank one.
func (w *Writer) Answer(text lenient.Text) {
	if !isBlank(text) {
		w.write(core.ChatDraft(envelopes.AssistantMessage, text.Ptr(), w.model()))
	}
}

// Think writes a thought of the assistant. It ignores a blank one.
func (w *Writer) Think(text lenient.Text) {
	if !isBlank(text) {
		w.write(core.ChatDraft(envelopes.Reasoning, text.Ptr(), w.model()))
	}
}

// Prompt writes the prompt that starts a subagent. It ignores a blank one.
func (w *Writer) Prompt(text lenient.Text) { w.Say(core.SpeechTask, text) }

// System writes an event of the agent's runtime; its text may be empty.
func (w *Writer) System(t envelopes.EventType, text lenient.Text) {
	d := core.SystemDraft(t, text)
	d.Identity = string(w.Raw)
	w.write(d)
}

// Meta writes the event that keeps a record without content of the conversation.
func (w *Writer) Meta() { w.System(envelopes.Meta, "") }

// Facts writes a [Writer.Meta] with facts that the record states.
func (w *Writer) Facts(facts map[string]any) {
	d := core.SystemDraft(envelopes.Meta, "")
	d.Identity = string(w.Raw)
	if len(facts) > 0 {
		d.Metadata = w.Session.MetadataWithFacts(facts)
	}
	w.write(d)
}

// Error writes an error that the vendor reports.
func (w *Writer) Error(code, message lenient.Text) {
	w.write(w.Session.ErrorDraft(string(code), string(message)))
}

// Problem is an error as a record may state it, for wire structs; [Writer.Error] writes it.
type Problem struct {
	Code    lenient.Text `json:"code"`
	Message lenient.Text `json:"message"`
}

// UnknownRecord writes the event that keeps a record of an unknown type. name is its type, see
// [core.Builder.Unknown].
func (w *Writer) UnknownRecord(name ...lenient.Text) {
	w.Unknown(core.UnknownRecord, name...)
	w.put("", core.UnknownDraft())
}

// Call is the call of a tool.
type Call struct {
	ID, Name  lenient.Text
	Arguments jsontext.Value // an object, or a text, which may be an object as JSON
	File      lenient.Text   // file of the call; empty for the one that the arguments have under a usual name
	Tool      *core.Tool     // nil for the tool of this name
}

// fileInput has the names under which the arguments of a tool name a file.
type fileInput struct {
	core.FileInput `json:",embed"`

	CamelPath lenient.Text `json:"filePath"`
	Absolute  lenient.Text `json:"absolute_path"`
	Target    lenient.Text `json:"target_file"`
	TargetAbs lenient.Text `json:"TargetFile"`
	File      lenient.Text `json:"filename"`
	Directory lenient.Text `json:"DirectoryPath"`
	Read      lenient.Text `json:"AbsolutePath"`
	Searched  lenient.Text `json:"SearchPath"`
}

func (i *fileInput) file() string {
	for _, p := range []lenient.Text{lenient.Text(i.FileInput.File()), i.CamelPath, i.Absolute, i.Target, i.TargetAbs, i.File, i.Directory, i.Read, i.Searched} {
		if p != "" {
			return string(p)
		}
	}
	return ""
}

// Call writes a call. A call without an id gets that of its event, which Call returns.
func (w *Writer) Call(c Call) (id string) {
	id = string(c.ID)
	switch {
	case id != "":
	case w.element.place != "":
		id = string(w.element.nextID())
	default:
		id = w.OrdinalID(&core.Pending{Record: w.Session.Records})
	}
	tool := w.tools.of(string(c.Name))
	if c.Tool != nil {
		tool = *c.Tool
	}
	text := core.ArgumentText(c.Arguments)
	var input fileInput
	if text != nil {
		if v := jsontext.Value(*text); v.Kind() == '{' && (c.Arguments.Kind() == '{' || lenient.ReadValue(v) == nil) {
			lenient.ReadObject(v, &input)
		}
	}
	file := ""
	if tool.Op != "" {
		file = cmp.Or(string(c.File), input.file())
	}
	d := core.CallDraft(lenient.Text(id), c.Name, tool, text, file)
	d.Model = w.model()
	if tool == core.ToolModify && file == "" && text != nil {
		if files := core.PatchFiles(*text); len(files) > 0 {
			d.Patch(files)
			file = files[0].Path
		}
	}
	before := w.Duplicate
	if !w.Copied {
		d.Supersedes = w.replacedCall(id, c.Name, text)
	}
	if w.put(w.eventOf(lenient.Text(id)), d) {
		made := core.Call{Tool: string(c.Name), Channel: tool.Channel, Op: tool.Op, Path: file}
		if d.Supersedes != "" {
			replaced, _ := w.Session.RecallCall(d.Supersedes)
			made.Outcome = replaced.Outcome
		}
		w.Session.RememberCall(id, made)
	} else {
		w.repeatsCall(id, before)
	}
	return id
}

// Result is the result of a call.
type Result struct {
	ID     lenient.Text // of the call; empty if the record states none
	Name   lenient.Text // of the tool, if the call is not known
	Text   *string      // what the tool returned; nil for nothing
	Exit   *int64       // exit code, if the record states one
	Failed bool
	// Succeeded means that the record states success, whatever the tool returned.
	Succeeded bool
	// Running means that the tool goes on in the background.
	Running bool
	// Latency is the duration of the call in milliseconds, if the record states one.
	Latency lenient.Number
	// Code and Message are the error that the record states.
	Code, Message lenient.Text
}

// Result writes a result.
func (w *Writer) Result(r Result) {
	call, known := w.Session.RecallCall(string(r.ID))
	if !known {
		tool := w.tools.of(string(r.Name))
		call = core.Call{Tool: string(r.Name), Channel: tool.Channel, Op: tool.Op}
	}
	d := core.ResultDraft(r.ID, call, r.Text, r.status())
	d.Model, d.ToolExitCode = w.model(), r.Exit
	if r.Latency.OK && r.Latency.Value >= 0 {
		d.ToolLatencyMS = new(r.Latency.Count())
	}
	if r.Code != "" || r.Message != "" {
		d.Metadata = w.Session.MetadataWithError(string(r.Code), string(r.Message))
	}
	d.Supersedes = w.replacedResult(r.ID)
	w.put(w.eventOf(core.PartID(r.ID, "result")), d)
}

// IsShell reports whether the call of an id, or else the tool of a name, runs commands: only the output of those may
// state an exit code.
func (w *Writer) IsShell(id, name lenient.Text) bool {
	if call, ok := w.Session.RecallCall(string(id)); ok {
		return call.Channel == envelopes.ChannelTerminal
	}
	return w.tools.of(string(name)).Channel == envelopes.ChannelTerminal
}

// status returns the outcome (envelopes/event.md, Tools).
func (r *Result) status() envelopes.ToolStatus {
	switch {
	case r.Failed, r.Exit != nil && *r.Exit != 0, r.Code != "" || r.Message != "":
		return envelopes.StatusError
	case r.Running:
		return envelopes.StatusInProgress
	case r.Succeeded, r.Text != nil, r.Exit != nil:
		return envelopes.StatusSuccess
	default:
		return envelopes.StatusUnknown
	}
}

// Put writes a draft that no other method makes, under the id of the record.
func (w *Writer) Put(d core.Draft) bool { return w.write(d) }

// write writes an event under the id of the record; further ones get a suffix.
func (w *Writer) write(d core.Draft) bool {
	if w.ID != w.named {
		w.named, w.number = w.ID, 0
	}
	w.number++
	return w.put(core.NumberedID(w.ID, w.number-1), d)
}

// put writes an event under the vendor's id, or an empty one.
func (w *Writer) put(id lenient.Text, d core.Draft) bool {
	if id == "" && w.element.place != "" {
		id = w.element.nextID()
	}
	d.EventID = string(id)
	if w.Agent != "" {
		d.Thread = core.FingerprintOf("agent", string(w.Agent))
		d.AgentID, d.IsInternal = w.Agent.Ptr(), true
	}
	if w.Copied && d.Origin == "" {
		d.Origin = envelopes.OriginCopied
	}
	d.TextTruncated, w.Truncated = d.TextTruncated || w.Truncated, false
	return w.emit(d)
}

// model returns the model of an event: that of the record, else, in the main conversation, that of the session.
func (w *Writer) model() *string {
	if w.Model == "" && w.Agent == "" {
		return lenient.Text(w.Session.Model).Ptr()
	}
	return w.Model.Ptr()
}

// toolTable has the tools of a vendor that other agents lack, by name.
type toolTable map[string]core.Tool

// of returns the tool of a name.
func (t toolTable) of(name string) core.Tool {
	if is, ok := t[name]; ok {
		return is
	}
	return core.ToolOf(name)
}

// skipOf returns why a record without an event has none.
func skipOf(w *Writer) core.SkipReason {
	switch {
	case w.element.emitted:
		return ""
	case w.Skip != "":
		return w.Skip
	case w.mirrored:
		return core.SkipMirror
	case w.Duplicate, w.element.repeated:
		return core.SkipDuplicate
	default:
		return core.SkipEmpty
	}
}

func isBlank(t lenient.Text) bool { return strings.TrimSpace(string(t)) == "" }

// Typed writes what a human typed: a text, or attachments alone. It ignores a blank text without attachments.
func Typed(w *Writer, text lenient.Text, attached bool) {
	if isBlank(text) && attached {
		w.Attach()
	}
	w.Say(core.SpeechHuman, text)
}
