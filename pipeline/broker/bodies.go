package broker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ErrForbidden means that the user has no right to a request.
var ErrForbidden = errors.New("the user has no right to this request")

// ReadBodies reads messages of a stream without their headers, from any replica: at most that many from a sequence on,
// and no further ones after maxBytes. It passes their bodies to see, in order, until see returns false, and returns the
// sequence of the last message. It returns [jetstream.ErrMsgNotFound] if there is none, and [ErrForbidden] at once if the user
// has no right to read a stream directly.
func ReadBodies(ctx context.Context, js jetstream.JetStream, stream string, from uint64, most, maxBytes int, see func(body []byte) bool) (last uint64, err error) {
	r, err := openRequests(ctx, js, "DIRECT.GET."+stream)
	if err != nil {
		return 0, err
	}
	defer r.close()
	if err := r.send(GetRequest{Sequence: max(from, 1), Batch: most, MaxBytes: maxBytes, NoHeaders: true}); err != nil {
		return 0, err
	}
	if err := r.permitted(); err != nil {
		return 0, err
	}
	for {
		m, err := r.next()
		if err != nil {
			return 0, err
		}
		switch status := m.Header.Get("Status"); status {
		case "":
			if !see(m.Data) {
				return 0, nil
			}
		case "204":
			return strconv.ParseUint(m.Header.Get("Nats-Last-Sequence"), 10, 64)
		case "404":
			return 0, fmt.Errorf("read stream %s: %w", stream, jetstream.ErrMsgNotFound)
		default:
			return 0, fmt.Errorf("read stream %s: status %s %s", stream, status, m.Header.Get("Description"))
		}
	}
}

// permitted waits until the server has the request, and returns [ErrForbidden] if it refused it.
func (r *requests) permitted() error {
	nc := r.js.Conn()
	if err := nc.FlushWithContext(r.ctx); err != nil {
		return err
	}
	if err := nc.LastError(); errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), `"`+APISubject(r.js, r.verb)+`"`) {
		return ErrForbidden
	}
	return nil
}
