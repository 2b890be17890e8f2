package ship

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
)

// marker writes an input to a framer, and adds the line that names the session: once, between two lines, as soon as
// the session is known, and only to plain text. A log of JSON names its session itself, even if it begins with
// unreadable lines.
type marker struct {
	to      *normalizers.Framer
	lineOf  func(session string) string // of the vendor
	line    string                      // line to add; empty for none
	named   bool                        // the session is known
	unnamed bool                        // the session will not become known
	within  bool                        // the last byte written did not end a line
	begun   bool                        // a line with content has been written
	content bool                        // the present line has content
	decided bool                        // text is decided
	text    bool                        // the input is plain text
}

// name sets the session; empty for none.
func (m *marker) name(session string) {
	if session == "" {
		return
	}
	m.named, m.line = true, m.lineOf(session)
	if !m.within {
		m.mark()
	}
}

// write writes the next bytes of the input.
func (m *marker) write(data []byte) {
	for len(data) > 0 && (!m.decided || m.line != "") {
		end := bytes.IndexByte(data, '\n') + 1
		if end == 0 {
			end = len(data)
		}
		m.decide(data[:end])
		m.pass(data[:end])
		if !m.within {
			m.mark()
		}
		data = data[end:]
	}
	m.pass(data)
}

// decide decides from the next bytes of a line whether the input is plain text. An input that begins with a brace is
// JSON. Otherwise the later lines decide: the framer first reads a line that begins with a brace, because it may be a
// record of a log; any other line is text.
func (m *marker) decide(data []byte) {
	first := bytes.TrimLeft(data, "\xef\xbb\xbf \t\r\n")
	blank := len(first) == 0
	if m.decided || m.content || blank && !(m.begun && bytes.HasSuffix(data, []byte("\n"))) {
		return
	}
	brace := !blank && first[0] == '{'
	m.decided = brace != m.begun || m.to.IsLog()
	m.text = m.decided && !brace && !m.to.IsLog()
	m.begun, m.content = true, !blank
}

// isText reports whether the input so far is plain text.
func (m *marker) isText() bool { return m.text || !m.decided && m.begun && !m.to.IsLog() }

// end adds the line behind a last line without an end.
func (m *marker) end() {
	m.text, m.decided = m.isText(), true
	if m.line != "" && m.within && m.text {
		m.pass([]byte("\n"))
	}
	m.mark()
}

// pass writes bytes of the input to the framer.
func (m *marker) pass(data []byte) {
	if len(data) > 0 {
		m.within = data[len(data)-1] != '\n'
		m.content = m.content && m.within
		_, _ = m.to.Write(data) // never fails
	}
}

// mark adds the line if it is due.
func (m *marker) mark() {
	if m.line != "" && m.text {
		_, _ = m.to.Write([]byte(m.line)) // never fails
		m.line = ""
	}
}

// Discovery finds the session of an agent that prints plain text, from the name of a log file that the agent writes
// meanwhile.
type Discovery struct {
	Source  envelopes.Source // of an agent whose row in the table of vendors has PrintedText
	Dir     string           // folder of the log; need not exist yet
	Poll    time.Duration    // interval between two looks; default 200 ms
	Timeout time.Duration    // after it the text is shipped without its session; default 10 minutes
}

// plainText returns how the plain text of the agent and its session are recognized.
func (d Discovery) plainText() *core.PrintedText {
	return normalizers.VendorOf(d.Source).Framing.PrintedText
}

// Flag returns the name of the command-line flag for this Discovery.
func (d Discovery) Flag() string { return d.plainText().Flag }

// find waits for the log and returns its session. It returns errNoSession after the timeout, or the error of ctx.
func (d Discovery) find(ctx context.Context) (string, error) {
	orElse(&d.Poll, 200*time.Millisecond)
	orElse(&d.Timeout, 10*time.Minute)
	poll, timeout := time.NewTicker(d.Poll), time.NewTimer(d.Timeout)
	defer poll.Stop()
	defer timeout.Stop()
	for {
		if id := d.look(); id != "" {
			return id, nil
		}
		select {
		case <-poll.C:
		case <-timeout.C:
			return "", fmt.Errorf("%w in %s after %v", errNoSession, d.Dir, d.Timeout)
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// look returns the session of the first log in the folder; empty if there is none or the folder cannot be read.
func (d Discovery) look() string {
	entries, _ := os.ReadDir(d.Dir)
	for _, e := range entries {
		if id := d.plainText().SessionOfLog(e.Name()); id != "" {
			return id
		}
	}
	return ""
}
