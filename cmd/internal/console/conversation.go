package console

import (
	"cmp"
	"html/template"
	"slices"
	"strconv"
	"strings"
	"time"

	"tributary/cmd/internal/conversation"
	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
	"tributary/pipeline/events"
	"tributary/pipeline/sessions/transcript"
)

// Limits of the texts on a page, in bytes. The page of an event has the whole text.
const (
	shownMessage  = 24 << 10
	shownOutput   = 12 << 10
	shownSubject  = 4 << 10
	shownLeast    = 400     // of a text once the page has reached shownTogether
	shownTogether = 2 << 20 // of all texts of a page
	shownLines    = 400     // lines of a diff
)

// conversationItem is an item of the conversation for the template.
type conversationItem struct {
	Anchor   string // in the page
	Kind     string // message, thought, call, subagent, error, noise or other
	Label    string
	Class    string // failed, edit, prompt or empty
	At       time.Time
	Address  string // of its event
	Notes    []string
	Body     template.HTML // a text in Markdown
	Text     *shownText    // any other text
	Call     *conversationCall
	Section  *sectionFacts // of a subagent
	More     []eventLink   // its further events
	Children []*conversationItem

	depth    int
	sequence uint64 // of its event; 0 for none
}

// eventLink is a link to a further event of an item.
type eventLink struct {
	Label   string
	Anchor  string // in the page; empty if the event is on another page
	Address string
}

// conversationCall is a call of a tool with its result.
type conversationCall struct {
	Tool      string
	Subject   string // one line
	Facts     string // how it ended
	Status    envelopes.ToolStatus
	Command   *shownText // of several lines
	Arguments *shownText
	Diff      []diffLine
	DiffCut   bool
	Output    *shownText
	Stderr    *shownText
}

// diffLine is a line of a diff with its class: add, del, hunk, file or empty.
type diffLine struct{ Class, Text string }

// shownText is a text whose middle may be left out.
type shownText struct {
	Head string
	Left int // bytes that are left out
	Tail string
	All  string // address of the whole text
}

// conversationPage converts a part of a transcript to items.
type conversationPage struct {
	session events.SessionID
	zone    *time.Location
	left    int                // bytes of text that the page may still show
	calls   map[string][]place // events of calls, by the ids of the calls
	shown   map[uint64]bool    // sequences of the events that an item shows or links to
	all     []*conversationItem
	goesOn  bool // the session has events after the page
}

// anchorOf returns the anchor of an event in the page, by its sequence.
func anchorOf(sequence uint64) string { return "e" + strconv.FormatUint(sequence, 10) }

// items returns the items of a turn. The items of a subagent are children of its heading, and adjacent noise is one
// item.
func (p *conversationPage) items(t *transcript.Transcript, turn int) ([]*conversationItem, error) {
	root := &conversationItem{}
	above := []*conversationItem{root} // the headings that may have the next item as a child, the outermost first
	for i, err := range t.Items(turn) {
		if err != nil {
			return nil, err
		}
		heading := i.Type == transcript.Subagent
		for n := len(above) - 1; n > 0 && (above[n].depth > i.Depth || heading && above[n].depth == i.Depth); n-- {
			above = above[:n]
		}
		parent := above[len(above)-1]
		item := p.item(i)
		if heading {
			above = append(above, item)
		}
		if last := len(parent.Children) - 1; item.Kind == "noise" {
			if last < 0 || parent.Children[last].Kind != "noise" {
				parent.Children = append(parent.Children, &conversationItem{Kind: "noise"})
				last++
			}
			item.Kind = "other"
			parent = parent.Children[last]
		}
		parent.Children = append(parent.Children, item)
	}
	return root.Children, nil
}

// item converts an item of a transcript.
func (p *conversationPage) item(i *transcript.Item) *conversationItem {
	v := &conversationItem{Label: strings.ReplaceAll(string(i.Type), "_", " "), depth: i.Depth}
	if i.Section != nil {
		v.Kind, v.Label = "subagent", i.Title
		v.Section = factsOf(i.Section)
		if v.Label == "" {
			v.Label = i.Agent
		}
		return v
	}
	v.Anchor, v.Address, v.sequence = anchorOf(i.Sequence), eventPath(p.session.Source, p.session.Session, i.EventID), i.Sequence
	p.shown[i.Sequence] = true
	p.all = append(p.all, v)
	if at, err := time.Parse(time.RFC3339Nano, i.TS); err == nil {
		v.At = at.In(p.zone)
	}
	v.Notes = notesOf(i)
	all := v.Address + "/text"
	switch {
	case i.Call != nil:
		v.Kind = "call"
		p.call(v, i.Call)
	case i.Type == transcript.Error:
		v.Kind, v.Class = "error", "failed"
		v.Text = p.text(i.Text, shownOutput, all)
	case i.IsNoise():
		v.Kind = "noise"
		v.Text = p.text(i.Text, shownLeast, all)
	case i.Type == transcript.Type(envelopes.UserMessage), i.Type == transcript.Type(envelopes.AssistantMessage):
		v.Kind = "message"
		v.Body, v.Text = p.prose(i.Text, all)
		if v.Label = "answer"; i.Type == transcript.Type(envelopes.UserMessage) {
			v.Label, v.Class = "prompt", "prompt"
		}
	case i.Type == transcript.Type(envelopes.Reasoning):
		v.Kind, v.Label = "thought", "thinking"
		v.Body, v.Text = p.prose(i.Text, all)
	default:
		v.Kind = "other"
		v.Text = p.text(i.Text, shownOutput, all)
	}
	return v
}

// notesOf returns notes on the origin of an item and on missing text.
func notesOf(i *transcript.Item) []string {
	var notes []string
	switch i.Origin {
	case envelopes.OriginAgent:
		notes = append(notes, "from an agent")
	case envelopes.OriginInjected:
		notes = append(notes, "from a program")
	case envelopes.OriginCopied:
		notes = append(notes, "copied from another session")
	default:
	}
	if i.Truncated {
		notes = append(notes, "the event has no more of the text: see its raw record")
	}
	return notes
}

// call adds a call to its item.
func (p *conversationPage) call(v *conversationItem, c *transcript.Call) {
	call := &conversationCall{Tool: c.Tool, Status: c.Status, Facts: conversation.CallFacts(c)}
	if result := func(e place) bool { return e.kind == envelopes.ToolResult }; p.goesOn && !slices.ContainsFunc(p.calls[c.ID], result) {
		call.Facts = strings.Replace(call.Facts, "no result", "no result on this page", 1)
	}
	v.Call, v.Label = call, c.Tool
	switch {
	case c.Status == envelopes.StatusError, c.ExitCode != nil && *c.ExitCode != 0:
		v.Class = "failed"
	case c.Kind == envelopes.ActionFileEdit, c.Kind == envelopes.ActionFileWrite, c.Diff != "":
		v.Class = "edit"
	}
	subject := strings.Join(conversation.CallSubject(c), "\n")
	call.Subject = terminal.Cut(terminal.OneLine(subject), terminal.PlainWidth)
	arguments := v.Address + "/text"
	if c.Command != "" && call.Subject != c.Command {
		call.Command = p.text(c.Command, shownSubject, arguments)
	}
	if c.Arguments != "" && c.Arguments != "{}" {
		call.Arguments = p.text(strings.Join(conversation.ArgumentLines(c.Arguments), "\n"), shownSubject, arguments)
	}
	output := v.Address + "/json"
	if c.ID != "" {
		for _, e := range p.calls[c.ID] {
			if e.otherPage || !p.shown[e.sequence] {
				p.add(v, e)
			}
			if e.kind == envelopes.ToolResult {
				output = eventPath(p.session.Source, p.session.Session, e.event) + "/text"
			}
		}
	}
	call.Diff, call.DiffCut = p.diff(c.Diff)
	if c.Output != "" && (c.Diff == "" || v.Class == "failed") {
		call.Output = p.text(c.Output, shownOutput, output)
	}
	if c.Stderr != "" {
		call.Stderr = p.text(c.Stderr, shownOutput, output)
	}
}

// add adds a link to a further event to an item.
func (p *conversationPage) add(v *conversationItem, e place) {
	p.shown[e.sequence] = true
	label, anchor := "one more event of it", anchorOf(e.sequence)
	switch e.kind {
	case envelopes.ToolResult:
		label = "its result"
	case envelopes.ToolCall:
		label = "its call"
	default:
	}
	if e.otherPage {
		label, anchor = label+", on another page", ""
	}
	v.More = append(v.More, eventLink{label, anchor, eventPath(p.session.Source, p.session.Session, e.event)})
}

// addOthers adds a link to each event that no item shows, to the item before it: the event was joined to that item, or
// replaces its content.
func (p *conversationPage) addOthers(events []place) {
	slices.SortFunc(p.all, func(a, b *conversationItem) int { return cmp.Compare(a.sequence, b.sequence) })
	for _, e := range events {
		if p.shown[e.sequence] || len(p.all) == 0 {
			continue
		}
		n, _ := slices.BinarySearchFunc(p.all, e.sequence, func(v *conversationItem, sequence uint64) int { return cmp.Compare(v.sequence, sequence) })
		p.add(p.all[max(n-1, 0)], e)
	}
}

// prose returns Markdown as HTML, or as plain text if it has to be cut, because cut Markdown can have another meaning.
func (p *conversationPage) prose(text, all string) (template.HTML, *shownText) {
	if len(text) > p.room(shownMessage) {
		return "", p.text(text, shownMessage, all)
	}
	p.left -= len(text)
	return markdownOf(text), nil
}

// room returns how many bytes of a text the page may still show.
func (p *conversationPage) room(most int) int { return max(min(most, p.left), shownLeast) }

// text returns a short text whole, else its beginning and its end. all is the address of the whole text.
func (p *conversationPage) text(text string, most int, all string) *shownText {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	most = p.room(most)
	s := &shownText{Head: text, All: all}
	if len(text) > most {
		s.Head = text[:boundary(text, most*2/3)]
		s.Tail = text[boundary(text, len(text)-most/3):]
		s.Left = len(text) - len(s.Head) - len(s.Tail)
	}
	p.left -= len(s.Head) + len(s.Tail)
	return s
}

// boundary returns the last index up to n that is not within a character.
func boundary(text string, n int) int {
	for n > 0 && n < len(text) && text[n]&0xc0 == 0x80 {
		n--
	}
	return n
}

// diff returns the lines of a diff, and whether some are left out.
func (p *conversationPage) diff(diff string) (lines []diffLine, cut bool) {
	if diff == "" {
		return nil, false
	}
	most := p.room(shownOutput)
	if len(diff) > most {
		diff, cut = diff[:boundary(diff, most)], true
	}
	p.left -= len(diff)
	for line := range strings.SplitSeq(strings.TrimSuffix(terminal.Printable(diff), "\n"), "\n") {
		if len(lines) == shownLines {
			return lines, true
		}
		class := ""
		switch {
		case strings.HasPrefix(line, "+++ "), strings.HasPrefix(line, "--- "):
			class = "file"
		case strings.HasPrefix(line, "+"):
			class = "add"
		case strings.HasPrefix(line, "-"):
			class = "del"
		case strings.HasPrefix(line, "@@"):
			class = "hunk"
		}
		lines = append(lines, diffLine{class, line})
	}
	return lines, cut
}

// sectionFacts has the figures of a turn or a subagent.
type sectionFacts struct {
	Begin    time.Time
	Duration time.Duration
	Calls    int
	Failures int
	Errors   int
	Tokens   envelopes.Usage
	Total    int64
	Cost     string // empty if unknown
	Context  int64  // size of the last prompt; 0 if unknown
	Copied   bool
}

func factsOf(s *transcript.Section) *sectionFacts {
	usage := s.Usage()
	return &sectionFacts{
		Begin: s.Begin, Duration: s.End.Sub(s.Begin), Calls: s.Calls, Failures: s.Failures, Errors: s.Errors,
		Tokens: usage, Total: usage.Total(), Copied: s.Copied,
	}
}

// String lists the figures on one line.
func (f *sectionFacts) String() string {
	var parts []string
	add := func(n int64, one, more string) {
		switch {
		case n == 1:
			parts = append(parts, "1 "+one)
		case n > 1:
			parts = append(parts, terminal.Thousands(n)+" "+more)
		}
	}
	if f.Duration >= time.Second {
		parts = append(parts, terminal.Rough(f.Duration))
	}
	add(int64(f.Calls), "call", "calls")
	add(int64(f.Failures), "failed", "failed")
	add(int64(f.Errors), "error", "errors")
	add(f.Total, "token", "tokens")
	if f.Cost != "" {
		parts = append(parts, f.Cost)
	}
	if f.Context > 0 {
		parts = append(parts, "context "+terminal.Thousands(f.Context))
	}
	if f.Copied {
		parts = append(parts, "copied from another session")
	}
	return strings.Join(parts, ", ")
}
