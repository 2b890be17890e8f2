package pipelinetest

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// Proxy connects clients to a server on the loopback, and breaks their connections where a test chooses.
type Proxy struct {
	tb       testing.TB
	target   string
	listener net.Listener
	ctx      context.Context
	wg       sync.WaitGroup

	mu       sync.Mutex
	cuts     []Cut             // armed, in order
	subject  string            // of the commits to cut, its beginning; empty for all
	conns    map[net.Conn]bool // true for connections that swallow their input
	released chan struct{}     // closed and replaced by Release
	broken   bool
	swallows bool // new connections swallow their input
	rate     int  // bytes per second from a client; 0 for no limit

	// Done receives each cut once it is made.
	Done chan Cut
}

// Cut is a place in an atomic batch where a [Proxy] breaks a connection.
type Cut int

// The cuts.
const (
	// BeforeCommit passes the messages of a batch except the last.
	BeforeCommit Cut = iota
	// BeforeAck passes a whole batch, but not its acknowledgement.
	BeforeAck
	// HoldCommit cuts the client off like BeforeCommit, and passes the last message to the server on [Proxy.Release]:
	// the commit arrives late.
	HoldCommit
	// DelayAck passes a whole batch. It passes the acknowledgement, and everything that the server sends after it on
	// this connection, on [Proxy.Release].
	DelayAck
)

// NewProxy starts a proxy to a server, which ends with the test. It passes everything until [Proxy.Arm].
func NewProxy(tb testing.TB, s interface{ URL() string }) *Proxy {
	tb.Helper()
	return newProxy(tb, strings.TrimPrefix(s.URL(), "nats://"))
}

func newProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	listener, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("listen: %v", err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	p := &Proxy{
		tb: tb, target: target, listener: listener, ctx: ctx,
		conns: make(map[net.Conn]bool), released: make(chan struct{}), Done: make(chan Cut, 1024),
	}
	p.wg.Go(p.accept)
	tb.Cleanup(func() {
		cancel()
		_ = listener.Close()
		p.Break()
		p.wg.Wait()
	})
	return p
}

// URL returns the address for clients.
func (p *Proxy) URL() string { return "nats://" + p.listener.Addr().String() }

// Arm makes the next batches break, one cut for each.
func (p *Proxy) Arm(cuts ...Cut) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cuts = append(p.cuts, cuts...)
}

// Only limits BeforeCommit and HoldCommit to batches whose last message has a subject with this beginning.
func (p *Proxy) Only(subject string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.subject = subject
}

// Disarm removes the remaining cuts, and reports whether there were any.
func (p *Proxy) Disarm() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.cuts)
	p.cuts = nil
	return n > 0
}

// Break closes all connections, and new ones until [Proxy.Mend].
func (p *Proxy) Break() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = true
	for c := range p.conns {
		_ = c.Close()
	}
	clear(p.conns)
}

// Swallow drops everything that arrives, in both directions, but closes nothing: neither end learns that the other is
// gone. New connections do the same until [Proxy.Mend]; open ones stay silent for ever.
func (p *Proxy) Swallow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.swallows = true
	for c := range p.conns {
		p.conns[c] = true
	}
}

// swallowed reports whether a connection drops what arrives.
func (p *Proxy) swallowed(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conns[c]
}

// Mend passes new connections again.
func (p *Proxy) Mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken, p.swallows = false, false
}

// Release passes what HoldCommit and DelayAck hold.
func (p *Proxy) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.released)
	p.released = make(chan struct{})
}

// Slow limits every client connection to rate bytes per second.
func (p *Proxy) Slow(rate int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rate = rate
}

// delay waits as long as n bytes take.
func (p *Proxy) delay(n int) {
	p.mu.Lock()
	rate := p.rate
	p.mu.Unlock()
	if rate == 0 {
		return
	}
	took := time.NewTimer(time.Duration(n) * time.Second / time.Duration(rate))
	defer took.Stop()
	select {
	case <-took.C:
	case <-p.ctx.Done():
	}
}

// release returns the channel that the next [Proxy.Release] closes.
func (p *Proxy) release() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.released
}

// next removes and returns the next cut if it is among of.
func (p *Proxy) next(of ...Cut) (Cut, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range of {
		if len(p.cuts) > 0 && p.cuts[0] == c {
			p.cuts = p.cuts[1:]
			return c, true
		}
	}
	return 0, false
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := (&net.Dialer{}).DialContext(p.ctx, "tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		if !p.track(client, server) {
			continue
		}
		p.wg.Go(func() { p.up(client, server) })
		p.wg.Go(func() { p.down(client, server) })
	}
}

// track registers the two ends of a connection. It returns false if the proxy is broken, and closes them.
func (p *Proxy) track(client, server net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken {
		_ = client.Close()
		_ = server.Close()
		return false
	}
	p.conns[client], p.conns[server] = p.swallows, p.swallows
	return true
}

// up copies from the client to the server. It finds the header of a commit even across two reads, and passes
// everything before the message that has it.
func (p *Proxy) up(client, server net.Conn) {
	defer func() { _ = server.Close() }()
	defer func() { _ = client.Close() }()
	buf := make([]byte, 64<<10)
	var kept []byte // not sent yet: may begin a commit
	for {
		n, err := client.Read(buf)
		if err != nil {
			_, _ = server.Write(kept)
			return
		}
		if p.swallowed(client) {
			kept = nil
			continue
		}
		p.delay(n)
		kept = append(kept, buf[:n]...)
		if message, ok := p.commit(kept); ok {
			if cut, ok := p.next(BeforeCommit, HoldCommit); ok {
				_, _ = server.Write(kept[:message])
				if cut == HoldCommit {
					p.hold(client, kept[message:])
				}
				p.Done <- cut
				return
			}
		}
		safe := beginning(kept)
		if _, err := server.Write(kept[:safe]); err != nil {
			return
		}
		kept = append(kept[:0], kept[safe:]...)
	}
}

// commit returns where the first commit to cut begins in b.
func (p *Proxy) commit(b []byte) (message int, ok bool) {
	p.mu.Lock()
	subject, armed := p.subject, len(p.cuts) > 0 && (p.cuts[0] == BeforeCommit || p.cuts[0] == HoldCommit)
	p.mu.Unlock()
	if !armed {
		return 0, false
	}
	const mark, verb = "Nats-Batch-Commit: 1", "HPUB "
	for at := 0; ; {
		i := bytes.Index(b[at:], []byte(mark))
		if i < 0 {
			return 0, false
		}
		at += i
		// Without a beginning here, it is text of a record.
		if message = bytes.LastIndex(b[:at], []byte(verb)); message >= 0 && bytes.HasPrefix(b[message+len(verb):], []byte(subject)) {
			return message, true
		}
		at += len(mark)
	}
}

// beginning returns where a message with incomplete headers begins in b, which may be a commit; len(b) if there is
// none.
func beginning(b []byte) int {
	const verb = "HPUB "
	if i := bytes.LastIndex(b, []byte(verb)); i >= 0 && len(b)-i < 64<<10 && !bytes.Contains(b[i:], []byte("\r\n\r\n")) {
		return i
	}
	for n := len(verb) - 1; n > 0; n-- {
		if bytes.HasSuffix(b, []byte(verb[:n])) {
			return len(b) - n
		}
	}
	return len(b)
}

// hold reads the rest of a message and cuts the client off. It passes the message to the server on release.
func (p *Proxy) hold(client net.Conn, message []byte) {
	released := p.release()
	message = append([]byte(nil), message...)
	total := messageSize(message)
	for buf := make([]byte, 64<<10); len(message) < total; {
		n, err := client.Read(buf)
		if err != nil {
			p.tb.Errorf("proxy: held message is cut off: %v", err)
			return
		}
		message = append(message, buf[:n]...)
	}
	_ = client.Close()
	p.wg.Go(func() {
		late, err := (&net.Dialer{}).DialContext(p.ctx, "tcp", p.target)
		if err != nil {
			return
		}
		if !p.track(late, late) {
			return
		}
		select {
		case <-released:
		case <-p.ctx.Done():
			return
		}
		_, _ = late.Write([]byte("CONNECT {\"verbose\":false,\"headers\":true,\"no_responders\":true}\r\n"))
		_, _ = late.Write(append(message[:total:total], "PING\r\n"...))
		readUntil(late, "PONG")
		_ = late.Close()
		p.Done <- HoldCommit
	})
}

// messageSize returns the length on the wire of the HPUB at the beginning of b.
func messageSize(b []byte) int {
	line, _, _ := bytes.Cut(b, []byte("\r\n"))
	fields := bytes.Fields(line)
	n := 0
	for _, c := range fields[len(fields)-1] {
		n = 10*n + int(c-'0')
	}
	return len(line) + 2 + n + 2
}

func readUntil(r io.Reader, mark string) {
	var got []byte
	buf := make([]byte, 4<<10)
	for !bytes.Contains(got, []byte(mark)) {
		n, err := r.Read(buf)
		if err != nil {
			return
		}
		got = append(got, buf[:n]...)
	}
}

// down copies from the server to the client, until an acknowledgement to cut.
func (p *Proxy) down(client, server net.Conn) {
	defer func() { _ = server.Close() }()
	defer func() { _ = client.Close() }()
	const mark = `"batch":"`
	buf := make([]byte, 64<<10)
	var tail []byte
	for {
		n, err := server.Read(buf)
		if err != nil {
			return
		}
		if p.swallowed(server) {
			continue
		}
		if bytes.Contains(append(tail, buf[:n]...), []byte(mark)) {
			if cut, ok := p.next(BeforeAck); ok {
				p.Done <- cut
				return
			}
			released := p.release()
			if cut, ok := p.next(DelayAck); ok {
				p.Done <- cut
				select {
				case <-released:
				case <-p.ctx.Done():
					return
				}
			}
		}
		tail = append(tail[:0], buf[max(0, n-len(mark)):n]...)
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
	}
}
