//go:build unix

package pipelinetest

import "syscall"

// ownGroup gives a process a process group of its own. The kernel continues the stopped
// processes of a group that loses its last parent, as the group of the test does when the
// shell that started it in the background ends.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// Pause stops the process by SIGSTOP; the process does not notice.
func (p *Process) Pause() { p.tb.Helper(); p.signal(syscall.SIGSTOP) }

// Resume continues a process that is stopped.
func (p *Process) Resume() { p.tb.Helper(); p.signal(syscall.SIGCONT) }
