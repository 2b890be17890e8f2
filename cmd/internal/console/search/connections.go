package search

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// connections are the connections over which a search reads bodies: that of the console and one more. A server answers
// the direct gets of a connection one after the other, so with a second one it reads on two cores, and other pages of the
// console wait less.
type connections struct {
	js     jetstream.JetStream
	open   sync.Once
	second jetstream.JetStream // js where no second connection could be had
	turn   atomic.Uint32
}

// next returns one of the connections. The first call opens the second connection.
func (c *connections) next() jetstream.JetStream {
	c.open.Do(func() { c.second = connectAgain(c.js) })
	if c.turn.Add(1)%2 == 0 {
		return c.js
	}
	return c.second
}

// close closes the second connection, when nothing reads any more.
func (c *connections) close() {
	if c.second != nil && c.second != c.js {
		c.second.Conn().Close()
	}
}

// connectTime is how long a search waits for a server to accept its second connection.
const connectTime = 500 * time.Millisecond

// connectAgain returns a connection with the rights and settings of another one that ends when it is lost, because its
// search does; the other one itself if that fails.
func connectAgain(js jetstream.JetStream) jetstream.JetStream {
	options := js.Conn().Opts
	options.Name += " (search)"
	options.AllowReconnect, options.RetryOnFailedConnect = false, false
	options.Timeout = min(options.Timeout, connectTime)
	options.DisconnectedErrCB = nil // reported for the other connection
	nc, err := options.Connect()
	if err != nil {
		return js
	}
	var second jetstream.JetStream
	switch o := js.Options(); {
	case o.APIPrefix != "":
		second, err = jetstream.NewWithAPIPrefix(nc, o.APIPrefix)
	case o.Domain != "":
		second, err = jetstream.NewWithDomain(nc, o.Domain)
	default:
		second, err = jetstream.New(nc)
	}
	if err != nil {
		nc.Close()
		return js
	}
	return second
}
