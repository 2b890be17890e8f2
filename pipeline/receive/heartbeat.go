package receive

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"tributary/pipeline/streams"
)

// activity is what a receiver has done since it started, for its heartbeat.
type activity struct {
	mu sync.Mutex
	is streams.Receiver
}

// answered counts a request and, unless all of it is stored, why.
func (a *activity) answered(outcome string, err error) {
	now := time.Now().UTC()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.is.Requests++
	if err == nil {
		return
	}
	if a.is.Refused == nil {
		a.is.Refused = make(map[string]streams.Refusals)
	}
	of := streams.Refusals{Requests: a.is.Refused[outcome].Requests + 1, Last: now, Text: err.Error()}
	if !errors.As(err, new(*partlyRefused)) {
		r := refusalOf(err)
		of.Final, of.Text = r.retry == 0 && r.http != http.StatusRequestTimeout, r.text
		if !errors.As(err, new(*refusal)) {
			a.is.Error, a.is.ErrorAt = err.Error(), now
		}
	}
	a.is.Refused[outcome] = of
}

// stored counts records that the broker has acknowledged.
func (a *activity) stored(records int) {
	if records == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.is.Records += int64(records)
	a.is.Received = time.Now().UTC()
	a.is.Error, a.is.ErrorAt = "", time.Time{}
}

// present returns the heartbeat.
func (a *activity) present(ended bool) streams.Receiver {
	a.mu.Lock()
	defer a.mu.Unlock()
	is := a.is
	is.Ended, is.Refused = ended, maps.Clone(is.Refused)
	return is
}

// startHeartbeats reports the state of the receiver to the broker until stop is called, which reports the end.
func (r *Receiver) startHeartbeats(ctx context.Context, listeners []net.Listener) (stop func()) {
	c := r.config
	if c.Host == "" {
		return func() {}
	}
	var addresses []string
	for _, l := range listeners {
		addresses = append(addresses, l.Addr().String())
	}
	for _, s := range c.Subjects {
		addresses = append(addresses, s.Address())
	}
	r.activity.mu.Lock()
	is := &r.activity.is
	is.ID, is.Host, is.Version = streams.ReceiverID(c.Host, strings.Join(addresses, " ")), c.Host, c.Version
	is.Addresses, is.Since = addresses, time.Now().UTC()
	r.activity.mu.Unlock()
	h := &streams.Heartbeats{
		Conn: r.publish.nc, Interval: c.Heartbeat, Logger: c.Logger,
		Present: func(ended bool) streams.Heartbeat { return r.activity.present(ended) },
	}
	return h.Start(ctx)
}
