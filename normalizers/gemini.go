package normalizers

import (
	"cmp"
	"crypto/sha256"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
)

// gemini normalizes what Gemini CLI writes: the files of its sessions
// (~/.gemini/tmp/<project>/chats), its list of typed prompts (logs.json), saved
// conversations (/chat save), and its stream (--output-format stream-json).
// What it rests on: the same message is written again whenever it has grown, so that
// everything is told under the vendor's ids, and only what is new is told.
type gemini struct{}

const (
	maxGeminiDelta = 48 << 10 // bytes of a text that is being joined; beyond it the text goes on in another event
	geminiTail     = 8        // messages at the end of a document that may still change
)

// geminiState is what a session of Gemini CLI remembers beyond what all vendors do.
type geminiState struct {
	ProjectHash string              `json:"hash,omitzero"`
	Agent       string              `json:"agent,omitzero"` // of a file of a subagent
	Stated      window[statedValue] `json:"stated,omitzero"`
	Document    geminiDocument      `json:"doc,omitzero"`
	Delta       geminiDelta         `json:"delta,omitzero"`
}

func (s *geminiState) size() int {
	return len(s.ProjectHash) + len(s.Agent) + 48*len(s.Stated) + len(s.Delta.Words) + len(s.Delta.From.Raw)
}

// geminiDocument is how a document began that is rewritten in place: messages that it
// still begins with need not be looked at again, however many they are.
type geminiDocument struct {
	Messages int         `json:"n,omitzero"`
	Digest   fingerprint `json:"d,omitzero"`
}

// geminiDelta is a text of the stream that is being joined.
type geminiDelta struct {
	From  held   `json:"from,omitzero"` // the last delta
	Words string `json:"w,omitzero"`
}

// geminiRecord is a line of a session's file, a whole document, or a line of the stream,
// in the vendor's names.
type geminiRecord struct {
	geminiMessage `json:",embed"`
	geminiStream  `json:",embed"`

	SessionID      text           `json:"sessionId"`
	SessionIDSnake text           `json:"session_id"`
	ProjectHash    text           `json:"projectHash"`
	StartTime      text           `json:"startTime"`
	LastUpdated    text           `json:"lastUpdated"`
	Kind           text           `json:"kind"`
	Summary        text           `json:"summary"`
	Directories    list[text]     `json:"directories"`
	Messages       jsontext.Value `json:"messages"`
	History        jsontext.Value `json:"history"`
	Set            jsontext.Value `json:"$set"`
	RewindTo       text           `json:"$rewindTo"`

	set geminiSet // the members of Set that are known
}

// geminiFold is the work on one record.
type geminiFold struct {
	*fold
	geminiRecord

	number  int  // of the element of a document at work, from 1; 0 where the record's own counts
	unnamed int  // events of that element without an id so far
	history bool // the element is of a history that is written again
	copied  bool // and the session has never seen it

	own      bool // an element that is done has an event
	mirrored bool // something was told by another record before
}

// Normalize maps one record. Only the deltas of the stream are held: the end of input
// lets them go.
func (gemini) Normalize(s *Session, r Record) (Result, error) {
	g := &geminiFold{}
	if r.Origin.End {
		g.fold = s.begin(r, "")
		g.flush()
		return g.done("")
	}
	if err := readRecord(r.Data, &g.geminiRecord); err != nil {
		return Result{}, err
	}
	readObject(g.Set, &g.set)
	g.fold = s.begin(r, g.time())
	g.learn()
	skip := g.record()
	if g.own {
		g.first, skip = -1, ""
	}
	return g.done(skip)
}

// time is the record's own time in the form of an event; empty when it has none.
func (r *geminiRecord) time() string {
	for _, v := range []text{r.Timestamp, r.StartTime, r.set.LastUpdated} {
		if ts, ok := parseTime(string(v)); ok {
			return ts
		}
	}
	return ""
}

// isHeader: the line that begins a session's file, which a document holds too.
func (r *geminiRecord) isHeader() bool {
	return r.SessionID != "" && r.ProjectHash != "" && r.Type == ""
}

// geminiSet are the members of a patch that are true for the session from then on.
type geminiSet struct {
	SessionID   text       `json:"sessionId"`
	ProjectHash text       `json:"projectHash"`
	LastUpdated text       `json:"lastUpdated"`
	Kind        text       `json:"kind"`
	Directories list[text] `json:"directories"`
}

// learn takes from the record what is true for the session from now on.
func (g *geminiFold) learn() {
	is := geminiSet{SessionID: g.SessionID, ProjectHash: g.ProjectHash, Kind: g.Kind, Directories: g.Directories}
	if g.Set != nil {
		is = g.set
	}
	state := &g.s.Gemini
	g.s.setResumeID(string(cmp.Or(is.SessionID, g.SessionIDSnake)))
	if is.ProjectHash != "" && len(is.ProjectHash) <= maxPath {
		state.ProjectHash = string(is.ProjectHash)
	}
	switch {
	case is.Kind == "subagent" && len(is.SessionID) <= maxPath:
		state.Agent = string(cmp.Or(is.SessionID, text(g.s.id)))
	case is.Kind != "":
		state.Agent = ""
	}
	for _, dir := range is.Directories {
		// The project is the directory that its hash was made of.
		if hexHash(string(dir)) == state.ProjectHash {
			g.s.setRoot(string(dir))
		}
	}
}

// put emits an event of this record; id is empty where the vendor gives none.
func (g *geminiFold) put(id text, d draft) bool {
	if id == "" && g.number > 0 {
		id = text("@" + strconv.Itoa(g.number))
		if g.unnamed > 0 {
			id += text("." + strconv.Itoa(g.unnamed))
		}
		g.unnamed++
	}
	d.EventID = string(id)
	if agent := g.s.Gemini.Agent; agent != "" {
		d.thread = fingerprintOf("agent", agent)
		d.AgentID, d.IsInternal = &agent, true
	}
	if g.copied && d.Origin == "" && d.EventType != envelopes.SessionSummary {
		d.Origin = envelopes.OriginCopied
	}
	return g.emit(d)
}

// runtime emits an event in which the runtime speaks, not the conversation.
func (g *geminiFold) runtime(id text, t envelopes.EventType, words text) {
	d := draft{as: envelopes.RoleSystem, on: envelopes.ChannelSystem}
	d.EventType, d.Text = t, words.ptr()
	g.put(id, d)
}

// record maps the record by what it is, and says why there is no event where there is
// none.
func (g *geminiFold) record() SkipReason {
	switch {
	case jsontext.Value(g.r.Data).Kind() == '[':
		return g.document(elementsOf(g.r.Data))
	case g.Messages.Kind() == '[':
		return g.session(elementsOf(g.Messages))
	case g.History.Kind() == '[':
		return g.document(elementsOf(g.History))
	case g.Set.Kind() == '{':
		return g.patch()
	case g.RewindTo != "":
		g.runtime("", envelopes.Meta, "")
	case g.isHeader():
		g.header()
	case g.isStream():
		return g.stream()
	case g.isMessage():
		g.message(&g.geminiMessage)
		return g.skipped()
	default:
		g.runtime(g.ID, envelopes.Meta, "")
	}
	return SkipDuplicate
}

// skipped is why nothing of what was looked at is told.
func (g *geminiFold) skipped() SkipReason {
	switch {
	case g.mirrored:
		return SkipMirror
	case g.told:
		return SkipDuplicate
	default:
		return SkipEmpty
	}
}

// header emits the line that begins a session's file.
func (g *geminiFold) header() {
	g.runtime("", envelopes.Meta, "")
	g.summary(g.Summary)
}

// summary emits the summary of the session, unless it is the last one stated.
func (g *geminiFold) summary(words text) {
	if words == "" || !g.states("summary", words) {
		return
	}
	d := draft{on: envelopes.ChannelChat}
	d.EventType, d.Text = envelopes.SessionSummary, words.ptr()
	g.put("", d)
}

// states reports whether a value differs from the last one of its name in the session.
func (g *geminiFold) states(name string, value text) bool {
	is := statedValue{Type: cut(name, maxName), Value: fingerprintOf(string(value))}
	last := &g.s.Gemini.Stated
	if slices.Contains(*last, is) {
		g.told = true
		return false
	}
	others := last.without(func(v statedValue) bool { return v.Type == is.Type })
	*last = others.push(is, maxStated, &g.s.state.Forgotten)
	return true
}

// session maps a session in one document, which is rewritten in place. Of its messages
// those that cannot have changed are passed over.
func (g *geminiFold) session(messages []jsontext.Value) SkipReason {
	before := g.s.Gemini.Document
	from := 0
	if before.Messages > 0 && before.Messages <= len(messages) && digestOf(messages[:before.Messages]) == before.Digest {
		from, g.told = before.Messages, true
	}
	g.elements(messages, from)
	if n := max(0, len(messages)-geminiTail); n > 0 {
		g.s.Gemini.Document = geminiDocument{n, digestOf(messages[:n])}
	}
	// What the document states beside its messages comes after them; it is not carried
	// by more than one event.
	raw := jsontext.Value(g.r.Data)
	if g.own {
		raw = nil
	}
	g.begin(len(messages)+1, raw, "")
	g.summary(g.Summary)
	g.end()
	return g.skipped()
}

// digestOf hashes the messages that a document begins with.
func digestOf(messages []jsontext.Value) fingerprint {
	h := sha256.New()
	for _, m := range messages {
		_, _ = h.Write(m) // never fails by contract
		_, _ = h.Write([]byte{0xff})
	}
	return fingerprint(h.Sum(nil)[:6])
}

// document maps an array: the contents of a saved conversation, or typed prompts. One
// that holds neither is kept whole.
func (g *geminiFold) document(elements []jsontext.Value) SkipReason {
	if len(elements) == 0 {
		return SkipEmpty
	}
	for _, e := range elements {
		var m geminiMessage
		if readObject(e, &m); m.isMessage() {
			g.elements(elements, 0)
			return g.skipped()
		}
	}
	g.runtime("", envelopes.Meta, "")
	return SkipDuplicate
}

// elements maps the messages of a document from the given one on.
func (g *geminiFold) elements(elements []jsontext.Value, from int) {
	messages := make([]geminiMessage, len(elements))
	for i := from; i < len(elements); i++ {
		readObject(elements[i], &messages[i])
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
func (g *geminiFold) begin(n int, raw jsontext.Value, timestamp text) {
	g.number, g.unnamed, g.raw, g.first = n, 0, raw, -1
	if g.history {
		g.number = 0
	}
	if ts, ok := parseTime(string(timestamp)); ok {
		g.ts = ts
	} else if g.s.TS != "" {
		g.ts = g.s.TS
	}
}

// end finishes an element: its first event carries it.
func (g *geminiFold) end() {
	if g.first >= 0 {
		g.events[g.first].Event.Raw = carried(g.raw)
		g.own = true
	}
	g.number, g.raw, g.first, g.copied = 0, g.r.Data, -1, false
}

// patch maps what a line changes in the session: messages that replace the history, a
// summary, and values of which only is told that they were set.
func (g *geminiFold) patch() SkipReason {
	ts := g.ts
	changed, stated := false, false
	var summary text
	for _, m := range membersOf(g.Set) {
		changed = changed || m.name != "lastUpdated"
		switch {
		case m.name == "lastUpdated":
		case m.name == "messages" && m.value.Kind() == '[':
			g.history = true
			g.elements(elementsOf(m.value), 0)
			g.history, g.ts = false, ts
		case m.name == "summary" && m.value.Kind() == '"':
			summary = text(unquote(m.value))
		case m.name == "sessionId":
			stated = true // a session that goes on says so each time
		default:
			stated = g.states(m.name, text(compactText(m.value))) || stated
		}
	}
	if !changed {
		return SkipHeartbeat
	}
	g.summary(summary)
	if stated {
		g.runtime("", envelopes.Meta, "")
	}
	g.end()
	return g.skipped()
}
