// Package rootest describes Roo Code to the tests: its files are those of Cline.
package rootest

import (
	"tributary/envelopes"
	"tributary/normalizers/cline/clinetest"
)

// Suite describes Roo Code to the tests of all vendors.
var Suite = clinetest.SuiteOf(envelopes.Roo, "roo")
