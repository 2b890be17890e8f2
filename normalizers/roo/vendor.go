// Package roo is the row of Roo Code, which is built on Cline and writes the files of Cline: package cline normalizes
// them.
package roo

import (
	"embed"

	"tributary/envelopes"
	"tributary/normalizers/chat"
	"tributary/normalizers/cline"
	"tributary/normalizers/core"
)

//go:embed all:samples
var samples embed.FS

//go:embed ignored.txt
var ignored string

// Vendor is the row of Roo Code in the table of vendors.
var Vendor = core.Vendor{
	Source: envelopes.Roo,
	Name:   "Roo Code",

	Recognize: func(*core.Shape) string { return "" }, // only the folder of a file distinguishes it from one of Cline
	Session:   cline.SessionOf,
	Time:      cline.TimeOf,

	Framing: cline.Framing,
	LogOf:   envelopes.Cline,

	Normalize: cline.Normalize,
	NewState:  chat.NewState,

	Checked: "3.52",
	Ignored: ignored,

	Evidence: core.Evidence{
		Read:   []core.Basis{core.Code},
		Lacks:  []core.Fact{core.Subagents},
		Limits: "which tasks are subtasks of others",
	},

	Logs: core.Logs{
		Env:     "ROO_CODE_HOME",
		About:   "folder that holds the settings of the editor with Roo Code; default ~",
		Folders: []core.LogFolder{cline.TasksOf("rooveterinaryinc.roo-cline")},
	},
	Samples: samples,
}
