package copilot

import (
	"bytes"
	"regexp"
	"strings"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// The plain text of `copilot -p`: each line is a record with its line end, lines are
// joined to paragraphs, and a paragraph is one message. The id of the session is not
// among them: ship puts it in as a line of its own, once it is known. A file is framed as
// a whole, so that what stands before that line waits for it, and no event is without its
// session.

var (
	// ansiEscape is a control sequence of a terminal: CSI, OSC, or a shorter one.
	ansiEscape = regexp.MustCompile(`\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-Z\\^-~])`)
	// sessionMarker is the line that names the session.
	sessionMarker = regexp.MustCompile(`^\[copilot-session\] ([0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})\s*$`)
)

// marker is the session that a line of plain text names; empty for content.
func marker(line []byte) string {
	if m := sessionMarker.FindSubmatch(line); m != nil {
		return string(m[1])
	}
	return ""
}

// isText reports whether a record is a line of plain text, whatever it holds: of a file
// that has shown to be of text, or by its form, for a log begins with a brace and its
// records have no line end. What has one and is no JSON is a line of text too.
func (c *mapper) isText(s *core.Session, r core.Record) bool {
	if r.Origin.File != "" && stateOf(s).Text == core.FingerprintOf(r.Origin.File) {
		return true
	}
	first := bytes.TrimLeft(r.Data, "\xef\xbb\xbf \t\r\n")
	return len(r.Data) > 0 && (len(first) == 0 || first[0] != '{') &&
		(r.Data[len(r.Data)-1] == '\n' || r.Origin.Position == 0)
}

// line maps a line of plain text: it goes on with the paragraph, or ends it.
func (c *mapper) line() core.SkipReason {
	if c.Record.Origin.File != "" {
		c.st.Text = core.FingerprintOf(c.Record.Origin.File)
	}
	c.Raw = lenient.AppendQuote(nil, string(c.Record.Data))
	if c.st.Open.Message != (core.Fingerprint{}) {
		c.flush()
	}
	line := bytes.TrimPrefix(c.Record.Data, []byte("\xef\xbb\xbf"))
	if id := marker(line); id != "" {
		c.flush()
		c.Session.SetResumeID(id)
		d := core.Draft{OnChannel: envelopes.ChannelSystem}
		d.EventType = envelopes.SystemMessage
		c.put("", d)
		return core.SkipDuplicate
	}
	words := ansiEscape.ReplaceAllString(strings.ToValidUTF8(string(line), "\ufffd"), "")
	open := c.st.Open.Words
	switch {
	case strings.TrimSpace(words) == "" && open == "":
		return core.SkipEmpty
	case strings.TrimSpace(words) == "":
		c.st.Open = openMessage{}
		c.say(open)
		return core.SkipDuplicate
	case !fitsOpen(open + words):
		c.flush()
		if !fitsOpen(words) { // told as it is, rather than lost
			c.say(words)
			return core.SkipDuplicate
		}
		open = ""
	}
	c.st.Open = openMessage{From: c.PendingRecord(), Words: open + words}
	return core.SkipProgress
}

// say emits a paragraph.
func (c *mapper) say(words string) {
	d := core.Draft{OnChannel: envelopes.ChannelChat}
	d.EventType, d.Text, d.Model = envelopes.AssistantMessage, &words, lenient.Text(c.Session.Model).Ptr()
	c.put("", d)
}
