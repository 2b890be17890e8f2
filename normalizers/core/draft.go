package core

import (
	"tributary/envelopes"
	"tributary/normalizers/lenient"
)

// ChatDraft returns a draft of an event of the conversation; text and model may be nil.
func ChatDraft(t envelopes.EventType, text, model *string) Draft {
	d := Draft{OnChannel: envelopes.ChannelChat}
	d.EventType, d.Text, d.Model = t, text, model
	return d
}

// SystemDraft returns a draft of an event by the agent's runtime, not by a participant of the conversation: role and
// channel are system. An empty text becomes nil.
func SystemDraft(t envelopes.EventType, text lenient.Text) Draft {
	d := Draft{InRole: envelopes.RoleSystem, OnChannel: envelopes.ChannelSystem}
	d.EventType, d.Text = t, text.Ptr()
	return d
}

// UnknownDraft returns the draft of the event that keeps a record of an unknown type. Such a record changes no other
// event: it does not set the time of later ones.
func UnknownDraft() Draft {
	d := SystemDraft(envelopes.Meta, "")
	d.Unknown = true
	return d
}

// ErrorDraft returns the draft of the log event for an error reported by the vendor: its text is the message, and its
// metadata has code and message.
func (s *Session) ErrorDraft(code, message string) Draft {
	d := SystemDraft(envelopes.Log, lenient.Text(message))
	d.Metadata = s.MetadataWithError(code, message)
	return d
}
