package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"github.com/go-json-experiment/json"

	"tributary/envelopes"
)

// printer shows events to a person: one line each, under a heading that names the
// session whenever another one begins to speak.
type printer struct {
	w      io.Writer
	colour bool
	width  int // of a line
	last   sessionKey
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
	line = p.fit(line)
	if e.TokensTotal != nil && *e.TokensTotal > 0 {
		tokens := thousands(*e.TokensTotal) + " tokens"
		line = p.fit2(line, p.style(faint, tokens))
	}
	b.WriteString(line + "\n")
	_, err := p.w.Write(b.Bytes())
	return err
}

// fit cuts a line that is longer than the terminal is wide.
func (p *printer) fit(line string) string { return ansi.Truncate(line, p.width, "…") }

// fit2 puts note at the right end of a line, which gives way.
func (p *printer) fit2(line, note string) string {
	return ansi.Truncate(line, p.width-ansi.StringWidth(note)-2, "…") + "  " + note
}

// describe is what an event says, on one line that is safe on a terminal.
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
		add(subject(e))
	default:
		add(*e.Text)
	}
	return strings.Join(parts, " ")
}

// subject is what a tool is called for: the telling argument, else all of them.
func subject(e *envelopes.AgentEventV1) string {
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

// style is the parameter of the sequence that sets how text looks.
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

// thousands writes a number with a comma between thousands.
func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	digits := len(strings.TrimPrefix(s, "-"))
	for i := len(s) - 3; i > len(s)-digits; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// plural is "1 event" or "2 events".
func plural(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return thousands(int64(n)) + " " + noun
}
