// Package printer prints events and dead letters: as lines for people ([Pretty]), and as lines of JSON in the forms
// of --as ([Lines]). It reads no broker and no settings.
package printer

import (
	"bytes"
	"cmp"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
	"tributary/pipeline/events"
)

// Pretty prints events for people: one line each, below a heading when the session changes, and below a date when the
// day changes.
type Pretty struct {
	Match *regexp.Regexp // each line shows and marks its first match in a text; nil to show the beginnings of texts

	w      io.Writer
	colour bool
	width  int              // of a line
	last   events.SessionID // session of the last event
	day    string           // of the last event
}

// NewPretty returns a printer on w, which is standard output. On a terminal it prints above the status line, which
// may be nil, and in colours if colour is set.
func NewPretty(w io.Writer, status *terminal.StatusLine, colour bool) *Pretty {
	p := &Pretty{w: w, width: terminal.PlainWidth}
	if terminal.IsTerminal(w) {
		p.colour = colour
		p.width = terminal.Columns(w.(*os.File))
		if status != nil {
			p.w = status.Above(w)
		}
	}
	return p
}

// Write prints lines, which must be safe, above the status line.
func (p *Pretty) Write(lines []byte) (int, error) { return p.w.Write(lines) }

// Width returns the width of a line.
func (p *Pretty) Width() int { return p.width }

// Event prints one event.
func (p *Pretty) Event(e *envelopes.AgentEventV1) error {
	var b bytes.Buffer
	p.heading(&b, events.SessionID{Source: e.Source, Session: e.SessionID}, e.ProjectRoot)
	when := "--:--:--"
	if t, err := e.Timestamp(); err == nil {
		t = t.Local()
		when = t.Format(time.TimeOnly)
		if day := t.Format("2006-01-02 Mon"); day != p.day {
			p.day = day
			b.WriteString("  " + p.Style(terminal.Faint, day) + "\n")
		}
	}
	note := ""
	if e.TokensTotal != nil && *e.TokensTotal > 0 {
		note = terminal.Thousands(*e.TokensTotal) + " tokens"
	}
	subject, text := describe(e, p.Match)
	p.row(&b, row{when: when, kind: terminal.OneLine(string(e.EventType)), kindStyle: colourOf(e), subject: subject, text: text, textStyle: textStyle(e), note: note})
	_, err := p.w.Write(b.Bytes())
	return err
}

// Letter prints a dead letter.
func (p *Pretty) Letter(l *events.DeadLetter) error {
	var b bytes.Buffer
	p.heading(&b, events.SessionID{Source: l.Source, Session: l.Session}, nil)
	text := terminal.OneLine(l.Reason + ": " + l.Error)
	p.row(&b, row{kind: "dead letter", kindStyle: terminal.Red, text: text, note: "record " + strconv.FormatUint(l.Sequence, 10)})
	_, err := p.w.Write(b.Bytes())
	return err
}

// heading writes the name of a session if the last line was of another.
func (p *Pretty) heading(b *bytes.Buffer, key events.SessionID, project *string) {
	if key == p.last {
		return
	}
	if p.last != (events.SessionID{}) {
		b.WriteByte('\n')
	}
	p.last = key
	name := terminal.Cut(terminal.OneLine(string(key.Source)+" "+key.Session), p.width)
	b.WriteString(p.Style(terminal.Bold, name))
	if left := p.width - terminal.WidthOf(name) - 2; project != nil && left > 8 {
		b.WriteString("  " + p.Style(terminal.Faint, terminal.CutPath(terminal.OneLine(*project), left)))
	}
	b.WriteByte('\n')
}

// row is the line of an event or a dead letter.
type row struct {
	when                      string
	kind, subject, text, note string // the subject is what the text is about
	kindStyle, textStyle      terminal.Style
}

// row writes a line, with its text cut to the width of the terminal.
func (p *Pretty) row(b *bytes.Buffer, r row) {
	const kindWidth = 17 // the width of assistant_message
	left := p.width - len("  hh:mm:ss  ") - kindWidth - 2
	if r.note != "" {
		left -= len(r.note) + 2
	}
	b.WriteString("  " + p.Style(terminal.Faint, terminal.Pad(r.when, len("hh:mm:ss"))) + "  " + p.Style(r.kindStyle, terminal.Pad(r.kind, kindWidth)) + "  " + p.content(&r, left))
	if r.note != "" {
		b.WriteString("  " + p.Style(terminal.Faint, r.note))
	}
	b.WriteByte('\n')
}

// marked styles a text and marks the matches in it.
func (p *Pretty) marked(s terminal.Style, text string) string {
	if !p.colour {
		return text
	}
	return terminal.Mark(text, p.Match, s)
}

// End does nothing: no output is pending.
func (p *Pretty) End() error { return nil }

// content returns the subject and the text of a row, cut to a width. A match in the text stays and is marked.
func (p *Pretty) content(r *row, width int) string {
	line := strings.TrimSpace(r.subject + " " + r.text)
	left := width - terminal.WidthOf(r.subject) - 1
	if p.Match == nil || r.subject == "" || r.text == "" || left < minMatched {
		return p.marked(r.textStyle, terminal.CutAround(line, p.Match, width))
	}
	return p.Style(r.textStyle, r.subject+" ") + p.marked(r.textStyle, terminal.CutAround(r.text, p.Match, left))
}

// minMatched is the least width beside the subject for a text with a match.
const minMatched = 12

// describe returns the content of an event: the subject (agent, tool, outcome and file) and the text, each on one
// line and safe for a terminal. The text has the first match of match, which may be nil. At least one of them is not
// empty.
func describe(e *envelopes.AgentEventV1, match *regexp.Regexp) (subject, text string) {
	var parts []string
	add := func(s string) {
		if s = terminal.OneLine(s); s != "" {
			parts = append(parts, s)
		}
	}
	if e.AgentID != nil {
		add("[" + *e.AgentID + "]")
	}
	if e.ToolName != nil {
		add(*e.ToolName)
	}
	if e.EventType == envelopes.ToolResult && e.ToolStatus != nil {
		outcome := string(*e.ToolStatus)
		if e.ToolExitCode != nil {
			outcome += ", exit " + strconv.FormatInt(*e.ToolExitCode, 10)
		}
		add("(" + outcome + ")")
	}
	if e.FilePath != nil {
		add(projectPath(e))
	}
	switch {
	case e.Text == nil:
	case e.EventType == envelopes.ToolCall:
		text = matched(mainArgument(e), *e.Text, match)
	default:
		text = matched(*e.Text, *e.Text, match)
	}
	text = terminal.OneLine(text)
	if parts == nil && text == "" {
		if text = terminal.OneLine(recordKind(e)); text == "" {
			text = "(no text)"
		}
	}
	return strings.Join(parts, " "), text
}

// matched returns shown if match matches it, else the whole text on one line, from its line with the match on.
func matched(shown, whole string, match *regexp.Regexp) string {
	if match == nil || match.MatchString(terminal.OneLine(shown)) {
		return shown
	}
	at := match.FindStringIndex(whole)
	if at == nil {
		return shown
	}
	return "… " + whole[strings.LastIndexByte(whole[:at[0]], '\n')+1:]
}

// projectPath returns the file of an event, relative to its project if it is inside.
func projectPath(e *envelopes.AgentEventV1) string {
	if e.ProjectRoot != nil && *e.ProjectRoot != "" {
		if inside, ok := strings.CutPrefix(*e.FilePath, strings.TrimRight(*e.ProjectRoot, "/")+"/"); ok && inside != "" {
			return inside
		}
	}
	return *e.FilePath
}

// recordKind describes a system event without text by the type of its record; it is empty for other events.
func recordKind(e *envelopes.AgentEventV1) string {
	if e.EventType != envelopes.Meta && e.EventType != envelopes.Log {
		return ""
	}
	var record map[string]jsontext.Value
	if json.Unmarshal(e.Raw, &record) != nil {
		return ""
	}
	kind := texted(record["type"])
	var inner struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(record[kind], &inner) != nil {
		inner.Type = ""
	}
	parts := []string{kind, texted(record["subtype"]), inner.Type}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), " ")
}

// texted returns the text of a JSON string, empty for any other value.
func texted(value jsontext.Value) string {
	var s string
	if value.Kind() != jsontext.KindString || json.Unmarshal(value, &s) != nil {
		return ""
	}
	return s
}

// mainArgument returns the argument that describes a tool call best, else all arguments.
func mainArgument(e *envelopes.AgentEventV1) string {
	var arguments struct {
		Command     string `json:"command"`
		Pattern     string `json:"pattern"`
		Query       string `json:"query"`
		URL         string `json:"url"`
		Description string `json:"description"`
	}
	if err := json.Unmarshal([]byte(*e.Text), &arguments); err != nil {
		return *e.Text
	}
	s := cmp.Or(arguments.Command, arguments.Pattern, arguments.Query, arguments.URL, arguments.Description)
	if s == "" && e.FilePath == nil {
		return *e.Text
	}
	return s
}

// Style styles a text, unless there are no colours.
func (p *Pretty) Style(s terminal.Style, text string) string {
	if !p.colour {
		return text
	}
	return s.Of(text)
}

func colourOf(e *envelopes.AgentEventV1) terminal.Style {
	switch e.EventType {
	case envelopes.UserMessage:
		return terminal.Cyan
	case envelopes.AssistantMessage:
		return terminal.Green
	case envelopes.ToolCall:
		return terminal.Yellow
	case envelopes.ToolResult:
		if failed(e) {
			return terminal.Red
		}
		return terminal.Yellow
	default:
		return terminal.Faint
	}
}

func textStyle(e *envelopes.AgentEventV1) terminal.Style {
	switch e.EventType {
	case envelopes.UserMessage, envelopes.AssistantMessage, envelopes.ToolCall, envelopes.ToolResult:
		return terminal.Plain
	default:
		return terminal.Faint
	}
}

// failed reports whether e is the result of a failed tool call.
func failed(e *envelopes.AgentEventV1) bool {
	return e.EventType == envelopes.ToolResult && e.ToolStatus != nil && *e.ToolStatus == envelopes.StatusError
}
