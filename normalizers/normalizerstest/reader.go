package normalizerstest

import (
	"bytes"
	"path"
	"reflect"
	"slices"
	"strings"
)

// Reader reads the log of an agent a second time, record by record, for the suites of vendors with a plain log. It
// collects an [Account] and is a [Ledger]. A vendor's reader says what each record states; what it states again under
// the same id counts once.
type Reader struct {
	Session string // of the record
	Agent   string // subagent of the record; empty for the main conversation
	Copied  bool   // the record is history of another session

	account *Account
	line    int
	seen    map[string]string // contents, by session and id
	names   map[string]string // of tools, by session and call
	notes   map[string]string // by session and name
	bills   map[string]*bill  // by session
}

// bill has the tokens of a session.
type bill struct {
	calls map[string]Tokens // the highest counts, by API call
	sum   Figures
}

// newReader returns a reader that has read nothing.
func newReader() *Reader {
	return &Reader{account: &Account{Naive: make(map[string]Figures)}, seen: make(map[string]string), names: make(map[string]string), notes: make(map[string]string), bills: make(map[string]*bill)}
}

// Reading is how the records of a vendor are read a second time.
type Reading struct {
	// Session returns the session that a record states; empty for none.
	Session func(record any) string
	// Read notes what a record states. It may set the Agent.
	Read func(r *Reader, record any)
}

// Interpret implements [Suite.Interpret].
func (g Reading) Interpret(name string, lines []Line) Account {
	r := newReader()
	r.account.Sessions = SessionsOf(name, lines, g.Session)
	for i, l := range lines {
		r.line, r.Session, r.Agent, r.Copied = l.Number, r.account.Sessions[i], "", false
		if !l.Bad {
			g.Read(r, Parse(l.Data))
		}
		r.account.Threads = append(r.account.Threads, RawThread{Agent: r.Agent, Internal: r.Agent != ""})
	}
	return *r.account
}

// Ledger implements [Suite.Ledger].
func (g Reading) Ledger() Ledger { return &readingLedger{g, newReader()} }

// readingLedger counts the tokens of records that a [Reading] reads.
type readingLedger struct {
	reading Reading
	reader  *Reader
}

// Add implements [Ledger].
func (l *readingLedger) Add(session string, data []byte) {
	l.reader.Session, l.reader.Agent, l.reader.Copied = session, "", false
	l.reading.Read(l.reader, Parse(data))
}

// Sums implements [Ledger].
func (l *readingLedger) Sums(session string) Figures {
	if b := l.reader.bills[session]; b != nil {
		return b.sum
	}
	return Figures{}
}

// SessionsOf returns the session of each record of a file: the one that it states, else the last one stated, else the
// first one that follows, else the name of the file.
func SessionsOf(name string, lines []Line, stated func(record any) string) []string {
	last := strings.TrimSuffix(path.Base(name), path.Ext(name))
	for _, l := range lines {
		if id := statedBy(l, stated); id != "" {
			last = id
			break
		}
	}
	out := make([]string, 0, len(lines))
	for _, l := range lines {
		if id := statedBy(l, stated); id != "" {
			last = id
		}
		out = append(out, last)
	}
	return out
}

func statedBy(l Line, stated func(record any) string) string {
	if l.Bad {
		return ""
	}
	return stated(Parse(l.Data))
}

// isNew reports whether the content is new for this id in the session. Without an id it always is.
func (r *Reader) isNew(id, content string) bool {
	if id == "" {
		return true
	}
	id = r.Session + "\x00" + id
	if was, ok := r.seen[id]; ok && was == content {
		return false
	}
	r.seen[id] = content
	return true
}

// Say notes a message, unless it is blank: who is human, agent or assistant. id is unique among the messages of a
// session, and empty if the record states none.
func (r *Reader) Say(who, id, text string) {
	if who == "human" && r.Copied {
		who = "user_message of origin copied"
	}
	if text = strings.TrimSpace(text); text != "" && r.isNew(id, who+text) {
		r.account.Talk = append(r.account.Talk, Utterance{Session: r.Session, Who: who, Text: text, Line: r.line})
	}
}

// Note keeps a value for later records of the session.
func (r *Reader) Note(name, value string) { r.notes[r.Session+"\x00"+name] = value }

// Noted returns what [Reader.Note] kept last.
func (r *Reader) Noted(name string) string { return r.notes[r.Session+"\x00"+name] }

// Call notes the call of a tool, each id once.
func (r *Reader) Call(id, name string) {
	if r.isNew("call "+id, "") {
		r.account.Calls = append(r.account.Calls, ToolUse{Session: r.Session, ID: id, Name: name, Line: r.line})
		r.names[r.Session+"\x00"+id] = name
	}
}

// Inner notes that a call in a record of the main conversation is one of a subagent.
func (r *Reader) Inner(id, agent string) {
	if r.account.Inner == nil {
		r.account.Inner = make(map[[2]string]string)
	}
	r.account.Inner[[2]string{r.Session, id}] = agent
}

// Tool returns the name of the tool of a call; empty if the call is not known.
func (r *Reader) Tool(id string) string { return r.names[r.Session+"\x00"+id] }

// Result notes the result of a call, each id once; without an id it is always a new one. code is the exit code that it states, nil for none; form is where
// it states that.
func (r *Reader) Result(id string, code *int64, form string) {
	if id == "" || r.isNew("result "+id, "") {
		r.account.Results = append(r.account.Results, ToolOutcome{Session: r.Session, ID: id, Code: code, Form: form, Line: r.line})
	}
}

// Tokens are the counts of an API call as the vendor states them: Input includes the cache, and Output the reasoning,
// if the vendor's do.
type Tokens struct {
	Input, CacheRead, CacheWrite, Output, Reasoning int64

	CacheInInput, ReasoningInOutput bool
	CacheWrite1h                    int64 // part of CacheWrite
	Cost                            int64 // see [CostOf]
}

// Use notes the tokens of an API call. Of counts stated several times under an id the highest count; without an id
// each statement is a call of its own.
func (r *Reader) Use(call string, t Tokens) {
	b := r.bills[r.Session]
	if b == nil {
		b = &bill{calls: make(map[string]Tokens)}
		r.bills[r.Session] = b
	}
	naive := r.account.Naive[r.Session]
	naive.Add(t.figures())
	r.account.Naive[r.Session] = naive
	was := b.calls[call]
	if call == "" {
		was = Tokens{}
	}
	now := t
	for to, before := range map[*int64]int64{
		&now.Input: was.Input, &now.CacheRead: was.CacheRead, &now.CacheWrite: was.CacheWrite,
		&now.Output: was.Output, &now.Reasoning: was.Reasoning, &now.CacheWrite1h: was.CacheWrite1h, &now.Cost: was.Cost,
	} {
		*to = max(*to, before)
	}
	b.calls[call] = now
	if r.Copied {
		return // what is copied once is never billed here
	}
	was.CacheInInput, was.ReasoningInOutput = t.CacheInInput, t.ReasoningInOutput
	more, less := now.figures(), was.figures()
	b.sum.Add(more)
	b.sum.Add(less.Negative())
}

// figures returns the counts as events have them.
func (t Tokens) figures() Figures {
	f := Figures{
		Input: t.Input, Output: t.Output, Cached: t.CacheRead, Thinking: t.Reasoning,
		UsageInput: t.Input, CacheRead: t.CacheRead, CacheWrite: t.CacheWrite, UsageOutput: t.Output, UsageReasoning: t.Reasoning,
		CacheWrite1h: t.CacheWrite1h, Cost: t.Cost,
	}
	if t.CacheInInput {
		f.UsageInput -= t.CacheRead + t.CacheWrite
	}
	if t.ReasoningInOutput {
		f.UsageOutput -= t.Reasoning
	}
	f.Total = f.UsageInput + f.CacheRead + f.CacheWrite + f.UsageOutput + f.UsageReasoning
	return f
}

// Negative returns the figures with the sign changed.
func (f Figures) Negative() Figures {
	return Figures{
		Input: -f.Input, Output: -f.Output, Cached: -f.Cached, Thinking: -f.Thinking, Tool: -f.Tool, Total: -f.Total,
		UsageInput: -f.UsageInput, CacheRead: -f.CacheRead, CacheWrite: -f.CacheWrite, UsageOutput: -f.UsageOutput, UsageReasoning: -f.UsageReasoning,
		CacheWrite1h: -f.CacheWrite1h, WebSearches: -f.WebSearches, Cost: -f.Cost,
	}
}

// Attach notes a prompt of a human that has attachments and no text.
func (r *Reader) Attach(id string) {
	who := "human"
	if r.Copied {
		who = "user_message of origin copied"
	}
	if r.isNew(id, "attachment") {
		r.account.Talk = append(r.account.Talk, Utterance{Session: r.Session, Who: who, Line: r.line})
	}
}

// RawOf returns the [Suite.Raw] of a vendor with documents: elements returns those of a record. The raw of an event is
// an element, or the record itself if no element has an event.
func RawOf(elements func(record any) []any) func(record []byte) func(raw []byte) (ok, known bool) {
	return func(record []byte) func(raw []byte) (ok, known bool) {
		whole := Plain(record)
		parts := elements(whole)
		if len(parts) == 0 {
			return NoRaw
		}
		return PartOf(append(slices.Clip(parts), whole))
	}
}

// NoRaw is what [Suite.Raw] returns for a record that it knows nothing about.
func NoRaw([]byte) (ok, known bool) { return false, false }

// PartOf is what [Suite.Raw] returns for a document of some parts: raw is one of them, or leaves out what is large; an
// event without raw has none of them.
func PartOf(parts []any) func(raw []byte) (ok, known bool) {
	return func(raw []byte) (ok, known bool) {
		if len(raw) == 0 || bytes.Contains(raw, []byte(`"$elided"`)) {
			return true, true
		}
		is := Plain(raw)
		return slices.ContainsFunc(parts, func(p any) bool { return reflect.DeepEqual(p, is) }), true
	}
}
