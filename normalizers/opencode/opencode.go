// Package opencode normalizes what OpenCode writes: the documents of `opencode export`, the
// lines of `opencode run --format json`, the messages that its server returns, and recordings
// of the server's events. README.md beside this file describes the formats.
//
// Start with [Vendor] and normalize: each form ends in the functions for messages and parts.
//
// The invariant: a session is a list of messages, and a message is a list of parts. Every form has the same parts
// with the same ids, however often they change. So an event has the id of its part, and only what is new is emitted,
// whatever the form.
package opencode

import (
	"bytes"
	"cmp"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// Dialect is what an agent that keeps its sessions in the tables of OpenCode does in its own way.
type Dialect struct {
	Tools map[string]core.Tool // tools that OpenCode lacks
	// IsImported reports by its id whether a row repeats another log of this machine; nil if no row does.
	IsImported func(id string) bool
	// CostOfSteps is set if the cost of a message has that of its subagents, too: then only its steps state its own.
	CostOfSteps bool
	// ExitCode is set if the exitCode in the metadata of a result is an exit code, too.
	ExitCode bool
}

// mapper is the work on one record.
type mapper struct {
	emitter
	wireRecord
}

// Normalizer returns the normalizer of an agent with a dialect. The sessions need [State].
func Normalizer(d *Dialect) core.Normalizer { return d.normalize }

// normalize maps one record. Only growing texts are pending; the end of input releases them.
func (d *Dialect) normalize(s *core.Session, r core.Record) (core.Result, error) {
	c := &mapper{emitter: emitter{st: stateOf(s), dialect: d}}
	if r.Origin.End {
		c.Builder = s.Begin(r, "")
		c.st.releaseAll(&c.emitter)
		return c.Finish("")
	}
	if isBanner(r.Data) {
		c.Builder = s.Begin(r, "")
		return c.Finish(core.SkipHeartbeat)
	}
	if err := r.Read(&c.wireRecord); err != nil {
		return core.Result{}, err
	}
	lenient.ReadObject(c.Payload, &c.wireRecord)
	ts, _ := core.TimeOfMillis(c.Timestamp)
	c.Builder = s.Begin(r, ts)
	dispatch(c)
	if c.own {
		c.First = -1 // each element carries itself
		return c.Finish("")
	}
	return c.Finish(c.skipped())
}

// dispatch maps the record by its form.
func dispatch(c *mapper) {
	switch {
	case jsontext.Value(c.Record.Data).Kind() == '[':
		emitList(c, lenient.Elements(c.Record.Data))
	case c.Info.Kind() == '{' && c.Messages.Kind() == '[':
		emitExport(c, lenient.Elements(c.Messages))
	case c.Info.Kind() == '{' && c.Parts.Kind() == '[':
		emitMessage(c, c.Record.Data)
	case lenient.IsValue(c.Properties):
		emitEvent(c)
	case c.Table != "" && c.Row.Kind() == '{':
		emitRow(c)
	case c.Type != "":
		runLine(c)
	default:
		c.Unknown(core.UnknownRecord, "")
		c.put("", core.UnknownDraft())
	}
}

// isBanner recognizes the line of text that the program writes before an export.
func isBanner(line []byte) bool { return bytes.HasPrefix(line, []byte("Exporting session: ")) }

// vendorID returns an id of the vendor; empty for none, and for the word that replaces ids removed from a log.
func vendorID[T ~string](id T) string {
	if id == "REDACTED" {
		return ""
	}
	return string(id)
}

// session is what OpenCode states about a session.
type session struct {
	ID        lenient.Text                `json:"id"`
	ParentID  lenient.Text                `json:"parentID"`
	Directory lenient.Text                `json:"directory"`
	Title     lenient.Text                `json:"title"`
	Version   lenient.Text                `json:"version"`
	Time      lenient.Object[sessionTime] `json:"time"`
	Revert    jsontext.Value              `json:"revert"`
}

type sessionTime struct {
	Created lenient.Number `json:"created"`
	Updated lenient.Number `json:"updated"`
}

// learnSession notes what applies to the session from now on.
func learnSession(c *mapper, in *session) {
	s := c.Session
	s.SetResumeID(vendorID(in.ID))
	s.SetRoot(string(in.Directory))
	s.SetTextExtension("version", in.Version)
	if in.Version != "" {
		c.st.Version = core.Cut(string(in.Version), maxVersion)
	}
	if created := in.Time.Value.Created.Count(); created > 0 {
		c.st.Created = created
	}
	if in.ParentID != "" {
		c.st.Child = true
		s.SetTextExtension("parentSessionId", lenient.Text(vendorID(in.ParentID)))
	}
}

// learnSessionID notes the session stated in a record, if none was stated before.
func learnSessionID(c *mapper, id lenient.Text) {
	if c.Session.ResumeID == "" {
		c.Session.SetResumeID(vendorID(id))
	}
}

// emitSession maps what OpenCode states about the session: its title, and that messages are taken back or restored.
func emitSession(c *mapper, in *session) {
	learnSession(c, in)
	if in.Title != "" {
		c.putSystem(cmp.Or(vendorID(in.ID), "session")+"#title", envelopes.SessionSummary, string(in.Title))
	}
	var revert core.Fingerprint
	if lenient.IsValue(in.Revert) {
		revert = core.FingerprintOf(lenient.CompactText(in.Revert))
	}
	if revert != c.st.Revert {
		c.st.Revert = revert
		c.putSystem("", envelopes.Meta, "")
	}
}

const maxVersion = 64 // bytes of a remembered version
