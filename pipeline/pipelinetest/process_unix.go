//go:build unix

package pipelinetest

import "syscall"

// ownGroup gives a process its own process group. The kernel continues stopped processes of a group that loses its
// last parent; the group of the test does so when a shell that started it in the background ends.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// Pause stops the process by SIGSTOP; the process does not notice.
func (p *Process) Pause() { p.tb.Helper(); p.signal(syscall.SIGSTOP) }

// Resume continues a stopped process.
func (p *Process) Resume() { p.tb.Helper(); p.signal(syscall.SIGCONT) }
