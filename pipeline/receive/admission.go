package receive

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"tributary/envelopes"
	"tributary/pipeline/records"
)

// Admission is who may send. Without tokens, certificates and a header everybody may who reaches the address.
type Admission struct {
	Tokens       *Tokens        // nil for none
	Certificates bool           // clients with a certificate that the server has verified are let in
	Header       string         // in which a proxy names the user that it has let in; empty for none
	Proxies      []netip.Prefix // whose header counts; none means those of this machine

	// Edge is the sender of records of requests that need no proof, and Labels are added to those of every sender.
	Edge *envelopes.Edge

	// Rename changes the host and the user of a verified sender to what records state, such as pseudonyms; nil
	// changes nothing.
	Rename func(host, user string) (string, string)
}

// Sender is who sends a request.
type Sender struct {
	Edge *envelopes.Edge // what the records state; nil for nothing

	key string // of the limit of requests in progress
}

// Errors of senders. The answer does not say what is wrong with a proof.
var (
	errUnknown = refuse(http.StatusUnauthorized, "the request needs a token that is known here (Authorization: Bearer), or a certificate")
	errUser    = refuse(http.StatusForbidden, "the name of the user cannot be stated: it is not 1 to 255 bytes of text")
)

// Open reports whether everybody may send who reaches the address.
func (a Admission) Open() bool { return a.Tokens == nil && !a.Certificates && a.Header == "" }

func (a Admission) check() error {
	if err := records.CheckEdge(a.Edge); err != nil {
		return fmt.Errorf("records cannot state who sends them: %w", err)
	}
	return nil
}

// admit returns the sender of a request, or a refusal. What a client claims about itself elsewhere does not count.
func (a Admission) admit(req *http.Request) (Sender, error) {
	if a.Open() {
		host, _, _ := net.SplitHostPort(req.RemoteAddr) // empty in tests
		return Sender{a.Edge, "address " + host}, nil
	}
	if a.Certificates && req.TLS != nil && len(req.TLS.VerifiedChains) > 0 {
		leaf := req.TLS.VerifiedChains[0][0]
		user := leaf.Subject.CommonName
		switch {
		case len(leaf.EmailAddresses) > 0:
			user = leaf.EmailAddresses[0]
		case len(leaf.URIs) > 0:
			user = leaf.URIs[0].String()
		case len(leaf.DNSNames) > 0:
			user = leaf.DNSNames[0]
		}
		return a.verified("certificate", &envelopes.Edge{User: user})
	}
	if a.Header != "" && a.fromProxy(req) {
		if user := req.Header.Get(a.Header); user != "" {
			return a.verified("proxy", &envelopes.Edge{User: user})
		}
	}
	if a.Tokens != nil {
		if scheme, token, _ := strings.Cut(req.Header.Get("Authorization"), " "); strings.EqualFold(scheme, "Bearer") {
			if edge := a.Tokens.of(strings.TrimSpace(token)); edge != nil {
				return a.verified("token", edge)
			}
		}
	}
	return Sender{}, errUnknown
}

// publisher returns the sender of messages of subjects. The broker admits it, and does not say who it is: only the
// labels of every sender count.
func (a Admission) publisher() Sender {
	if a.Edge == nil || len(a.Edge.Labels) == 0 {
		return Sender{}
	}
	return Sender{Edge: &envelopes.Edge{Labels: a.Edge.Labels}}
}

// verified returns the sender that a request has proved to be.
func (a Admission) verified(how string, proved *envelopes.Edge) (Sender, error) {
	e := &envelopes.Edge{Host: proved.Host, User: proved.User, Labels: proved.Labels}
	if a.Edge != nil && len(a.Edge.Labels) > 0 {
		e.Labels = maps.Clone(a.Edge.Labels)
		maps.Copy(e.Labels, proved.Labels)
	}
	key := how + " " + e.User
	if a.Rename != nil {
		e.Host, e.User = a.Rename(e.Host, e.User)
	}
	e.Verified = e.User != ""
	if err := records.CheckEdge(e); err != nil {
		return Sender{}, errUser
	}
	if e.IsZero() {
		e = nil
	}
	return Sender{e, key}, nil
}

// fromProxy reports whether a request comes from a proxy whose header counts.
func (a Admission) fromProxy(req *http.Request) bool {
	peer, err := netip.ParseAddrPort(req.RemoteAddr)
	if err != nil {
		return false
	}
	from := peer.Addr().Unmap()
	if len(a.Proxies) == 0 {
		return from.IsLoopback()
	}
	return slices.ContainsFunc(a.Proxies, func(p netip.Prefix) bool { return p.Contains(from) })
}

// Tokens are the tokens of a file: lines of the SHA-256 of a token in hex, user=NAME, if it is known host=NAME, and
// labels as NAME=VALUE, separated by spaces. Empty lines and those that begin with # are left out. The file is read
// again when it has changed; while it cannot be read, the tokens before are those that count.
//
// A token is found by its digest. A client cannot choose the digest, so how long the search takes reveals nothing.
type Tokens struct {
	path string
	log  *slog.Logger

	mu     sync.Mutex
	edges  map[[sha256.Size]byte]*envelopes.Edge
	read   fileState
	looked time.Time
	failed bool // the last reading failed
}

// fileState detects a change of a file without reading it.
type fileState struct {
	modified time.Time
	size     int64
}

// lookEvery is the minimum time between two looks at the file.
const lookEvery = time.Second

// ReadTokens reads the tokens of a file. Its errors name a line by number and repeat nothing of it.
func ReadTokens(path string, log *slog.Logger) (*Tokens, error) {
	t := &Tokens{path: path, log: log}
	t.looked = time.Now()
	return t, t.load()
}

// of returns the sender whose token it is, nil for nobody.
func (t *Tokens) of(token string) *envelopes.Edge {
	sum := sha256.Sum256([]byte(token))
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := time.Now(); now.Sub(t.looked) >= lookEvery {
		t.looked = now
		err := t.load()
		if err != nil && !t.failed { // the first of consecutive failures
			t.log.Warn("the file of tokens has changed and cannot be read: the tokens before count", "error", err)
		}
		t.failed = err != nil
	}
	return t.edges[sum]
}

// load reads the file if it has changed.
func (t *Tokens) load() error {
	file, err := os.Stat(t.path)
	if err != nil {
		return err
	}
	now := fileState{file.ModTime(), file.Size()}
	if now == t.read {
		return nil
	}
	data, err := os.ReadFile(t.path)
	if err != nil {
		return err
	}
	edges, err := parseTokens(data)
	if err != nil {
		return fmt.Errorf("%s: %w", t.path, err)
	}
	t.edges, t.read = edges, now
	return nil
}

// Errors of a line of tokens.
var (
	errTokenDigest = errors.New("does not begin with the SHA-256 of a token, in 64 hex digits")
	errTokenTwice  = errors.New("has the token of a line before it")
	errTokenUser   = errors.New("has no user=NAME")
	errTokenPair   = errors.New("has something that is not NAME=VALUE, or a name twice")
)

func parseTokens(data []byte) (map[[sha256.Size]byte]*envelopes.Edge, error) {
	edges := make(map[[sha256.Size]byte]*envelopes.Edge)
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; lines.Scan(); n++ {
		parts := strings.Fields(lines.Text())
		if len(parts) == 0 || strings.HasPrefix(parts[0], "#") {
			continue
		}
		sum, edge, err := parseToken(parts)
		if err == nil && edges[sum] != nil {
			err = errTokenTwice
		}
		if err != nil {
			return nil, fmt.Errorf("line %d %w", n, err)
		}
		edges[sum] = edge
	}
	return edges, lines.Err()
}

func parseToken(parts []string) (sum [sha256.Size]byte, e *envelopes.Edge, err error) {
	digest, err := hex.DecodeString(parts[0])
	if err != nil || len(digest) != len(sum) {
		return sum, nil, errTokenDigest
	}
	copy(sum[:], digest)
	e = &envelopes.Edge{}
	for _, part := range parts[1:] {
		name, value, ok := strings.Cut(part, "=")
		switch _, twice := e.Labels[name]; {
		case !ok || value == "" || twice || name == "user" && e.User != "" || name == "host" && e.Host != "":
			return sum, nil, errTokenPair
		case name == "user":
			e.User = value
		case name == "host":
			e.Host = value
		case e.Labels == nil:
			e.Labels = map[string]string{name: value}
		default:
			e.Labels[name] = value
		}
	}
	if e.User == "" {
		return sum, nil, errTokenUser
	}
	return sum, e, records.CheckEdge(e)
}
