// Package roo is the row of Roo Code, which is built on Cline and writes the files of Cline: package cline normalizes
// them.
package roo

import (
	"embed"

	"tributary/envelopes"
	"tributary/normalizers/cline"
)

//go:embed all:samples ignored.txt
var embedded embed.FS

// Vendor is the row of Roo Code in the table of vendors.
var Vendor = cline.Extension{
	Source:  envelopes.Roo,
	Name:    "Roo Code",
	ID:      "rooveterinaryinc.roo-cline",
	Checked: "3.52",
	Limits:  "which tasks are subtasks of others",
	Files:   embedded,
}.Vendor()
