// Package openclawtest describes OpenClaw to the tests: its log is that of Pi.
package openclawtest

import (
	"tributary/envelopes"
	"tributary/normalizers/pi/pitest"
)

// Suite describes OpenClaw to the tests of all vendors.
var Suite = pitest.SuiteOf(envelopes.OpenClaw, "openclaw")
