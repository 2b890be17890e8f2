// Package kilo is the row of Kilo Code. Up to version 5 it was built on Roo Code and wrote the files of Cline, which
// package cline normalizes; since version 7 it is built on OpenCode and writes its database, which package opencode
// normalizes.
//
// Start with [Vendor] and with normalize, which chooses between the two. README.md has the rules.
package kilo

import (
	"embed"

	"tributary/envelopes"
	"tributary/normalizers/cline"
	"tributary/normalizers/core"
)

//go:embed all:samples ignored.txt
var embedded embed.FS

// extension is the row of Kilo Code up to version 5.
var extension = cline.Extension{
	Source:  envelopes.Kilo,
	Name:    "Kilo Code",
	ID:      "kilocode.kilo-code",
	Checked: "7.5.11",
	Limits:  "which tasks are subtasks of others; exports and runs are taken for OpenCode's; no `kilo.db` of a user was seen",
	Files:   embedded,
}.Vendor()

// Vendor is the row of Kilo Code in the table of vendors.
var Vendor = func() core.Vendor {
	v := extension
	v.Session, v.Time = sessionOf, timeOf
	v.LogOf = append(v.LogOf, envelopes.OpenCode)
	v.Normalize, v.NewState = normalize, func() core.State { return &state{} }
	v.Version = func(s *core.Session) string { return s.TextExtension("version") }
	v.Evidence.Lacks = nil
	v.Database = &database
	return v
}()
