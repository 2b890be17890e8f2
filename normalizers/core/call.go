package core

import (
	"tributary/envelopes"
)

// Outcome is what an end record said about a call before its result came, or what its
// result said already.
type Outcome struct {
	Exit    *int64           `json:"x,omitzero"`
	Latency *int64           `json:"l,omitzero"`
	Failed  bool             `json:"f,omitzero"`
	Files   []envelopes.File `json:"files,omitzero"`
	Told    bool             `json:"t,omitzero"` // the result is told
	Alone   bool             `json:"a,omitzero"` // no result follows: the end is it
}

// Call is a tool call that may still get a result.
type Call struct {
	ID      Fingerprint       `json:"i"`
	Tool    string            `json:"n,omitzero"`
	Channel envelopes.Channel `json:"c,omitzero"`
	Op      envelopes.FileOp  `json:"o,omitzero"`
	Path    string            `json:"p,omitzero"`
	Outcome Outcome           `json:"r,omitzero"`

	// What the result of a shell needs, until it is told: the description of the command,
	// else the command, and whether it was described by the empty string.
	About       string `json:"a,omitzero"`
	Undescribed bool   `json:"u,omitzero"`
}
