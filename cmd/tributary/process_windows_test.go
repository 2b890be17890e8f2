package main

// pause skips the test: a process cannot be stopped and continued here.
func (p *process) pause() { p.t.Skip("needs SIGSTOP") }

// resume is not reached.
func (p *process) resume() {}

// endWithStacks does nothing: a process cannot be asked for its stacks here.
func (p *process) endWithStacks() {}
