//go:build unix

package pipelinetest

import "syscall"

// ownGroup gives a process a group of its own. The kernel lets those that stand still go on
// when their group loses its last parent: that of the test does when the shell ends that
// started it in the background.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// Pause stops the process where it is by SIGSTOP; it does not know.
func (p *Process) Pause() { p.tb.Helper(); p.signal(syscall.SIGSTOP) }

// Resume lets a process go on that stands still.
func (p *Process) Resume() { p.tb.Helper(); p.signal(syscall.SIGCONT) }
