//go:build unix

package main

import "syscall"

// pause stops the process.
func (p *process) pause() { p.send(syscall.SIGSTOP) }

// resume continues a process after pause.
func (p *process) resume() { p.send(syscall.SIGCONT) }
