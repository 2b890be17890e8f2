package main

import (
	"context"
	"errors"
	"sync"
)

// probed is a part of the process that knows its health.
type probed interface {
	Alive() error // nil while the part works or waits for the broker; an error if it makes no progress and needs a restart
	Ready() error // nil if the part can work, else the reasons why it cannot, one a line
}

// health is what the probes report. The zero value reports that the process starts.
type health struct {
	mu    sync.Mutex
	parts []probed
}

// watch adds a part of the process.
func (h *health) watch(p probed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.parts = append(h.parts, p)
}

var (
	errStarting = errors.New("starting: the broker has not answered yet")
	errDraining = errors.New("draining: the process ends")
)

func (h *health) alive() error { return h.ask(probed.Alive) }

// ready returns an error while the process starts, and after its context has ended.
func (h *health) ready(ctx context.Context) error {
	if ctx.Err() != nil {
		return errDraining
	}
	h.mu.Lock()
	starting := len(h.parts) == 0
	h.mu.Unlock()
	if starting {
		return errStarting
	}
	return h.ask(probed.Ready)
}

func (h *health) ask(question func(probed) error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for _, p := range h.parts {
		errs = append(errs, question(p))
	}
	return errors.Join(errs...)
}
