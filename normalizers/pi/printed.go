package pi

import (
	"strconv"

	"tributary/normalizers/chat"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// readPrinted writes a record that only a run prints. It has no id.
func (d *Dialect) readPrinted(w *chat.Writer, r *Record) {
	switch r.Type {
	case "message_end":
		w.At(core.TimeOfMillis(r.Message.Value.Timestamp))
		d.readMessage(w, &r.Message.Value)
	case "message_start", "message_update", "queue_update", "bash_execution_update":
		w.Skip = core.SkipProgress
	case "turn_end", "agent_end", "tool_execution_start", "tool_execution_update", "tool_execution_end":
		w.Skip = core.SkipMirror // its messages have records of their own
	case "agent_start", "turn_start", "agent_settled", "compaction_start", "summarization_retry_attempt_start",
		"summarization_retry_finished", "auto_retry_start", "auto_retry_end": // their error is that of the answer before
		w.Meta()
	case "summarization_retry_scheduled":
		w.Error("", r.Error)
	case "compaction_end":
		readCompacted(w, r)
	case "entry_appended":
		d.readAppended(w, r)
	case "session_info_changed":
		w.Say(core.SpeechSummary, r.Name)
	case "thinking_level_changed":
		w.Session.SetTextExtension("thinkingLevel", r.Level)
		w.Meta()
	default:
		w.UnknownRecord(r.Type)
	}
}

// readAppended writes an entry as the log has it.
func (d *Dialect) readAppended(w *chat.Writer, r *Record) {
	var entry Record
	lenient.ReadObject(r.Entry, &entry)
	if entry.Type == r.Type {
		w.UnknownRecord(r.Type, entry.Type)
	} else {
		d.Read(w, &entry)
	}
}

// readCompacted writes the end of a compaction: the summary, or why there is none.
func readCompacted(w *chat.Writer, r *Record) {
	s := &r.Result.Value
	switch {
	case !r.Result.OK && r.Error != "":
		w.Error("", r.Error)
	case !r.Result.OK:
		w.Meta()
	case !isStated(w, s, byRun):
		w.ID = lenient.Text("compaction-" + s.key().String())
		saySummary(w, s)
	}
}

// The two statements of a compaction: the entry in the log, and what a run prints, which has no id.
const (
	byEntry = 1
	byRun   = 2
)

// key identifies a compaction in its session.
func (s *summary) key() core.Fingerprint {
	return core.FingerprintOf("compaction", string(s.Summary), strconv.FormatInt(s.Before.Count(), 10))
}

// isStated reports whether the other statement of a compaction came first, and remembers this one if none did.
func isStated(w *chat.Writer, s *summary, by byte) bool {
	first, ok := w.Session.IDs.Get(s.key())
	if !ok {
		w.Session.IDs.Put(s.key(), core.Fingerprint{by})
		return false
	}
	if first[0] == by {
		return false
	}
	w.Skip = core.SkipMirror
	return true
}
