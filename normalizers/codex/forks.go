package codex

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// The rollout of a fork or of a subagent may begin with a copy of its parent's history. This
// file decides where the copy begins and ends (README.md, Forks and subagents).

// startFork notes that the current session_meta is of a fork, and reports whether it is. A
// copy follows it, or it may do so.
func (m *mapper) startFork(spawned bool) bool {
	st := m.st
	id := core.Cut(string(m.ID), core.MaxName)
	base := m.HistoryBase.Value.ThreadID
	end := cmp.Or(ordinalOf(m.HistoryStart), ordinalOf(m.HistoryBase.Value.EndOrdinal))
	fork := m.ForkedFromID != "" || spawned || base != "" && base != m.ID || end > 0 && base == ""
	st.Forked = st.Forked || fork || base != ""
	marked := fork || m.ParentThreadID != "" || m.ThreadSource == "subagent"
	st.Copied, st.Fork, st.CopyEnd, st.Weak = "", "", 0, marked && !fork
	st.Alone = st.MetaID == "" || st.MetaID == id
	st.Dated, st.Open = false, false
	st.TurnIDs = statesTurnIDs(string(m.CLIVersion))
	switch {
	case fork && (end > 0 || isUUIDv7(id) && !st.Alone):
		st.Copied, st.CopyEnd = id, end
	case marked:
		st.Fork = id
	}
	return fork
}

// followCopy notes where copied history begins or ends with the current record, and whether
// that record is copied.
func (m *mapper) followCopy() {
	st := m.st
	switch {
	case st.Copied != "" && st.CopyEnd > 0 && m.ordinal.OK:
		if int64(m.ordinal.Value) >= st.CopyEnd {
			m.endCopy()
		}
	case m.kind == "session_meta":
		if st.Fork != "" && m.ID != "" && string(m.ID) != st.MetaID {
			st.beginCopy() // the parent's own follows that of the fork
		}
	case m.kind == "token_usage_record":
		if st.Copied != "" && string(m.ThreadID) == st.Copied {
			m.endCopy()
		}
	case m.startsTurn():
		m.followTurn()
	}
	m.copied = st.Copied != ""
}

// followTurn notes whether the turn that begins is copied or the fork's own.
func (m *mapper) followTurn() {
	st := m.st
	if st.Copied == "" && (st.Fork == "" || st.Alone) {
		st.Fork = "" // the parent's session_meta would have come before
		return
	}
	own, stated := m.ownTurn()
	switch {
	case stated && own:
		m.endCopy()
	case stated:
		st.beginCopy()
		st.Open = false
	case st.Copied == "":
		st.Fork = "" // nothing states that a copy follows
	case st.Dated, m.TurnID == "" && st.TurnIDs:
		// Copied: the fork's own turn will state that it is.
	case m.TurnID != "" && m.kind == "turn_context":
		st.Open = true
	default:
		m.endCopy()
	}
}

// ownTurn reports whether the turn that begins is the fork's own, where the record states it:
// a UUIDv7 by its time, a task_started by the time at which the turn began. The record of a
// copied turn is written later than that.
func (m *mapper) ownTurn() (own, stated bool) {
	st := m.st
	fork, turn := cmp.Or(st.Copied, st.Fork), string(m.TurnID)
	if isUUIDv7(fork) && isUUIDv7(turn) {
		st.TurnIDs = true
		return uuidTime(turn) >= uuidTime(fork), true
	}
	if st.Copied == "" && st.Weak {
		return false, false
	}
	at, err := time.Parse(time.RFC3339Nano, m.stamp)
	if started := m.StartedAt.Integer(); started != nil && err == nil {
		st.Dated = true
		return at.Unix() == inSeconds(*started), true
	}
	return false, false
}

// inSeconds returns a time since 1970, in seconds or milliseconds, in seconds.
func inSeconds(n int64) int64 {
	if n >= 1e11 { // seconds reach it in the year 5138
		return n / 1000
	}
	return n
}

// endOpenCopy ends a copy in which a turn began that may be the fork's own: it does at the
// first tokens of that turn.
func (m *mapper) endOpenCopy() {
	if m.st.Open {
		m.endCopy()
		m.copied = false
	}
}

// beginCopy begins the copy of a session that may be a fork.
func (s *state) beginCopy() {
	if s.Copied == "" {
		s.Copied, s.Fork, s.Forked = s.Fork, "", true
	}
}

// endCopy ends the copy: what follows is the fork's own. No record of its own repeats the texts
// that are pending.
func (m *mapper) endCopy() {
	st := m.st
	if st.Copied != "" {
		m.releasePending()
	}
	st.Copied, st.Fork, st.CopyEnd, st.Open = "", "", 0, false
}

// isUUIDv7 reports whether an id is a UUID of version 7, which begins with its time.
func isUUIDv7(id string) bool {
	return len(id) == 36 && id[8] == '-' && id[13] == '-' && id[14] == '7' && id[18] == '-' && id[23] == '-'
}

// uuidTime returns the 48 bits of milliseconds that a UUIDv7 begins with, in hex. The bits
// behind them are random.
func uuidTime(id string) string { return strings.ToLower(id[:13]) }

// statesTurnIDs reports whether a version of the CLI gives turns ids: from 0.118.
func statesTurnIDs(version string) bool {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	return major != "" && (major != "0" || len(minor) > 3 || len(minor) == 3 && minor >= "118")
}

// ordinalOf returns the position of a record: a number, or a string of digits; else 0.
func ordinalOf(v jsontext.Value) int64 {
	if v.Kind() == '"' {
		n, err := strconv.ParseInt(lenient.Unquote(v), 10, 64)
		if err != nil {
			return 0
		}
		return max(0, n)
	}
	n := lenient.NumberOf(v)
	return n.Count()
}
