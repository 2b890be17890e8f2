// Package cline normalizes the tasks of Cline, and those of Roo Code and Kilo Code, which write the same files.
//
// Start with [Vendor]. The function read first collects the statements of every element of a document (shown.go for
// the messages shown to the human, sent.go for those sent to the model); then [mapper.write] writes those that are new.
//
// The invariant: the two files of a task state the same conversation. A statement of both has an id made of its
// content, so that it is a duplicate in the file that is read second. README.md has the rules.
package cline

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/chat"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// normalize maps a record to events.
var normalize = chat.Normalizer(tools, read)

// kind is the kind of a statement. The kinds up to call are in both files.
type kind string

const (
	prompt    kind = "prompt"
	attached  kind = "attached" // a prompt without a text
	answer    kind = "answer"
	thought   kind = "thought"
	summary   kind = "summary"
	call      kind = "call"
	result    kind = "result"
	injected  kind = "injected"
	failure   kind = "failure"
	usage     kind = "usage"
	note      kind = "note" // kept as a meta
	unknown   kind = "unknown"
	withdrawn kind = "" // another statement has all of it
)

// statement is what an element states.
type statement struct {
	kind   kind
	text   string // of an unknown statement its type
	code   string // of a failure, or type of the message that states a usage
	number int    // among the statements of the document with this kind and key
	call   chat.Call
	of     *statement  // call of a result; nil if it is not known
	result chat.Result // without its id
	tokens chat.Tokens
	key    string // content that the statement has in both files
}

// id returns the id that the statement has in both files.
func (s *statement) id() lenient.Text {
	f, _ := core.FingerprintOf(string(s.kind), s.key, strconv.Itoa(s.number)).MarshalText() // never fails
	return lenient.Text("@" + string(f))
}

// message is an element with its statements.
type message struct {
	element
	statements []*statement
	model      string // in the environment that it states
}

// mapper writes the events of one document.
type mapper struct {
	*chat.Writer
	isSession bool         // the document of a session, whose messages have ids
	base      lenient.Text // id of the element; empty for that of its place
	further   int          // events of the element with an id made of base
}

// read writes the events of a document.
func read(w *chat.Writer, r *record) {
	m := &mapper{Writer: w}
	data := jsontext.Value(w.Record.Data)
	var elements []jsontext.Value
	switch {
	case r.Messages.Kind() == '[':
		m.isSession = true
		m.beginSession(r)
		elements = lenient.Elements(r.Messages)
	case data.Kind() == '[':
		elements = lenient.Elements(data)
	default: // a message of a damaged file
		m.write(&readAll(w, []jsontext.Value{data}, false)[0])
		return
	}
	if len(elements) > 0 && elements[0].Kind() != '{' {
		w.UnknownRecord("array")
		return
	}
	messages := readAll(w, elements, true)
	isShown, name := len(messages) > 0 && messages[0].isShown(), "sent"
	if isShown {
		name = shownBefore
	}
	next := 0
	w.Elements(name, elements, func(raw jsontext.Value) {
		for &elements[next][0] != &raw[0] {
			next++ // an element that was read before is not read again
		}
		m.write(&messages[next])
	})
	if isShown {
		w.Remember(shownBefore, "read")
	}
}

// shownBefore is remembered of a session whose messages shown to the human were read; it is the name of their document.
const shownBefore = "shown"

// readAll returns the statements of all elements, because an element may repeat the one before it, or have the result
// of an earlier call.
func readAll(w *chat.Writer, elements []jsontext.Value, isFile bool) []message {
	d := document{calls: make(map[string]*statement), open: make(map[string]*statement), outputs: make(map[*statement]*statement)}
	messages := make([]message, len(elements))
	for i, raw := range elements {
		e := &messages[i].element
		lenient.ReadObject(raw, e)
		d.statements, d.model = nil, ""
		switch {
		case e.isShown():
			d.readShown(e, isFile && i == 0, isFile && i == len(elements)-1)
		case raw.Kind() == '{' && (e.Role != "" || e.Content != nil || e.Type == "user" || e.Type == "assistant" || e.Type == "reasoning"):
			d.readSent(e)
		default:
			d.add(unknown, string(e.Type))
		}
		messages[i].statements, messages[i].model = d.statements, d.model
	}
	numbers := make(map[string]int)
	for i := range messages {
		for _, s := range messages[i].statements {
			key := string(s.kind) + " " + s.key
			numbers[key]++
			s.number = numbers[key]
		}
	}
	w.Session.SetRoot(d.root)
	return messages
}

// isShown reports whether an element is a message shown to the human.
func (e *element) isShown() bool { return e.Type == "say" || e.Type == "ask" }

// time returns the time of an element, in milliseconds since 1970.
func (e *element) time() lenient.Number {
	if e.TS.OK {
		return e.TS
	}
	return e.Timestamp
}

// document has the statements of an element, and what is known from the elements before it.
type document struct {
	statements []*statement              // of the element
	calls      map[string]*statement     // of the tool_use with this id
	open       map[string]*statement     // the last one of the tool with this name
	unanswered []*statement              // calls of the last answer without results
	outputs    map[*statement]*statement // the result of a call that was shown
	isAsk      bool                      // the element asks the human
	asked      *statement                // call or answer in the question just before, which a say may repeat
	root       string                    // folder of the task
	model      string                    // that the element states in its environment
}

// The environment of a task, as Cline describes it to the model.
var (
	folder     = regexp.MustCompile(`# Current (?:Workspace|Working) Directory \(([^)\n]+)\)`)
	modelInUse = regexp.MustCompile(`# Current Mode\n(?:<slug>[^\n]*\n)?(?:<name>[^\n]*\n)?<model>([^<\n]+)</model>`)
)

// readEnvironment notes the folder and the model that a text states.
func (d *document) readEnvironment(text string) {
	_, text, ok := strings.Cut(text, "<environment_details>")
	if !ok {
		return
	}
	if found := folder.FindStringSubmatch(text); found != nil && d.root == "" {
		d.root = found[1]
	}
	if found := modelInUse.FindStringSubmatch(text); found != nil {
		d.model = found[1]
	}
}

// add notes a statement. Speech without a text states nothing.
func (d *document) add(k kind, text string) *statement {
	s := &statement{kind: k, text: text, key: squeezed(text)}
	switch k {
	case prompt, answer, thought, summary, injected:
		if s.key == "" {
			return s
		}
		if k == prompt {
			s.key = mention.ReplaceAllString(s.key, "$1")
		}
	case attached, call, result, failure, usage, note, unknown, withdrawn:
	}
	d.statements = append(d.statements, s)
	return s
}

// mention matches a file or page that a prompt names.
var mention = regexp.MustCompile(`@/?(\S+)`)

// addCall notes the call of a tool.
func (d *document) addCall(id, name string, args jsontext.Value) *statement {
	s := d.add(call, "")
	var a arguments
	lenient.ReadObject(args, &a)
	s.call = chat.Call{ID: lenient.Text(id), Name: lenient.Text(name), Arguments: args, File: a.Absolute}
	s.key = keyOf(name, &a)
	d.open[name] = s
	if strings.HasPrefix(s.key, "mcp ") {
		d.open["mcp"] = s
	}
	return s
}

// write writes the events of an element.
func (m *mapper) write(e *message) {
	ts := e.time()
	if at, ok := core.TimeOfMillis(ts); ok {
		m.TS = at
		if m.isSession {
			m.Copied = isBefore(ts, m.Session.ID())
		}
	}
	m.base, m.further = "", 0
	switch {
	case m.isSession:
		m.ID = e.ID
	case e.isShown() && ts.OK:
		m.base = lenient.Text(strconv.FormatInt(ts.Count(), 10))
	}
	m.Session.SetModel(e.model)
	if info := e.ModelInfo.Value; info.ModelID != "" || info.ID != "" {
		m.Model = info.ModelID + info.ID
		m.Session.SetModel(string(m.Model))
	}
	for _, s := range e.statements {
		m.writeStatement(e, s)
	}
}

// writeStatement writes the event of a statement, unless the other file stated it before.
func (m *mapper) writeStatement(e *message, s *statement) {
	switch s.kind {
	case call:
		m.writeCall(e, s)
		return
	case result:
		m.writeResult(e, s)
		return
	case withdrawn:
		return
	case prompt, attached, answer, thought, summary:
		if m.isSession {
			break
		}
		if m.Session.HasEvent(string(s.id())) {
			m.Skip = core.SkipMirror
			return
		}
		m.SetID(s.id())
	default:
		m.useElementID()
	}
	text := lenient.Text(s.text)
	switch s.kind {
	case prompt:
		if m.Agent != "" {
			m.Prompt(text)
		} else {
			m.Say(core.SpeechHuman, text)
		}
	case attached:
		m.Attach()
	case answer:
		m.Answer(text)
	case thought:
		m.Think(text)
	case summary:
		m.Say(core.SpeechSummary, text)
	case injected:
		m.Say(core.SpeechInjected, text)
	case failure:
		m.Error(lenient.Text(s.code), text)
	case usage:
		m.writeUsage(e, s)
	case note:
		m.System(envelopes.Meta, text)
	case unknown:
		m.UnknownRecord(e.Type, lenient.Text(s.text))
	case call, result, withdrawn:
	}
}

// useElementID gives the next event an id made of that of its element.
func (m *mapper) useElementID() {
	if m.isSession {
		return
	}
	id := m.base
	if id != "" && m.further > 0 {
		id += lenient.Text("#" + strconv.Itoa(m.further))
	}
	m.further++
	m.SetID(id)
}

// sentKey returns the key under which a session remembers that the messages sent to the model have a call.
func sentKey(s *statement) core.Fingerprint { return core.FingerprintOf("sent", string(s.id())) }

// writeCall writes a call. The messages sent to the model alone have its id and its whole result, so a result that is
// shown does not count once they have the call.
func (m *mapper) writeCall(e *message, s *statement) {
	c, id := s.call, s.id()
	_, isSent := m.Session.IDs.Get(sentKey(s))
	switch isWritten := m.Session.HasEvent(string(id)); {
	case m.isSession:
	case e.isShown():
		if isSent || isWritten {
			m.Skip = core.SkipMirror
			return
		}
		c.ID = id
	default:
		if !isSent {
			m.Session.IDs.Put(sentKey(s), core.Fingerprint{1})
		}
		if isWritten {
			m.Skip = core.SkipMirror
			return
		}
		if c.ID == "" {
			c.ID = id
		}
	}
	m.Call(c)
}

// writeResult writes the result of a call.
func (m *mapper) writeResult(e *message, s *statement) {
	r := s.result
	switch {
	case m.isSession || s.of == nil:
	case e.isShown():
		if _, isSent := m.Session.IDs.Get(sentKey(s.of)); isSent {
			m.Skip = core.SkipMirror
			return
		}
		r.ID = s.of.id()
	case m.Session.HasEvent(string(s.of.id())):
		r.ID, r.Name = s.of.id(), "" // the call that was written may have another name
	case r.ID == "":
		r.ID = cmp.Or(s.of.call.ID, s.of.id())
	}
	if r.Text == nil {
		r.Text = &s.text
	}
	if m.IsShell(r.ID, r.Name) {
		r.Exit = core.ExitCode(exits(), *r.Text)
		r.Failed = r.Failed || hasPrefix(*r.Text, "Command terminated by signal ", "Command cancelled.")
		r.Running = hasPrefix(*r.Text, "Command is still running", "Command timed out after ",
			"Command execution timed out after ")
	}
	m.Result(r)
}

// exits match where the result of a command states its exit code.
var exits = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:` +
		`Command executed in [^\n]*?(?:\. |adjust as needed\.\n)Exit code: (-?\d{1,10})(?:\n|$)|` +
		`\[Command exited with code (-?\d{1,10})\]|` +
		`Command (?:executed successfully \(exit code (0)\)|failed with exit code (-?\d{1,10}))\.(?:\n|$))`)
})

// writeUsage writes the tokens of an API call. Both files of a task state them. The messages shown to the human have
// more figures, which are added to those of the other file.
func (m *mapper) writeUsage(e *message, s *statement) {
	id := m.ID
	switch {
	case m.isSession:
	case s.code == "deleted_api_reqs" && m.Remembered(shownBefore) != "":
		return // the requests were counted before they were deleted
	default:
		const byShown, bySent = 1, 2
		mine, key := byte(bySent), core.FingerprintOf("used", string(s.id()))
		by, ok := m.Session.IDs.Get(key)
		if e.isShown() {
			mine = byShown
		}
		switch {
		case !ok:
			m.Session.IDs.Put(key, core.Fingerprint{mine})
		case by[0] == byShown && mine == bySent:
			m.Skip = core.SkipMirror
			return
		}
		if id = s.id(); mine == byShown && (!ok || by[0] == byShown) {
			id = m.base
		}
	}
	m.Use(id, s.tokens)
}

// isBefore reports whether a time is before the start of a session, with which its id begins. A fork begins with the
// messages of the session that it was forked from.
func isBefore(millis lenient.Number, session string) bool {
	at, _, _ := strings.Cut(session, "_")
	start, err := strconv.ParseInt(at, 10, 64)
	return err == nil && len(at) == len("1767200000000") && millis.Count() < start
}

// beginSession notes what the document of a session states about it.
func (m *mapper) beginSession(r *record) {
	m.Session.SetResumeID(string(r.SessionID))
	if _, after, ok := strings.Cut(string(r.SystemPrompt), "Working Directory: "); ok {
		root, _, _ := strings.Cut(after, "\n")
		m.Session.SetRoot(strings.TrimSpace(root))
	}
	if r.Agent != "lead" {
		m.Agent = r.Agent
	}
}
