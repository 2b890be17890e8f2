// Package kilo is the row of Kilo Code, which is built on Roo Code and writes the files of Cline: package cline
// normalizes them.
package kilo

import (
	"embed"

	"tributary/envelopes"
	"tributary/normalizers/cline"
)

//go:embed all:samples ignored.txt
var embedded embed.FS

// Vendor is the row of Kilo Code in the table of vendors.
var Vendor = cline.Extension{
	Source:  envelopes.Kilo,
	Name:    "Kilo Code",
	ID:      "kilocode.kilo-code",
	Checked: "5.10",
	Limits:  "its database of 2026, and which tasks are subtasks of others",
	Files:   embedded,
}.Vendor()
