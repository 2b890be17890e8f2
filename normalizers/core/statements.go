package core

import (
	"cmp"
	"encoding/binary"
	"math"
	"strconv"
	"strings"

	"tributary/envelopes"
)

// Statements counts how often the log of a session and its telemetry have stated a text, for an agent that gives it no
// id that both have. The n-th statement of one channel is the n-th of the other, in whatever order they come. It uses
// the memory of event ids, with a key of its own.
type Statements struct {
	ids            *Memory[Fingerprint]
	key            Fingerprint
	log, telemetry uint16
}

// StatementsOf returns the counts of a text; white space does not distinguish texts.
func StatementsOf(s *Session, of envelopes.EventType, text string) Statements {
	return statementsOf(s, of, cmp.Or(strings.Join(strings.Fields(text), ""), " "))
}

// StatementsNamed returns the counts of what both channels state under a name of their own, whatever its text.
func StatementsNamed(s *Session, of envelopes.EventType, name string) Statements {
	return statementsOf(s, of, "named "+name) // no text has white space
}

// RedactedPrompts returns the counts of all prompts, for telemetry that leaves out their texts.
func RedactedPrompts(s *Session) Statements { return statementsOf(s, envelopes.UserMessage, "") }

func statementsOf(s *Session, of envelopes.EventType, name string) Statements {
	return StatementsAt(s, FingerprintOf("said in both", string(of), name))
}

// StatementsAt returns the counts with a key.
func StatementsAt(s *Session, key Fingerprint) Statements {
	counts, _ := s.IDs.Get(key)
	return Statements{&s.IDs, key, binary.BigEndian.Uint16(counts[:]), binary.BigEndian.Uint16(counts[2:])}
}

// Key returns the key of the counts, which a state keeps instead of a text.
func (t Statements) Key() Fingerprint { return t.key }

// Replaced returns the id of the event of the telemetry that the next statement of the log replaces; empty for none.
func (t Statements) Replaced() string {
	if t.telemetry <= t.log {
		return ""
	}
	return t.id(t.log)
}

// InLog notes that the log states the text.
func (t Statements) InLog() {
	t.log = min(t.log, math.MaxUint16-1) + 1
	t.put()
}

// InTelemetry notes that the telemetry states the text. It returns the id of the event; empty if the log has stated it.
func (t Statements) InTelemetry() (id string) {
	if t.telemetry >= t.log {
		id = t.id(t.telemetry)
	}
	t.telemetry = min(t.telemetry, math.MaxUint16-1) + 1
	t.put()
	return id
}

// EmitLogged emits a message of the log. It replaces the event of the telemetry for the same text, unless it revises an
// event of the log: then that event of the telemetry waits for another message. Where the telemetry has stated it under
// one of the names, that decides alone.
func (b *Builder) EmitLogged(d Draft, names ...Statements) bool {
	text := ""
	if d.Text != nil {
		text = *d.Text
	}
	return b.EmitStated(d, StatementsOf(b.Session, d.EventType, text), names...)
}

// EmitStated is [Builder.EmitLogged] for an event of the log that the telemetry states as another text.
func (b *Builder) EmitStated(d Draft, as Statements, names ...Statements) bool {
	stated := []Statements{as}
	switch revises := b.Session.HasEvent(d.EventID); {
	case revises && as.Replaced() != "":
		return b.Emit(d)
	case revises:
	default:
		if d.EventType == envelopes.UserMessage {
			stated = append(stated, RedactedPrompts(b.Session))
		}
		stated = append(stated, names...)
		for _, s := range names {
			if s.Replaced() != "" {
				stated = []Statements{s}
			}
		}
	}
	for _, s := range stated {
		d.Supersedes = cmp.Or(d.Supersedes, s.Replaced())
	}
	if !b.Emit(d) {
		return false
	}
	for _, s := range stated {
		s.InLog()
	}
	return true
}

func (t Statements) id(n uint16) string {
	return "otlp:" + t.key.String() + "." + strconv.Itoa(int(n)+1)
}

func (t Statements) put() {
	var counts Fingerprint
	binary.BigEndian.PutUint16(counts[:], t.log)
	binary.BigEndian.PutUint16(counts[2:], t.telemetry)
	t.ids.Put(t.key, counts)
}
