package claude

import (
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// summary emits the summary of a conversation.
func summary(c *mapper, text lenient.Text) {
	c.put(c.UUID, core.ChatDraft(envelopes.SessionSummary, text.Ptr(), nil))
}

// stated emits the value of a record that only states one, such as a title or a mode, unless the last record of the
// type stated the same value. more are further parts of the value.
func stated(c *mapper, t envelopes.EventType, value lenient.Text, more ...lenient.Text) {
	if c.st.Stated.IsNew(string(c.Type), core.FingerprintOf(string(value), fmt.Sprint(more)), &c.Session.Lost) {
		c.putSystem("", t, value)
	}
}

// costState emits what the session has cost so far, if that has changed. The figures are in metadata alone: the records of
// the calls bill them, except those of helper models, and after a fork the total may be that of two sessions.
func costState(c *mapper) {
	is := core.FingerprintOf(string(c.TotalCost), string(c.ModelUsage), string(c.HasUnknownCost))
	if !c.st.Stated.IsNew(string(c.Type), is, &c.Session.Lost) {
		return
	}
	d := core.SystemDraft(envelopes.Meta, "")
	d.Metadata = c.Session.MetadataWith(map[string]jsontext.Value{
		"totalCostUsd": c.TotalCost, "modelUsage": c.ModelUsage, "hasUnknownModelCost": c.HasUnknownCost,
	})
	c.put("", d)
}

// snapshot has the files that Claude Code saved before changing them.
type snapshot struct {
	Timestamp lenient.Text                              `json:"timestamp"`
	Files     lenient.Object[map[string]jsontext.Value] `json:"trackedFileBackups"`
}

// fileHistorySnapshot emits a snapshot of files, even an empty one or an update of an earlier one.
func fileHistorySnapshot(c *mapper) {
	d := snapshotDraft(len(c.Snapshot.Value.Files.Value))
	d.Identity = string(c.Record.Data)
	c.put(withSuffix(c.MessageID, "#snapshot"), d)
}

// fileHistoryDelta emits a snapshot of one file.
func fileHistoryDelta(c *mapper) {
	d := snapshotDraft(1)
	d.Touch(string(c.TrackingPath), "")
	c.put("", d)
}

// snapshotDraft returns the event of a snapshot of n files.
func snapshotDraft(n int) core.Draft {
	d := core.Draft{OnChannel: envelopes.ChannelFilesystem}
	d.EventType, d.Text = envelopes.FileSnapshot, new(fmt.Sprintf("snapshot of %d files", n))
	return d
}
