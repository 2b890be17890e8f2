package conversation

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
	"tributary/pipeline/sessions/transcript"
)

// Pretty prints a conversation for people.
type Pretty struct {
	w      io.Writer
	width  int // of a line
	colour bool
	Options

	b     bytes.Buffer
	depth int  // of the item that is printed
	calls bool // the last item is a call; no empty line separates it from a next call
}

// NewPretty returns a printer on w with lines of at most width columns.
func NewPretty(w io.Writer, width int, colour bool, o Options) *Pretty {
	return &Pretty{w: w, width: width, colour: colour, Options: o}
}

// style styles a text, unless there are no colours.
func (p *Pretty) style(s terminal.Style, text string) string {
	if !p.colour {
		return text
	}
	return s.Of(text)
}

// flush prints what was written.
func (p *Pretty) flush() error {
	_, err := p.w.Write(p.b.Bytes())
	p.b.Reset()
	return err
}

// Heading prints the title and the facts of the session.
func (p *Pretty) Heading(s *Session) error {
	name := terminal.Cut(terminal.OneLine(string(s.Source)+" "+s.ID), p.width)
	project := terminal.OneLine(s.Project)
	if room := p.width - terminal.WidthOf(name) - 2; project != "" && room > 8 {
		project = "  " + terminal.CutPath(project, room)
	} else {
		project = ""
	}
	p.line(p.style(terminal.Bold, name) + p.style(terminal.Faint, project))
	if title := terminal.OneLine(s.Title); title != "" {
		p.line(p.style(terminal.Bold, terminal.Cut(title, p.width)))
	}
	p.line(p.style(terminal.Faint, terminal.Cut(s.facts(), p.width)))
	return p.flush()
}

// Turn prints the heading of a turn.
func (p *Pretty) Turn(t *transcript.Turn) error {
	p.depth, p.calls = 0, false
	name := fmt.Sprintf("Turn %d", t.Number)
	facts := "  " + p.facts(&t.Section)
	if !t.Begin.IsZero() {
		facts = "  " + terminal.DateTime(t.Begin) + facts
	}
	facts = strings.TrimRight(facts, " ")
	p.b.WriteByte('\n')
	p.line(p.style(terminal.Bold, name) + p.style(terminal.Faint, terminal.Cut(facts, max(p.width-len(name), 1))))
	return p.flush()
}

// facts lists time, calls, tokens and cost of a turn or a subagent.
func (o *Options) facts(s *transcript.Section) string {
	var parts []string
	add := func(n int64, one, more string) {
		if n == 1 {
			parts = append(parts, "1 "+one)
		} else if n > 1 {
			parts = append(parts, terminal.Thousands(n)+" "+more)
		}
	}
	if d := s.End.Sub(s.Begin); d >= time.Second {
		parts = append(parts, terminal.Rough(d))
	}
	add(int64(s.Calls), "call", "calls")
	add(int64(s.Failures), "failed", "failed")
	add(int64(s.Errors), "error", "errors")
	usage := s.Usage()
	add(usage.Total(), "token", "tokens")
	if o.Cost != nil && usage.Total() > 0 {
		if cost := o.Cost(s.Models); cost != "" {
			parts = append(parts, cost)
		}
	}
	if s.Copied {
		parts = append(parts, "copied from another session")
	}
	return strings.Join(parts, ", ")
}

// Item prints an item.
func (p *Pretty) Item(i *transcript.Item) error {
	call := i.Call != nil
	if !call || !p.calls || i.Depth != p.depth {
		p.depth = min(p.depth, i.Depth)
		p.line("")
	}
	p.depth, p.calls = i.Depth, call
	switch {
	case call:
		p.call(i.Call)
	case i.Type == transcript.Subagent:
		p.subagent(i)
	case i.Type == transcript.Error:
		p.prose(terminal.Red, "error: ", textLines(i.Text), foldedOther)
	default:
		p.text(i)
	}
	if i.Truncated {
		p.line(p.style(terminal.Faint, "  (the event has no more of the text)"))
	}
	return p.flush()
}

// text writes a text item.
func (p *Pretty) text(i *transcript.Item) {
	switch envelopes.EventType(i.Type) {
	case envelopes.UserMessage:
		most := foldedPrompt
		if i.Depth > 0 {
			most = foldedOther
		}
		p.prose(terminal.Cyan, "> ", textLines(i.Text), most)
	case envelopes.AssistantMessage:
		p.answer(i.Text)
	case envelopes.Reasoning:
		p.prose(terminal.Faint, "~ ", thoughtLines(i.Text), foldedThought)
	default:
		p.prose(terminal.Faint, strings.ReplaceAll(terminal.OneLine(string(i.Type)), "_", " ")+": ", textLines(i.Text), foldedOther)
	}
}

// subagent writes the heading of a subagent.
func (p *Pretty) subagent(i *transcript.Item) {
	name := "subagent"
	if title := terminal.OneLine(i.Title); title != "" {
		name += ": " + title
	} else if i.Agent != "" {
		name += " " + terminal.OneLine(i.Agent)
	}
	name = terminal.Cut(name, p.room())
	p.line(p.style(terminal.Bold, name) + p.style(terminal.Faint, terminal.Cut("  "+p.facts(i.Section), max(p.room()-terminal.WidthOf(name), 1))))
}

// room returns the width of a line of the item.
func (p *Pretty) room() int { return max(p.width-2*p.depth, 20) }

// line writes a line after the bars of the subagents around it.
func (p *Pretty) line(styled string) {
	bars := p.style(terminal.Faint, strings.TrimRight(strings.Repeat("┃ ", p.depth), " "))
	if p.depth > 0 && styled != "" {
		bars += " "
	}
	p.b.WriteString(bars + styled + "\n")
}

// answer writes a message of the agent.
func (p *Pretty) answer(markdown string) {
	for _, l := range plainLines(terminal.Printable(markdown)) {
		s := terminal.Plain
		if l.strong {
			s = terminal.Bold
		}
		for _, line := range terminal.Wrap(spaced(l.text), p.room(), l.hang) {
			p.line(p.marked(s, line))
		}
	}
}

// prose writes a text with a mark before its lines, folded to at most most lines.
func (p *Pretty) prose(s terminal.Style, mark string, text []string, most int) {
	if text == nil {
		text = []string{"(no text)"}
	}
	var lines []string
	for _, line := range text {
		lines = append(lines, terminal.Wrap(strings.TrimRight(line, " "), p.room()-len(mark), 0)...)
	}
	p.folded(lines, most, func(i int, line string) {
		before := mark
		if mark != "> " && i > 0 { // only a prompt has its mark on every line
			before = strings.Repeat(" ", len(mark))
		}
		if line == "" {
			before = strings.TrimRight(before, " ")
		}
		p.line(p.style(s, before) + p.marked(s, line))
	})
}

// textLines returns the lines of a text.
func textLines(text string) []string { return safeLines(strings.TrimSpace(text)) }

// thoughtLines returns the lines of a Markdown thought without marks and without empty lines.
func thoughtLines(markdown string) []string {
	var lines []string
	for _, l := range plainLines(terminal.Printable(markdown)) {
		if line := strings.TrimSpace(l.text); line != "" {
			lines = append(lines, spaced(line))
		}
	}
	return lines
}

// folded passes the lines of a folded text to write, with their numbers.
func (p *Pretty) folded(lines []string, most int, write func(n int, line string)) {
	if p.Full {
		most = 0
	}
	f := transcript.Fold(lines, most, p.Match)
	left := func(n int) {
		if n > 0 {
			p.line(p.style(terminal.Faint, "  … "+terminal.Plural(n, "line")))
		}
	}
	left(f.Before)
	for n, line := range f.Head {
		write(n, line)
	}
	left(f.Left)
	for n, line := range f.Tail {
		write(len(f.Head)+n, line)
	}
}

// spaced replaces tabs, whose width varies.
func spaced(line string) string { return strings.ReplaceAll(line, "\t", "    ") }

// marked styles a line, and marks the matches in it.
func (p *Pretty) marked(s terminal.Style, line string) string {
	if !p.colour {
		return line
	}
	return terminal.Mark(line, p.Match, s)
}

// call writes a call with its result.
func (p *Pretty) call(c *transcript.Call) {
	failed := c.Status == envelopes.StatusError
	kind, note := terminal.Yellow, terminal.Faint
	if failed {
		kind, note = terminal.Red, terminal.Red
	}
	name, facts := terminal.OneLine(c.Tool), CallFacts(c)
	if facts != "" {
		facts = "  (" + facts + ")"
	}
	subject := CallSubject(c)
	room := max(p.room()-len("•   ")-terminal.WidthOf(name)-terminal.WidthOf(facts), 12)
	first := ""
	if len(subject) > 0 {
		first = "  " + p.marked(terminal.Plain, terminal.CutAround(subject[0], p.Match, room))
		subject = subject[1:]
	}
	p.line(p.style(kind, "• "+name) + first + p.style(note, facts))
	if len(subject) > 0 {
		p.folded(subject, foldedCommand, func(_ int, line string) { p.body(terminal.Plain, "    ", line) })
	}
	if p.Full && showsArguments(c) {
		p.lines(terminal.Plain, ArgumentLines(c.Arguments), 0)
	}
	if c.Diff != "" {
		p.diff(c.Diff)
	}
	if p.showsOutput(c) {
		p.lines(terminal.Plain, p.squeezed(safeLines(c.Output)), foldedOutput)
	}
	p.lines(terminal.Red, p.squeezed(safeLines(c.Stderr)), foldedOutput)
}

// squeezed removes empty lines, unless Full is set.
func (p *Pretty) squeezed(lines []string) []string {
	if p.Full {
		return lines
	}
	return slices.DeleteFunc(lines, func(line string) bool { return strings.TrimSpace(line) == "" })
}

// lines writes lines of a result, folded to at most most lines.
func (p *Pretty) lines(s terminal.Style, lines []string, most int) {
	p.folded(lines, most, func(_ int, line string) { p.body(s, "  │ ", line) })
}

// diff writes a diff without its file names.
func (p *Pretty) diff(diff string) {
	lines := safeLines(diff)
	var shown []string
	for _, line := range lines {
		if !strings.HasPrefix(line, "--- ") && !strings.HasPrefix(line, "+++ ") {
			shown = append(shown, line)
		}
	}
	p.folded(shown, foldedDiff, func(_ int, line string) {
		s := terminal.Plain
		switch {
		case strings.HasPrefix(line, "+"):
			s = terminal.Green
		case strings.HasPrefix(line, "-"):
			s = terminal.Red
		case strings.HasPrefix(line, "@@"):
			s = terminal.Faint
		}
		p.body(s, "  │ ", line)
	})
}

// body writes a line after a mark: cut to the width, or with Full wrapped.
func (p *Pretty) body(s terminal.Style, mark, line string) {
	width := p.room() - terminal.WidthOf(mark)
	lines := []string{terminal.CutAround(line, p.Match, width)}
	if p.Full {
		lines = terminal.Wrap(line, width, 0)
	}
	for _, line := range lines {
		p.line(strings.TrimRight(p.style(terminal.Faint, mark)+p.marked(s, line), " "))
	}
}

// safeLines returns the lines of a text, safe for a terminal, without empty lines at both ends.
func safeLines(text string) []string {
	text = strings.Trim(spaced(terminal.Printable(text)), "\n")
	if strings.TrimSpace(text) == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// CallSubject returns the lines of the subject of a call: its command, file or query, else its main argument.
func CallSubject(c *transcript.Call) []string {
	switch {
	case c.Command != "":
		return safeLines(c.Command)
	case c.Query != "" && c.Path != "":
		return []string{terminal.OneLine(c.Query + " in " + c.Path)}
	case c.Path != "" || c.Query != "":
		return []string{terminal.OneLine(c.Path + c.Query)}
	}
	var arguments struct {
		Pattern     string `json:"pattern"`
		Query       string `json:"query"`
		URL         string `json:"url"`
		Description string `json:"description"`
		Name        string `json:"name"`
	}
	if json.Unmarshal([]byte(c.Arguments), &arguments) == nil {
		if s := cmp.Or(arguments.Pattern, arguments.Query, arguments.URL, arguments.Description, arguments.Name); s != "" {
			return []string{terminal.OneLine(s)}
		}
	}
	if s := terminal.OneLine(c.Arguments); s != "" && s != "{}" && s != "null" {
		return []string{s}
	}
	return nil
}

// showsArguments reports whether a call has arguments beyond its subject and its diff.
func showsArguments(c *transcript.Call) bool {
	return c.Kind == envelopes.ActionTool || c.Kind == envelopes.ActionFileWrite || c.Kind == envelopes.ActionFileEdit && c.Diff == ""
}

// showsOutput reports whether to print the output of a call. The output of reading or writing a file is long and says
// little.
func (o *Options) showsOutput(c *transcript.Call) bool {
	return c.Status == envelopes.StatusError || c.Diff == "" && (o.Full || o.Match != nil || c.Kind != envelopes.ActionFileRead && c.Kind != envelopes.ActionFileWrite)
}

// ArgumentLines returns the arguments of a call in lines; JSON has one member per line.
func ArgumentLines(arguments string) []string {
	if v := jsontext.Value(arguments); v.Indent(jsontext.WithIndent("  ")) == nil {
		arguments = string(v)
	}
	return safeLines(arguments)
}

// CallFacts returns how a call ended.
func CallFacts(c *transcript.Call) string {
	var parts []string
	switch {
	case c.ExitCode != nil:
		parts = append(parts, "exit "+strconv.FormatInt(*c.ExitCode, 10))
	case c.Status == envelopes.StatusError:
		parts = append(parts, "failed")
	case c.Status == envelopes.StatusInProgress:
		parts = append(parts, "no result")
	}
	if c.Kind == envelopes.ActionFileRead && c.Status != envelopes.StatusError {
		if n := len(safeLines(c.Output)); n > 0 {
			parts = append(parts, terminal.Plural(n, "line"))
		}
	}
	if ms := cmp.Or(c.LatencyMS, c.ElapsedMS); ms != nil && *ms >= 1000 {
		parts = append(parts, callTime(*ms))
	}
	return strings.Join(parts, ", ")
}

// callTime writes the duration of a call.
func callTime(ms int64) string {
	if d := time.Duration(ms) * time.Millisecond; d >= time.Minute {
		return terminal.Rough(d)
	}
	return fmt.Sprintf("%.1fs", float64(ms)/1000)
}
