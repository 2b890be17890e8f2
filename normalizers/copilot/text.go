package copilot

import (
	"bytes"
	"regexp"
	"strings"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// The plain text of `copilot -p`: each line, with its line end, is a record, and a paragraph is one message. A line
// that ship adds once the id is known states the session; earlier lines wait for it (README.md).

var (
	// ansiEscape matches a control sequence of a terminal: CSI, OSC, or a shorter one.
	ansiEscape = regexp.MustCompile(`\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-Z\\^-~])`)
	// sessionLine matches the line that states the session.
	sessionLine = regexp.MustCompile(`^\[copilot-session\] ([0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})\s*$`)
)

// sessionOfLine returns the session stated in a line of plain text; empty for content.
func sessionOfLine(line []byte) string {
	if m := sessionLine.FindSubmatch(line); m != nil {
		return string(m[1])
	}
	return ""
}

// isText reports whether a record is a line of plain text: its file is plain text, or it does not begin like a record
// of a log and either has a line end, which those lack, or is the whole file.
func (m *mapper) isText(r core.Record) bool {
	if r.Origin.File != "" && m.st.Text == core.FingerprintOf(r.Origin.File) {
		return true
	}
	first := bytes.TrimLeft(r.Data, "\xef\xbb\xbf \t\r\n")
	return len(r.Data) > 0 && (len(first) == 0 || first[0] != '{') &&
		(r.Data[len(r.Data)-1] == '\n' || r.Origin.Digest != "")
}

// textLine maps a line of plain text: one that states the session, or content.
func textLine(m *mapper) {
	if m.Record.Origin.File != "" {
		m.st.Text = core.FingerprintOf(m.Record.Origin.File)
	}
	m.Raw = lenient.AppendQuote(nil, string(m.Record.Data))
	if m.st.Open.isMessage() {
		m.st.Open.flush(&m.emitter)
	}
	line := bytes.TrimPrefix(m.Record.Data, []byte("\xef\xbb\xbf"))
	if id := sessionOfLine(line); id != "" {
		m.st.Open.flush(&m.emitter)
		m.Session.SetResumeID(id)
		m.put("", core.SystemDraft(envelopes.SystemMessage, ""))
		return
	}
	paragraph(m, lenient.Text(ansiEscape.ReplaceAllString(strings.ToValidUTF8(string(line), "\ufffd"), "")))
}

// paragraph adds a line to the open paragraph; a blank line ends it.
func paragraph(m *mapper, line lenient.Text) {
	open := m.st.Open.Text
	if isBlank(line) {
		if open == "" {
			m.skip = core.SkipEmpty
			return
		}
		m.st.Open = openText{}
		putParagraph(m, open)
		return
	}
	if !fitsOpen(open + line) {
		m.st.Open.flush(&m.emitter)
		open = ""
		if !fitsOpen(line) {
			putParagraph(m, line)
			return
		}
	}
	m.skip = core.SkipProgress
	m.st.Open = openText{From: m.PendingRecord(), Text: open + line}
}

func putParagraph(m *mapper, text lenient.Text) {
	m.put("", core.ChatDraft(envelopes.AssistantMessage, text.Ptr(), lenient.Text(m.Session.Model).Ptr()))
}
