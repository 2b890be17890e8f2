// Package gemini normalizes what Gemini CLI writes: the files of its sessions
// (~/.gemini/tmp/<project>/chats), its list of typed prompts (logs.json), saved
// conversations (/chat save), and its stream (--output-format stream-json).
// What it rests on: the same message is written again whenever it has grown, so that
// everything is told under the vendor's ids, and only what is new is told.
package gemini

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// state is what a session of Gemini CLI remembers beyond what all vendors do.
type state struct {
	Agent    string                        `json:"agent,omitzero"` // of a file of a subagent
	Stated   core.Window[core.StatedValue] `json:"stated,omitzero"`
	Document core.DocumentHead             `json:"doc,omitzero"`
	Delta    delta                         `json:"delta,omitzero"`
}

// Size implements [core.State].
func (s *state) Size() int {
	return len(s.Agent) + 48*len(s.Stated) + len(s.Delta.Words) + len(s.Delta.From.Raw)
}

// delta is a text of the stream that is being joined.
type delta struct {
	From  core.Pending `json:"from,omitzero"` // the last delta
	Words string       `json:"w,omitzero"`
}

// wireRecord is a line of a session's file, a whole document, or a line of the stream,
// in the vendor's names.
type wireRecord struct {
	wireMessage `json:",embed"`
	stream      `json:",embed"`

	SessionID      lenient.Text               `json:"sessionId"`
	SessionIDSnake lenient.Text               `json:"session_id"`
	ProjectHash    lenient.Text               `json:"projectHash"`
	StartTime      lenient.Text               `json:"startTime"`
	LastUpdated    lenient.Text               `json:"lastUpdated"`
	Kind           lenient.Text               `json:"kind"`
	Summary        lenient.Text               `json:"summary"`
	Directories    lenient.List[lenient.Text] `json:"directories"`
	Messages       jsontext.Value             `json:"messages"`
	History        jsontext.Value             `json:"history"`
	Set            jsontext.Value             `json:"$set"`
	RewindTo       lenient.Text               `json:"$rewindTo"`

	set set // the members of Set that are known
}

// mapper is the work on one record.
type mapper struct {
	*core.Builder
	st *state
	wireRecord

	number  int  // of the element of a document at work, from 1; 0 where the record's own counts
	unnamed int  // events of that element without an id so far
	history bool // the element is of a history that is written again
	copied  bool // and the session has never seen it

	own      bool // an element that is done has an event
	mirrored bool // something was told by another record before
}

// normalize maps one record. Only the deltas of the stream are held: the end of input
// lets them go.
func normalize(s *core.Session, r core.Record) (core.Result, error) {
	g := &mapper{st: stateOf(s)}
	if r.Origin.End {
		g.Builder = s.Begin(r, "")
		g.flush()
		return g.Finish("")
	}
	if err := core.ReadRecord(r.Data, &g.wireRecord); err != nil {
		return core.Result{}, err
	}
	lenient.ReadObject(g.Set, &g.set)
	g.Builder = s.Begin(r, g.time())
	g.learn()
	skip := g.record()
	if g.own {
		g.First, skip = -1, ""
	}
	return g.Finish(skip)
}

// time is the record's own time in the form of an event; empty when it has none.
func (r *wireRecord) time() string {
	for _, v := range []lenient.Text{r.Timestamp, r.StartTime, r.set.LastUpdated} {
		if ts, ok := core.ParseTime(string(v)); ok {
			return ts
		}
	}
	return ""
}

// isHeader: the line that begins a session's file, which a document holds too.
func (r *wireRecord) isHeader() bool {
	return r.SessionID != "" && r.ProjectHash != "" && r.Type == ""
}

// set are the members of a patch that are true for the session from then on.
type set struct {
	SessionID   lenient.Text               `json:"sessionId"`
	ProjectHash lenient.Text               `json:"projectHash"`
	LastUpdated lenient.Text               `json:"lastUpdated"`
	Kind        lenient.Text               `json:"kind"`
	Directories lenient.List[lenient.Text] `json:"directories"`
}

// learn takes from the record what is true for the session from now on.
func (g *mapper) learn() {
	is := set{SessionID: g.SessionID, ProjectHash: g.ProjectHash, Kind: g.Kind, Directories: g.Directories}
	if g.Set != nil {
		is = g.set
	}
	state := g.st
	g.Session.SetResumeID(string(cmp.Or(is.SessionID, g.SessionIDSnake)))
	if is.ProjectHash != "" && len(is.ProjectHash) <= core.MaxPath {
		g.Session.ProjectHash = string(is.ProjectHash)
	}
	switch {
	case is.Kind == "subagent" && len(is.SessionID) <= core.MaxPath:
		state.Agent = string(cmp.Or(is.SessionID, lenient.Text(g.Session.ID())))
	case is.Kind != "":
		state.Agent = ""
	}
	for _, dir := range is.Directories {
		// The project is the directory that its hash was made of.
		if core.HexHash(string(dir)) == g.Session.ProjectHash {
			g.Session.SetRoot(string(dir))
		}
	}
}

// put emits an event of this record; id is empty where the vendor gives none.
func (g *mapper) put(id lenient.Text, d core.Draft) bool {
	if id == "" && g.number > 0 {
		id = lenient.Text("@" + strconv.Itoa(g.number))
		if g.unnamed > 0 {
			id += lenient.Text("." + strconv.Itoa(g.unnamed))
		}
		g.unnamed++
	}
	d.EventID = string(id)
	if agent := g.st.Agent; agent != "" {
		d.Thread = core.FingerprintOf("agent", agent)
		d.AgentID, d.IsInternal = &agent, true
	}
	if g.copied && d.Origin == "" && d.EventType != envelopes.SessionSummary {
		d.Origin = envelopes.OriginCopied
	}
	return g.Emit(d)
}

// runtime emits an event in which the runtime speaks, not the conversation.
func (g *mapper) runtime(id lenient.Text, t envelopes.EventType, words lenient.Text) {
	d := core.Draft{InRole: envelopes.RoleSystem, OnChannel: envelopes.ChannelSystem}
	d.EventType, d.Text = t, words.Ptr()
	g.put(id, d)
}

// record maps the record by what it is, and says why there is no event where there is
// none.
func (g *mapper) record() core.SkipReason {
	switch {
	case jsontext.Value(g.Record.Data).Kind() == '[':
		return g.document(lenient.Elements(g.Record.Data))
	case g.Messages.Kind() == '[':
		return g.session(lenient.Elements(g.Messages))
	case g.History.Kind() == '[':
		return g.document(lenient.Elements(g.History))
	case g.Set.Kind() == '{':
		return g.patch()
	case g.RewindTo != "":
		g.runtime("", envelopes.Meta, "")
	case g.isHeader():
		g.header()
	case g.isStream():
		return g.stream()
	case g.isMessage():
		g.message(&g.wireMessage)
		return g.skipped()
	default:
		g.runtime(g.ID, envelopes.Meta, "")
	}
	return core.SkipDuplicate
}

// skipped is why nothing of what was looked at is told.
func (g *mapper) skipped() core.SkipReason {
	switch {
	case g.mirrored:
		return core.SkipMirror
	case g.Duplicate:
		return core.SkipDuplicate
	default:
		return core.SkipEmpty
	}
}

// header emits the line that begins a session's file.
func (g *mapper) header() {
	g.runtime("", envelopes.Meta, "")
	g.summary(g.Summary)
}

// summary emits the summary of the session, unless it is the last one stated.
func (g *mapper) summary(words lenient.Text) {
	if words == "" || !g.states("summary", words) {
		return
	}
	d := core.Draft{OnChannel: envelopes.ChannelChat}
	d.EventType, d.Text = envelopes.SessionSummary, words.Ptr()
	g.put("", d)
}

// states reports whether a value differs from the last one of its name in the session.
func (g *mapper) states(name string, value lenient.Text) bool {
	is := core.StatedValue{Type: core.Cut(name, core.MaxName), Value: core.FingerprintOf(string(value))}
	last := &g.st.Stated
	if slices.Contains(*last, is) {
		g.Duplicate = true
		return false
	}
	others := last.Without(func(v core.StatedValue) bool { return v.Type == is.Type })
	*last = others.Push(is, core.MaxStated, &g.Session.Lost)
	return true
}

// session maps a session in one document, which is rewritten in place. Of its messages
// those that cannot have changed are passed over.
func (g *mapper) session(messages []jsontext.Value) core.SkipReason {
	before := g.st.Document
	from := 0
	if before.Messages > 0 && before.Messages <= len(messages) && core.DigestOf(messages[:before.Messages]) == before.Digest {
		from, g.Duplicate = before.Messages, true
	}
	g.elements(messages, from)
	if n := max(0, len(messages)-core.DocumentTail); n > 0 {
		g.st.Document = core.DocumentHead{Messages: n, Digest: core.DigestOf(messages[:n])}
	}
	// What the document states beside its messages comes after them; it is not carried
	// by more than one event.
	raw := jsontext.Value(g.Record.Data)
	if g.own {
		raw = nil
	}
	g.begin(len(messages)+1, raw, "")
	g.summary(g.Summary)
	g.end()
	return g.skipped()
}

// document maps an array: the contents of a saved conversation, or typed prompts. One
// that holds neither is kept whole.
func (g *mapper) document(elements []jsontext.Value) core.SkipReason {
	if len(elements) == 0 {
		return core.SkipEmpty
	}
	for _, e := range elements {
		var m wireMessage
		if lenient.ReadObject(e, &m); m.isMessage() {
			g.elements(elements, 0)
			return g.skipped()
		}
	}
	g.runtime("", envelopes.Meta, "")
	return core.SkipDuplicate
}

// elements maps the messages of a document from the given one on.
func (g *mapper) elements(elements []jsontext.Value, from int) {
	messages := make([]wireMessage, len(elements))
	for i := from; i < len(elements); i++ {
		lenient.ReadObject(elements[i], &messages[i])
	}
	pairCalls(messages)
	for i := from; i < len(elements); i++ {
		m := &messages[i]
		g.begin(i+1, elements[i], m.Timestamp)
		if m.isMessage() {
			g.message(m)
		} else {
			g.runtime(m.ID, envelopes.Meta, "")
		}
		g.end()
	}
}

// begin starts the work on the n-th element of a document.
func (g *mapper) begin(n int, raw jsontext.Value, timestamp lenient.Text) {
	g.number, g.unnamed, g.Raw, g.First = n, 0, raw, -1
	if g.history {
		g.number = 0
	}
	if ts, ok := core.ParseTime(string(timestamp)); ok {
		g.TS = ts
	} else if g.Session.TS != "" {
		g.TS = g.Session.TS
	}
}

// end finishes an element: its first event carries it.
func (g *mapper) end() {
	if g.First >= 0 {
		g.Events[g.First].Event.Raw = core.EventRaw(g.Raw)
		g.own = true
	}
	g.number, g.Raw, g.First, g.copied = 0, g.Record.Data, -1, false
}

// patch maps what a line changes in the session: messages that replace the history, a
// summary, and values of which only is told that they were set.
func (g *mapper) patch() core.SkipReason {
	ts := g.TS
	changed, stated := false, false
	var summary lenient.Text
	for _, m := range lenient.Members(g.Set) {
		changed = changed || m.Name != "lastUpdated"
		switch {
		case m.Name == "lastUpdated":
		case m.Name == "messages" && m.Value.Kind() == '[':
			g.history = true
			g.elements(lenient.Elements(m.Value), 0)
			g.history, g.TS = false, ts
		case m.Name == "summary" && m.Value.Kind() == '"':
			summary = lenient.Text(lenient.Unquote(m.Value))
		case m.Name == "sessionId":
			stated = true // a session that goes on says so each time
		default:
			stated = g.states(m.Name, lenient.Text(lenient.CompactText(m.Value))) || stated
		}
	}
	if !changed {
		return core.SkipHeartbeat
	}
	g.summary(summary)
	if stated {
		g.runtime("", envelopes.Meta, "")
	}
	g.end()
	return g.skipped()
}
