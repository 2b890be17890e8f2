package pipelinetest

import "syscall"

func ownGroup() *syscall.SysProcAttr { return nil }

// Pause skips the test: no process can be stopped from outside on Windows.
func (p *Process) Pause() {
	p.tb.Helper()
	p.tb.Skip("no process can be stopped from outside on Windows")
}

// Resume continues a stopped process.
func (p *Process) Resume() {}
