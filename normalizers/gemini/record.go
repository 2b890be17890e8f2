package gemini

import (
	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
	"tributary/normalizers/otlp"
)

// wireRecord has the members of a line of a session's file, of a whole document, and of a line of the stream.
type wireRecord struct {
	wireMessage `json:",embed"`
	wireStream  `json:",embed"`
	otlp.Export `json:",embed"`

	SessionID      lenient.Text               `json:"sessionId"`
	SessionIDSnake lenient.Text               `json:"session_id"`
	ProjectHash    lenient.Text               `json:"projectHash"`
	StartTime      lenient.Text               `json:"startTime"`
	LastUpdated    lenient.Text               `json:"lastUpdated"`
	Kind           lenient.Text               `json:"kind"`
	Summary        lenient.Text               `json:"summary"`
	Directories    lenient.List[lenient.Text] `json:"directories"`
	Messages       jsontext.Value             `json:"messages"`
	History        jsontext.Value             `json:"history"`
	Set            jsontext.Value             `json:"$set"`
	RewindTo       lenient.Text               `json:"$rewindTo"`

	set sessionValues // of Set
}

// sessionValues has the members of a header or a patch that apply to the session from then on.
type sessionValues struct {
	SessionID   lenient.Text               `json:"sessionId"`
	ProjectHash lenient.Text               `json:"projectHash"`
	LastUpdated lenient.Text               `json:"lastUpdated"`
	Kind        lenient.Text               `json:"kind"`
	Directories lenient.List[lenient.Text] `json:"directories"`
}

// time returns the record's own time in the form of an event; empty for none.
func (r *wireRecord) time() string {
	for _, v := range []lenient.Text{r.Timestamp, r.StartTime, r.set.LastUpdated} {
		if ts, ok := core.ParseTime(string(v)); ok {
			return ts
		}
	}
	return ""
}

// isHeader reports whether the record is the line that begins a session's file.
func (r *wireRecord) isHeader() bool {
	return r.SessionID != "" && r.ProjectHash != "" && r.Type == ""
}
