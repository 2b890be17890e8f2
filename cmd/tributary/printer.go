package main

import (
	"bytes"
	"cmp"
	"io"
	"os"
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

// printer prints events for people: one line each, under a heading whenever the session
// changes, and under a date whenever the day changes.
type printer struct {
	w      io.Writer
	colour bool
	width  int        // of a line
	last   sessionKey // session of the last event
	day    string     // of the last event
}

func (a *app) newPrinter() *printer {
	p := &printer{w: a.stdout, width: terminal.PlainWidth}
	if terminal.IsTerminal(a.stdout) {
		p.colour = a.config.NoColor == ""
		p.width = terminal.Columns(a.stdout.(*os.File))
		if a.status != nil {
			p.w = a.status.Above(a.stdout)
		}
	}
	return p
}

// event prints one event.
func (p *printer) event(e *envelopes.AgentEventV1) error {
	var b bytes.Buffer
	p.heading(&b, sessionKey{e.Source, e.SessionID}, e.ProjectRoot)
	when := "--:--:--"
	if t, err := e.Timestamp(); err == nil {
		t = t.Local()
		when = t.Format(time.TimeOnly)
		if day := t.Format("2006-01-02 Mon"); day != p.day {
			p.day = day
			b.WriteString("  " + p.style(terminal.Faint, day) + "\n")
		}
	}
	note := ""
	if e.TokensTotal != nil && *e.TokensTotal > 0 {
		note = terminal.Thousands(*e.TokensTotal) + " tokens"
	}
	p.row(&b, row{when: when, kind: terminal.OneLine(string(e.EventType)), kindStyle: colourOf(e), text: describe(e), textStyle: textStyle(e), note: note})
	_, err := p.w.Write(b.Bytes())
	return err
}

// letter prints a dead letter.
func (p *printer) letter(l *events.DeadLetter) error {
	var b bytes.Buffer
	p.heading(&b, sessionKey{l.Source, l.Session}, nil)
	text := terminal.OneLine(l.Reason + ": " + l.Error)
	p.row(&b, row{kind: "dead letter", kindStyle: terminal.Red, text: text, note: "record " + strconv.FormatUint(l.Sequence, 10)})
	_, err := p.w.Write(b.Bytes())
	return err
}

// heading writes the name of a session if it is not that of the line before.
func (p *printer) heading(b *bytes.Buffer, key sessionKey, project *string) {
	if key == p.last {
		return
	}
	if p.last != (sessionKey{}) {
		b.WriteByte('\n')
	}
	p.last = key
	name := terminal.Cut(terminal.OneLine(string(key.source)+" "+key.id), p.width)
	b.WriteString(p.style(terminal.Bold, name))
	if left := p.width - terminal.WidthOf(name) - 2; project != nil && left > 8 {
		b.WriteString("  " + p.style(terminal.Faint, terminal.CutPath(terminal.OneLine(*project), left)))
	}
	b.WriteByte('\n')
}

// row is the line of an event or a dead letter.
type row struct {
	when                 string
	kind, text, note     string
	kindStyle, textStyle terminal.Style
}

// row writes a line; its text is cut to the width of the terminal.
func (p *printer) row(b *bytes.Buffer, r row) {
	const kindWidth = 17 // of assistant_message
	left := p.width - len("  hh:mm:ss  ") - kindWidth - 2
	if r.note != "" {
		left -= len(r.note) + 2
	}
	b.WriteString("  " + p.style(terminal.Faint, terminal.Pad(r.when, len("hh:mm:ss"))) + "  " + p.style(r.kindStyle, terminal.Pad(r.kind, kindWidth)) + "  " + p.style(r.textStyle, terminal.Cut(r.text, left)))
	if r.note != "" {
		b.WriteString("  " + p.style(terminal.Faint, r.note))
	}
	b.WriteByte('\n')
}

// end implements eventWriter: nothing is pending.
func (p *printer) end() error { return nil }

// fit cuts a line to the width of the terminal.
func (p *printer) fit(line string) string { return terminal.Cut(line, p.width) }

// describe returns the content of an event on one line that is safe on a terminal. It is never
// empty.
func describe(e *envelopes.AgentEventV1) string {
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
		add(mainArgument(e))
	default:
		add(*e.Text)
	}
	if parts == nil {
		add(recordKind(e))
	}
	if parts == nil {
		return "(no text)"
	}
	return strings.Join(parts, " ")
}

// projectPath is the path of the file of an event, relative to the project if it is in there.
func projectPath(e *envelopes.AgentEventV1) string {
	if e.ProjectRoot != nil && *e.ProjectRoot != "" {
		if inside, ok := strings.CutPrefix(*e.FilePath, strings.TrimRight(*e.ProjectRoot, "/")+"/"); ok && inside != "" {
			return inside
		}
	}
	return *e.FilePath
}

// recordKind describes an event of the system without a text by the type of its record; of
// another event it is empty.
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

// texted is the text of a JSON string, empty for any other value.
func texted(value jsontext.Value) string {
	var s string
	if value.Kind() != jsontext.KindString || json.Unmarshal(value, &s) != nil {
		return ""
	}
	return s
}

// mainArgument returns the argument of a tool call that describes it best, else all of them.
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

func (p *printer) style(s terminal.Style, text string) string {
	if !p.colour || s == terminal.Plain || text == "" {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
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

// failed reports whether e is the result of a tool that failed.
func failed(e *envelopes.AgentEventV1) bool {
	return e.EventType == envelopes.ToolResult && e.ToolStatus != nil && *e.ToolStatus == envelopes.StatusError
}
