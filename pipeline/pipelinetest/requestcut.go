package pipelinetest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// RequestCut connects a command to a server on the loopback, and cuts its connections at one of its requests: nothing
// later reaches the server.
type RequestCut struct {
	target   string
	listener net.Listener
	at       int
	answered bool
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup

	mu       sync.Mutex
	subject  string // of the requests to count, its beginning; empty for all
	before   func() // called in place of the cut; nil for a cut
	requests int
	waiting  bool // the server has the request but has not answered
	conns    []net.Conn
	made     chan struct{} // closed when the cut is made
}

// NewRequestCut starts a proxy to a server that cuts at a request; 1 is the first message that a client publishes.
// The server does not get the request; with answered it executes the request, but the client does not get the answer.
// The caller closes the proxy.
func NewRequestCut(tb testing.TB, s interface{ URL() string }, at int, answered bool) *RequestCut {
	tb.Helper()
	listener, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("listen: %v", err)
	}
	r := &RequestCut{target: strings.TrimPrefix(s.URL(), "nats://"), listener: listener, at: at, answered: answered, made: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancel(tb.Context())
	r.wg.Go(r.accept)
	return r
}

// Only limits the counted requests to subjects with this beginning. Call it before a client connects.
func (r *RequestCut) Only(subject string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.subject = subject
}

// Before replaces the cut by a call of do, which ends before the server gets the request. Call it before a client
// connects.
func (r *RequestCut) Before(do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.before = do
}

// URL returns the address for the client.
func (r *RequestCut) URL() string { return "nats://" + r.listener.Addr().String() }

// Made returns a channel that is closed when the cut is made.
func (r *RequestCut) Made() <-chan struct{} { return r.made }

// Close ends the proxy, and reports whether the cut was made.
func (r *RequestCut) Close() bool {
	r.cancel()
	r.end()
	r.wg.Wait()
	select {
	case <-r.made:
		return true
	default:
		return false
	}
}

// end closes all connections and accepts no more.
func (r *RequestCut) end() {
	_ = r.listener.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		_ = c.Close()
	}
}

// cut ends the proxy at the request.
func (r *RequestCut) cut() {
	r.end()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = false
	close(r.made)
}

func (r *RequestCut) accept() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		server, err := (&net.Dialer{}).DialContext(r.ctx, "tcp", r.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		r.mu.Lock()
		r.conns = append(r.conns, client, server)
		r.mu.Unlock()
		r.wg.Go(func() { r.up(client, server) })
		r.wg.Go(func() { r.down(client, server) })
	}
}

// up copies what a client sends, message by message.
func (r *RequestCut) up(client, server net.Conn) {
	defer func() { _ = server.Close() }()
	in := bufio.NewReader(client)
	for {
		message, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		if fields := bytes.Fields(message); len(fields) > 1 && (string(fields[0]) == "PUB" || string(fields[0]) == "HPUB") {
			size, err := strconv.Atoi(string(fields[len(fields)-1]))
			if err != nil {
				return
			}
			payload := make([]byte, size+len("\r\n"))
			if _, err := io.ReadFull(in, payload); err != nil {
				return
			}
			message = append(message, payload...)
			if r.next(string(fields[1])) {
				return
			}
		}
		if _, err := server.Write(message); err != nil {
			return
		}
	}
}

// next counts a request, and reports whether to keep it from the server.
func (r *RequestCut) next(subject string) bool {
	r.mu.Lock()
	here, before := false, r.before
	if strings.HasPrefix(subject, r.subject) {
		r.requests++
		here = r.requests == r.at
	}
	r.waiting = r.waiting || here && r.answered
	r.mu.Unlock()
	if here && before != nil {
		before()
		close(r.made)
		return false
	}
	if here && !r.answered {
		r.cut()
	}
	return here && !r.answered
}

// down copies what the server sends, up to the answer to cut.
func (r *RequestCut) down(client, server net.Conn) {
	defer func() { _ = client.Close() }()
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		if err != nil {
			return
		}
		r.mu.Lock()
		waiting := r.waiting
		r.mu.Unlock()
		if waiting && bytes.Contains(buf[:n], []byte("MSG ")) {
			r.cut()
			return
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
	}
}

// RunKilled runs a command against a server and kills it at a request, see [NewRequestCut]. It returns false if the
// command has fewer requests; then it must have succeeded.
func RunKilled(tb testing.TB, s interface{ URL() string }, at int, answered bool, run func(context.Context, jetstream.JetStream) error) bool {
	tb.Helper()
	cut := NewRequestCut(tb, s, at, answered)
	ctx, kill := context.WithTimeoutCause(tb.Context(), patience, errors.New("the command waits in vain"))
	defer kill()
	go func() {
		select {
		case <-cut.Made():
			kill()
		case <-ctx.Done():
		}
	}()
	js := Connect(tb, cut.URL(), nats.NoReconnect())
	err := run(ctx, js)
	js.Conn().Close()
	made := cut.Close()
	if !made && err != nil {
		tb.Fatalf("killed at none of its %d requests: %v", at, err)
	}
	return made
}
