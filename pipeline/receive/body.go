package receive

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// Errors of bodies.
var (
	errTooLarge  = refuse(http.StatusRequestEntityTooLarge, "the request is larger than TRIBUTARY_RECEIVE_MAX_BODY allows: send fewer records at once")
	errBody      = refuse(http.StatusBadRequest, "the body cannot be read in full, or is not compressed as its header says")
	errSlow      = refuse(http.StatusRequestTimeout, "the body has not arrived in time")
	errBusy      = refuseFor(http.StatusServiceUnavailable, busyRetry, "too many bytes are in progress: try again")
	errManyCalls = refuseFor(http.StatusTooManyRequests, busyRetry, "too many requests of this sender are in progress: try again")
)

// timely calls read with a limit of its time, which stays after an error: the server reads the rest of a refused body.
func (r *Receiver) timely(w http.ResponseWriter, read func() ([]byte, error)) ([]byte, error) {
	control := http.NewResponseController(w)
	// They fail for a writer without a connection, which is never slow.
	_ = control.SetReadDeadline(time.Now().Add(r.limits.BodyTime))
	data, err := read()
	if err == nil {
		_ = control.SetReadDeadline(time.Time{})
	}
	return data, err
}

// readBody returns the body of a request over HTTP, inflated.
func (r *Receiver) readBody(w http.ResponseWriter, c *call) ([]byte, error) {
	if c.ContentLength > r.limits.Body {
		return nil, errTooLarge
	}
	return r.timely(w, func() ([]byte, error) {
		return r.inflate(http.MaxBytesReader(w, c.Body, r.limits.Body), c.Header.Get("Content-Encoding"), c.bytes)
	})
}

// inflate reads body in full. What it keeps is reserved before, so that a compression bomb ends at a limit.
func (r *Receiver) inflate(body io.Reader, encoding string, bytes *reservation) ([]byte, error) {
	switch encoding {
	case "", "identity":
	case "gzip":
		z, err := gzip.NewReader(body)
		if err != nil {
			return nil, readFailure(err, errBody)
		}
		defer z.Close()
		body = z
	case "zstd":
		z := decoders.Get().(*zstd.Decoder) //nolint:forcetypeassert // of New
		defer func() {
			_ = z.Reset(nil) // never fails
			decoders.Put(z)
		}()
		if err := z.Reset(body); err != nil {
			return nil, readFailure(err, errBody)
		}
		body = z
	default:
		return nil, errEncoding
	}
	var data []byte
	for {
		if len(data) == cap(data) {
			next := min(max(firstRead, 2*cap(data)), int(r.limits.Body)+1) // one more byte shows that the body is too large
			if !bytes.grow(int64(next - cap(data))) {
				return nil, errBusy
			}
			data = append(make([]byte, 0, next), data...)
		}
		n, err := body.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		switch {
		case int64(len(data)) > r.limits.Body:
			return nil, errTooLarge
		case err == io.EOF:
			return data, nil
		case err != nil:
			return nil, readFailure(err, errBody)
		}
	}
}

// firstRead is how many bytes are reserved for a body at first.
const firstRead = 4 << 10

// maxWindow bounds the memory of a decoder of zstd; it is what clients may rely on (RFC 8878).
const maxWindow = 8 << 20

// decoders are decoders of zstd that are not in use.
var decoders = sync.Pool{New: func() any {
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		panic("options of zstd: " + err.Error()) // a mistake in the line above
	}
	return z
}}

// readFailure returns the refusal for an error while a body is read; otherwise for one of its content.
func readFailure(err, otherwise error) error {
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return errTooLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errSlow
	default:
		return otherwise
	}
}

// room bounds the bytes of all requests in progress.
type room struct {
	most int64
	used atomic.Int64
}

func newRoom(most int64) *room { return &room{most: most} }

// reservation is what one request has reserved.
type reservation struct {
	room  *room
	bytes int64
}

func (r *room) reserve() *reservation { return &reservation{room: r} }

// grow reserves more bytes. It reports false, and reserves nothing, if there is no room.
func (r *reservation) grow(n int64) bool {
	if r.room.used.Add(n) > r.room.most {
		r.room.used.Add(-n)
		return false
	}
	r.bytes += n
	return true
}

func (r *reservation) release() {
	r.room.used.Add(-r.bytes)
	r.bytes = 0
}

// senders counts the requests in progress by sender.
type senders struct {
	most int

	mu    sync.Mutex
	calls map[string]int
}

// enter begins a request of a sender, which ends with leave.
func (s *senders) enter(key string) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls == nil {
		s.calls = make(map[string]int)
	}
	if s.calls[key] >= s.most {
		return nil, errManyCalls
	}
	s.calls[key]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.calls[key]--; s.calls[key] == 0 {
			delete(s.calls, key)
		}
	}, nil
}
