// Package kilo is the row of Kilo Code, which is built on Roo Code and writes the files of Cline: package cline normalizes
// them.
package kilo

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

// Vendor is the row of Kilo Code in the table of vendors.
var Vendor = core.Vendor{
	Source: envelopes.Kilo,
	Name:   "Kilo Code",

	Recognize: func(*core.Shape) string { return "" }, // only the folder of a file distinguishes it from one of Cline
	Session:   cline.SessionOf,
	Time:      cline.TimeOf,

	Framing: cline.Framing,
	LogOf:   envelopes.Cline,

	Normalize: cline.Normalize,
	NewState:  chat.NewState,

	Checked: "5.10",
	Ignored: ignored,

	Evidence: core.Evidence{
		Read:   []core.Basis{core.Code},
		Lacks:  []core.Fact{core.Subagents},
		Limits: "its database of 2026, and which tasks are subtasks of others",
	},

	Logs: core.Logs{
		Env:     "KILO_CODE_HOME",
		About:   "folder that holds the settings of the editor with Kilo Code; default ~",
		Folders: []core.LogFolder{cline.TasksOf("kilocode.kilo-code")},
	},
	Samples: samples,
}
