//go:build unix

package main

import "syscall"

// pause stops the process.
func (p *process) pause() { p.send(syscall.SIGSTOP) }

// resume continues a process after pause.
func (p *process) resume() { p.send(syscall.SIGCONT) }

// endWithStacks ends the process if it runs, paused or not. Its standard error then has the stacks of all goroutines,
// which show what a process that stands still waits for.
func (p *process) endWithStacks() {
	if p.running() {
		p.resume()
		p.signal(syscall.SIGQUIT)
	}
}
