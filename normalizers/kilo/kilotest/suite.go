// Package kilotest describes Kilo Code to the tests: its files are those of Cline.
package kilotest

import (
	"tributary/envelopes"
	"tributary/normalizers/cline/clinetest"
)

// Suite describes Kilo Code to the tests of all vendors.
var Suite = clinetest.SuiteOf(envelopes.Kilo, "kilo")
