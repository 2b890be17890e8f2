package pipelinetest

import (
	"bytes"
	"context"
	"net"
	"slices"
	"sync"

	"github.com/nats-io/nats.go"
)

// Deaf makes a client lose the answer to a request: the server gets the request, but answers elsewhere.
type Deaf struct {
	mu   sync.Mutex
	part []byte
	left int
}

// Option makes a connection use Deaf.
func (d *Deaf) Option() nats.Option { return nats.SetCustomDialer(d) }

// Lose makes the client lose one answer: to the nth request from now on whose subject contains part.
func (d *Deaf) Lose(part string, nth int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.part, d.left = []byte(part), nth
}

// Lost reports whether the answer is lost.
func (d *Deaf) Lost() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.left == 0
}

// Dial implements [nats.CustomDialer].
func (d *Deaf) Dial(network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(context.Background(), network, address)
	return deafConn{c, d}, err
}

type deafConn struct {
	net.Conn
	*Deaf
}

// Write always gets whole lines, because the client writes them at once.
func (c deafConn) Write(p []byte) (int, error) { return c.Conn.Write(c.divert(p)) }

// divert returns what the server gets.
func (d *Deaf) divert(p []byte) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.left == 0 {
		return p
	}
	before, rest, found := bytes.Cut(p, d.part)
	if !found {
		return p
	}
	if d.left--; d.left > 0 {
		return p
	}
	return slices.Concat(before, d.part, bytes.Replace(rest, []byte("_INBOX."), []byte("_LOST_."), 1))
}
