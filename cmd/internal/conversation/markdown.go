package conversation

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
	"tributary/pipeline/sessions/transcript"
)

// Markdown prints a conversation as a document in Markdown.
type Markdown struct {
	w io.Writer
	Options
}

// NewMarkdown returns a printer on w.
func NewMarkdown(w io.Writer, o Options) *Markdown { return &Markdown{w, o} }

// write writes a paragraph or a block, quoted depth times, and an empty line.
func (m *Markdown) write(depth int, block string) error {
	quote := strings.Repeat("> ", depth)
	var b strings.Builder
	for line := range strings.SplitSeq(strings.Trim(block, "\n")+"\n", "\n") {
		b.WriteString(strings.TrimRight(quote+line, " ") + "\n")
	}
	_, err := io.WriteString(m.w, b.String())
	return err
}

// Heading prints the title and the facts of the session.
func (m *Markdown) Heading(s *Session) error {
	title := terminal.OneLine(s.Title)
	if title == "" {
		title = "Session " + terminal.OneLine(s.ID)
	}
	facts := s.facts()
	if project := terminal.OneLine(s.Project); project != "" {
		facts += ", " + project
	}
	return m.write(0, fmt.Sprintf("# %s\n\n%s session %s: %s", title, s.Source, envelopes.CodeSpan(terminal.OneLine(s.ID)), facts))
}

// Turn prints the heading of a turn.
func (m *Markdown) Turn(t *transcript.Turn) error {
	facts := m.facts(&t.Section)
	if !t.Begin.IsZero() {
		facts = strings.TrimSuffix(terminal.DateTime(t.Begin)+", "+facts, ", ")
	}
	return m.write(0, fmt.Sprintf("## Turn %d\n\n*%s*", t.Number, facts))
}

// Item prints an item.
func (m *Markdown) Item(i *transcript.Item) error {
	text := terminal.Printable(i.Text)
	switch {
	case i.Call != nil:
		return m.call(i.Depth, i.Call)
	case i.Type == transcript.Subagent:
		name := "**Subagent** " + terminal.OneLine(i.Title)
		return m.write(i.Depth, strings.TrimSpace(name)+" *"+m.facts(i.Section)+"*")
	case i.Type == transcript.Error:
		return m.write(i.Depth, "**Error** "+text)
	case i.Type == transcript.Type(envelopes.AssistantMessage):
		return m.write(i.Depth, text)
	case i.Type == transcript.Type(envelopes.UserMessage):
		most := foldedPrompt
		if i.Depth > 0 {
			most = foldedOther
		}
		return m.write(i.Depth, "> "+strings.ReplaceAll(m.folded(text, most), "\n", "\n> "))
	default:
		name := strings.ReplaceAll(terminal.OneLine(string(i.Type)), "_", " ")
		return m.write(i.Depth, "*"+name+":* "+m.folded(text, foldedOther))
	}
}

// folded folds a text to at most most lines.
func (m *Markdown) folded(text string, most int) string {
	if m.Full {
		most = 0
	}
	f := transcript.Fold(safeLines(text), most, m.Match)
	lines := f.Head
	if f.Before > 0 {
		lines = append([]string{"… " + terminal.Plural(f.Before, "line")}, lines...)
	}
	if f.Left > 0 {
		lines = append(append(slices.Clip(lines), "… "+terminal.Plural(f.Left, "line")), f.Tail...)
	}
	return strings.Join(lines, "\n")
}

// call prints a call with its result.
func (m *Markdown) call(depth int, c *transcript.Call) error {
	head := "**" + terminal.OneLine(c.Tool) + "**"
	subject := strings.Join(CallSubject(c), "\n")
	facts := CallFacts(c)
	if facts != "" {
		facts = " *(" + facts + ")*"
	}
	blocks := []string{""} // the head is the first
	switch {
	case strings.Contains(subject, "\n"):
		blocks = append(blocks, codeBlock("", m.folded(subject, foldedCommand)))
	case subject != "":
		head += " " + envelopes.CodeSpan(terminal.CutAround(subject, m.Match, terminal.PlainWidth))
	}
	if m.Full && showsArguments(c) {
		blocks = append(blocks, codeBlock("json", strings.Join(ArgumentLines(c.Arguments), "\n")))
	}
	if c.Diff != "" {
		blocks = append(blocks, codeBlock("diff", m.folded(c.Diff, foldedDiff)))
	}
	if m.showsOutput(c) {
		blocks = append(blocks, codeBlock("", m.folded(c.Output, foldedOutput)))
	}
	blocks = append(blocks, codeBlock("", m.folded(c.Stderr, foldedOutput)))
	blocks[0] = head + facts
	return m.write(depth, strings.Join(slices.DeleteFunc(blocks, func(block string) bool { return block == "" }), "\n\n"))
}

// codeBlock returns a block of code, empty for no code.
func codeBlock(language, code string) string {
	if code == "" {
		return ""
	}
	return envelopes.CodeBlock(language, code)
}
