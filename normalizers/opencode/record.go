package opencode

import (
	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/lenient"
)

// wireRecord is a record of any form, in the vendor's names.
type wireRecord struct {
	// An event of the server. The global stream wraps it in an envelope.
	Type       lenient.Text   `json:"type"`
	Properties jsontext.Value `json:"properties"`
	Payload    jsontext.Value `json:"payload"`

	// A line of a run, in addition to the type.
	SessionID lenient.Text   `json:"sessionID"`
	Timestamp lenient.Number `json:"timestamp"`
	Part      jsontext.Value `json:"part"`
	Error     jsontext.Value `json:"error"`

	// An export, or a message with its parts.
	Info     jsontext.Value `json:"info"`
	Messages jsontext.Value `json:"messages"`
	Parts    jsontext.Value `json:"parts"`

	// A row of the database.
	Table lenient.Text   `json:"table"`
	Row   jsontext.Value `json:"row"`
}
