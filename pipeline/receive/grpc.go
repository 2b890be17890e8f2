package receive

import (
	"encoding/binary"
	"io"
	"net/http"
)

// A unary call of gRPC is a POST of HTTP/2 whose body is one frame: a byte that says whether the message is
// compressed, the length of the message in four bytes, and the message. Its answer is a frame, too, and the outcome in
// trailers. So calls share the limits, the senders and the answers of the other routes.

// frameBytes is the length of the head of a frame.
const frameBytes = 5

// frameHead returns the head of a frame with a message of n bytes that is not compressed.
func frameHead(n int) []byte {
	return binary.BigEndian.AppendUint32(make([]byte, 1, frameBytes+n), uint32(n)) //nolint:gosec // answers are short
}

// Errors of calls of gRPC.
var (
	errFrame    = refuse(http.StatusBadRequest, "the call is not one message of gRPC")
	errNoGRPC   = refuse(http.StatusUnsupportedMediaType, "the content type has to be application/grpc, over HTTP/2")
	errEncoding = refuse(http.StatusUnsupportedMediaType, "the encoding of the content has to be gzip, zstd or identity")
)

// readFrame returns the message of a call.
func (r *Receiver) readFrame(w http.ResponseWriter, c *call) ([]byte, error) {
	if _, ok := c.answer.(grpcAnswerer); !ok || c.ProtoMajor < 2 {
		return nil, errNoGRPC
	}
	return r.timely(w, func() ([]byte, error) {
		return r.message(http.MaxBytesReader(w, c.Body, r.limits.Body+frameBytes), c)
	})
}

// message reads the only frame of a body and returns its message.
func (r *Receiver) message(body io.Reader, c *call) ([]byte, error) {
	head := make([]byte, frameBytes)
	if _, err := io.ReadFull(body, head); err != nil {
		return nil, readFailure(err, errFrame)
	}
	size := int64(binary.BigEndian.Uint32(head[1:]))
	if size > r.limits.Body {
		return nil, errTooLarge
	}
	encoding := "identity"
	switch head[0] {
	case 0:
	case 1:
		encoding = c.Header.Get("Grpc-Encoding")
	default:
		return nil, errFrame
	}
	data, err := r.inflate(&exactly{r: body, left: size}, encoding, c.bytes)
	if err != nil {
		return nil, err
	}
	if n, err := body.Read(head[:1]); n > 0 || err != io.EOF {
		return nil, readFailure(err, errFrame)
	}
	return data, nil
}

// exactly reads a message of a known length. An earlier end is an error.
type exactly struct {
	r    io.Reader
	left int64
}

// Read implements [io.Reader].
func (e *exactly) Read(p []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n, err := e.r.Read(p[:min(int64(len(p)), e.left)])
	if e.left -= int64(n); e.left > 0 && err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}
