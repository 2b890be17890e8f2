package filters

import (
	"bytes"

	"tributary/envelopes"
)

var (
	// plainEvent begins every event in JSON that a worker stores.
	plainEvent    = []byte(`{"schema_version":"` + envelopes.SchemaVersion + `","source":"`)
	specVersion   = []byte(`"specversion"`)
	eventType     = []byte(`,"event_type":"`)
	native        = []byte(`,"raw":`)
	textTruncated = []byte(`"text_truncated":true`)
)

// cutBytes is the least size of an event with a truncated text.
const cutBytes = 64 << 10

// TypeOf returns the type of an event in JSON that a worker stored, empty for other data.
func TypeOf(body []byte) envelopes.EventType {
	if !bytes.HasPrefix(body, plainEvent) {
		return ""
	}
	_, behind, _ := bytes.Cut(body, eventType)
	is, _, _ := bytes.Cut(behind, []byte{'"'})
	for _, known := range envelopes.EventTypes {
		if string(is) == string(known) {
			return known // without an allocation
		}
	}
	return envelopes.EventType(is)
}

// IsDocument reports whether a body for which [TypeOf] is empty may be a structured CloudEvent, which has the event inside.
func IsDocument(body []byte) bool { return bytes.Contains(body, specVersion) }

// Searched returns the part of an event in JSON, whose type is what [TypeOf] returns, that has its texts: what comes before
// the raw record, which repeats them. Only the result of a tool has texts behind it, too.
func Searched(body []byte, is envelopes.EventType) []byte {
	if is != "" && is != envelopes.ToolResult {
		body, _, _ = bytes.Cut(body, native)
	}
	return body
}

// isCut reports whether an event in JSON has a truncated text.
func isCut(body []byte) bool { return len(body) >= cutBytes && bytes.Contains(body, textTruncated) }
