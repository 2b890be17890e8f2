package core

import (
	"tributary/envelopes"
	"tributary/normalizers/lenient"
)

// ChatDraft returns an event of the conversation; text and model are nil where there are none.
func ChatDraft(t envelopes.EventType, text, model *string) Draft {
	d := Draft{OnChannel: envelopes.ChannelChat}
	d.EventType, d.Text, d.Model = t, text, model
	return d
}

// SystemDraft returns an event in which the runtime of the agent speaks, not a participant
// of the conversation: role and channel are system. The event of an empty text has none.
func SystemDraft(t envelopes.EventType, text lenient.Text) Draft {
	d := Draft{InRole: envelopes.RoleSystem, OnChannel: envelopes.ChannelSystem}
	d.EventType, d.Text = t, text.Ptr()
	return d
}

// UnknownDraft returns the event of a record of an unknown type, which keeps the record. What is
// not known changes no other event: the record does not set the time of later ones.
func UnknownDraft() Draft {
	d := SystemDraft(envelopes.Meta, "")
	d.Unknown = true
	return d
}

// ErrorDraft returns the log event of an error that the vendor reports: its text is the
// message, and its metadata has code and message.
func (s *Session) ErrorDraft(code, message string) Draft {
	d := SystemDraft(envelopes.Log, lenient.Text(message))
	d.Metadata = s.MetadataWithError(code, message)
	return d
}
