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

// The rollout of a fork or of a subagent may begin with a copy of its parent's history. This file decides where the
// copy begins and ends. All of it has the time of the fork, so other members decide:
//
//   - A session is a fork by forked_from_id, source.subagent.thread_spawn or a history_base of another thread.
//   - subagent_history_start_ordinal and history_base.end_ordinal_exclusive state where the copy ends; it then begins
//     behind the session_meta of the fork. Otherwise it begins with the session_meta of another id that follows
//     before any turn; in a file that continues another session's file, behind the session_meta of the fork.
//   - Without a stated end it ends with the first turn of the fork itself ([fork.ownTurn]), with a turn that states
//     neither id nor time unless earlier turns stated when they began, or with a token_usage_record of its thread_id.
//
// Copied token_counts set the running total.

// fork is what is known about copied history.
type fork struct {
	Copied  string `json:"copied,omitzero"` // id of the fork whose copied history continues; empty for none
	Fork    string `json:"fork,omitzero"`   // id of a session that may be followed by copied history
	Weak    bool   `json:"weak,omitzero"`   // Fork is a subagent, and may have no copied history
	Alone   bool   `json:"alone,omitzero"`  // the file has no session_meta except that of Fork
	CopyEnd int64  `json:"until,omitzero"`  // ordinal of the first record behind the copied history; 0 if not stated
	TurnIDs bool   `json:"turns,omitzero"`  // turns of the fork have ids
	Dated   bool   `json:"dated,omitzero"`  // turns of the fork state when they began
	Open    bool   `json:"open,omitzero"`   // a turn began that may be the fork's first own turn
	Forked  bool   `json:"forked,omitzero"` // the file has the start of a fork, or continues another file
}

// start reports whether a session_meta is that of a fork, and notes it: a copy follows, or may follow. last is the id
// of the last session_meta.
func (f *fork) start(r *record, spawned bool, last string) bool {
	id := core.Cut(string(r.ID), core.MaxName)
	base := r.HistoryBase.Value.ThreadID
	end := cmp.Or(ordinalOf(r.HistoryStart), ordinalOf(r.HistoryBase.Value.EndOrdinal))
	is := r.ForkedFromID != "" || spawned || base != "" && base != r.ID || end > 0 && base == ""
	f.Forked = f.Forked || is || base != ""
	marked := is || r.ParentThreadID != "" || r.ThreadSource == "subagent"
	f.Copied, f.Fork, f.CopyEnd, f.Weak = "", "", 0, marked && !is
	f.Alone = last == "" || last == id
	f.Dated, f.Open = false, false
	f.TurnIDs = statesTurnIDs(string(r.CLIVersion))
	switch {
	case is && (end > 0 || isUUIDv7(id) && !f.Alone):
		f.Copied, f.CopyEnd = id, end
	case marked:
		f.Fork = id
	}
	return is
}

// follow notes whether copied history begins or ends with a record, and reports whether it has ended. last is the id
// of the last session_meta.
func (f *fork) follow(r *record, last string) (ended bool) {
	switch {
	case f.Copied != "" && f.CopyEnd > 0 && r.ordinal.OK:
		return int64(r.ordinal.Value) >= f.CopyEnd && f.end()
	case r.kind == "session_meta":
		if f.Fork != "" && r.ID != "" && string(r.ID) != last {
			f.begin() // the parent's session_meta follows that of the fork
		}
	case r.kind == "token_usage_record":
		return f.Copied != "" && string(r.ThreadID) == f.Copied && f.end()
	case r.startsTurn():
		return f.followTurn(r)
	}
	return false
}

// followTurn notes whether a new turn is copied or the fork's own.
func (f *fork) followTurn(r *record) (ended bool) {
	if f.Copied == "" && (f.Fork == "" || f.Alone) {
		f.Fork = "" // the parent's session_meta would have come before
		return false
	}
	own, stated := f.ownTurn(r)
	switch {
	case stated && own:
		return f.end()
	case stated:
		f.begin()
		f.Open = false
	case f.Copied == "":
		f.Fork = "" // nothing states that a copy follows
	case f.Dated, r.TurnID == "" && f.TurnIDs:
		// Copied: the fork's own turn will state that it is.
	case r.TurnID != "" && r.kind == "turn_context":
		f.Open = true
	default:
		return f.end()
	}
	return false
}

// ownTurn reports whether a new turn is the fork's own, if the record states it: a UUIDv7 by its time, a task_started
// by the time at which the turn began. The record of a copied turn was written later than that.
func (f *fork) ownTurn(r *record) (own, stated bool) {
	fork, turn := cmp.Or(f.Copied, f.Fork), string(r.TurnID)
	if isUUIDv7(fork) && isUUIDv7(turn) {
		f.TurnIDs = true
		return uuidTime(turn) >= uuidTime(fork), true
	}
	if f.Copied == "" && f.Weak {
		return false, false
	}
	at, err := time.Parse(time.RFC3339Nano, r.stamp)
	if started := r.StartedAt.Integer(); started != nil && err == nil {
		f.Dated = true
		return at.Unix() == inSeconds(*started), true
	}
	return false, false
}

// inSeconds converts a time since 1970, in seconds or milliseconds, to seconds.
func inSeconds(n int64) int64 {
	if n >= 1e11 { // in seconds, this is the year 5138
		return n / 1000
	}
	return n
}

// begin begins the copy in a session that may be a fork.
func (f *fork) begin() {
	if f.Copied == "" {
		f.Copied, f.Fork, f.Forked = f.Fork, "", true
	}
}

// end ends the copy, and reports whether there was one: what follows is the fork's own.
func (f *fork) end() bool {
	was := f.Copied != ""
	f.Copied, f.Fork, f.CopyEnd, f.Open = "", "", 0, false
	return was
}

// endOpenCopy ends a copy in which a turn began that may be the fork's own, at the first tokens of that turn.
func (e *emitter) endOpenCopy() {
	if e.st.Open {
		e.followCopy(e.st.fork.end())
	}
}

// followCopy notes whether the record is copied. No record of the fork itself repeats the texts that are pending when
// a copy ends.
func (e *emitter) followCopy(ended bool) {
	if ended {
		e.st.releaseTexts(e)
	}
	e.copied = e.st.Copied != ""
}

// isUUIDv7 reports whether an id is a UUID of version 7, which begins with its time.
func isUUIDv7(id string) bool {
	return len(id) == 36 && id[8] == '-' && id[13] == '-' && id[14] == '7' && id[18] == '-' && id[23] == '-'
}

// uuidTime returns the 48 bits of milliseconds at the beginning of a UUIDv7, in hex. The remaining bits are random.
func uuidTime(id string) string { return strings.ToLower(id[:13]) }

// statesTurnIDs reports whether a version of the CLI gives turns ids: since 0.118.
func statesTurnIDs(version string) bool {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	return major != "" && (major != "0" || len(minor) > 3 || len(minor) == 3 && minor >= "118")
}

// ordinalOf returns the position of a record: a number, or a string of digits; 0 for anything else.
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
