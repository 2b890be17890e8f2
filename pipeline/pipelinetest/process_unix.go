//go:build unix

package pipelinetest

import "syscall"

// Pause stops the process where it is by SIGSTOP; it does not know.
func (p *Process) Pause() { p.tb.Helper(); p.signal(syscall.SIGSTOP) }

// Resume lets a process go on that stands still.
func (p *Process) Resume() { p.tb.Helper(); p.signal(syscall.SIGCONT) }
