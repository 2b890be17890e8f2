package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"

	"tributary/envelopes"
)

// printer prints events for people: one line each, under a heading whenever the session
// changes.
type printer struct {
	w      io.Writer
	colour bool
	width  int        // of a line
	last   sessionKey // session of the last event
}

func (a *app) newPrinter() *printer {
	p := &printer{w: a.stdout, width: plainWidth}
	if isTerminal(a.stdout) {
		p.colour = a.config.NoColor == ""
		p.width = columns(a.stdout.(*os.File))
	}
	return p
}

// event prints one event.
func (p *printer) event(e *envelopes.AgentEventV1) error {
	var b bytes.Buffer
	if key := (sessionKey{e.Source, e.SessionID}); key != p.last {
		if p.last != (sessionKey{}) {
			b.WriteByte('\n')
		}
		p.last = key
		heading := p.style(bold, oneLine(string(e.Source)+" "+e.SessionID))
		if e.ProjectRoot != nil {
			heading += "  " + p.style(faint, oneLine(*e.ProjectRoot))
		}
		b.WriteString(p.fit(heading) + "\n")
	}
	when := "--:--:--"
	if t, err := e.Timestamp(); err == nil {
		when = t.Local().Format("15:04:05")
	}
	line := fmt.Sprintf("  %s  %s  %s", p.style(faint, when),
		p.style(colourOf(e), fmt.Sprintf("%-17s", oneLine(string(e.EventType)))), p.style(textStyle(e), describe(e)))
	note := ""
	if e.TokensTotal != nil && *e.TokensTotal > 0 {
		note = p.style(faint, thousands(*e.TokensTotal)+" tokens")
	}
	b.WriteString(p.fitWithNote(line, note) + "\n")
	_, err := p.w.Write(b.Bytes())
	return err
}

// end implements eventWriter: nothing is pending.
func (p *printer) end() error { return nil }

// fit cuts a line to the width of the terminal.
func (p *printer) fit(line string) string { return cut(line, p.width) }

// fitWithNote appends note to a line, and cuts the line for it.
func (p *printer) fitWithNote(line, note string) string {
	line = p.fit(line)
	if note == "" {
		return line
	}
	return cut(line, p.width-terminalWidth.String(note)-2) + "  " + note
}

// describe returns the content of an event on one line that is safe on a terminal.
func describe(e *envelopes.AgentEventV1) string {
	var parts []string
	add := func(s string) {
		if s = oneLine(s); s != "" {
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
		add(*e.FilePath)
	}
	switch {
	case e.Text == nil:
	case e.EventType == envelopes.ToolCall:
		add(mainArgument(e))
	default:
		add(*e.Text)
	}
	return strings.Join(parts, " ")
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

// style is the parameter of the escape sequence that styles text.
type style string

const (
	plain  style = ""
	bold   style = "1"
	faint  style = "2"
	red    style = "31"
	green  style = "32"
	yellow style = "33"
	cyan   style = "36"
)

func (p *printer) style(s style, text string) string {
	if !p.colour || s == plain || text == "" {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

func colourOf(e *envelopes.AgentEventV1) style {
	switch e.EventType {
	case envelopes.UserMessage:
		return cyan
	case envelopes.AssistantMessage:
		return green
	case envelopes.ToolCall:
		return yellow
	case envelopes.ToolResult:
		if failed(e) {
			return red
		}
		return yellow
	default:
		return faint
	}
}

func textStyle(e *envelopes.AgentEventV1) style {
	switch e.EventType {
	case envelopes.UserMessage, envelopes.AssistantMessage, envelopes.ToolCall, envelopes.ToolResult:
		return plain
	default:
		return faint
	}
}

// failed reports whether e is the result of a tool that failed.
func failed(e *envelopes.AgentEventV1) bool {
	return e.EventType == envelopes.ToolResult && e.ToolStatus != nil && *e.ToolStatus == envelopes.StatusError
}
