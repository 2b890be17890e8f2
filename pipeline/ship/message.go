package ship

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"

	"tributary/normalizers/core"
	"tributary/pipeline/claims"
	"tributary/pipeline/records"
	"tributary/pipeline/redact"
)

// parcel is a message for the broker. A record that is too large for a message travels by claim check: its bytes are
// stored first, as an object that the message names.
type parcel struct {
	*nats.Msg
	cell    int        // its raw stream stores the message
	claimed []byte     // content of the object; nil when the message has the record
	span    trace.Span // span of its publication
}

// outgoing is a record that is being sent.
type outgoing struct {
	msg     parcel
	size    int // of the record
	session session
	line    int
	end     bool // an end of a session in a file, not a record

	redacted []redact.Hit
}

// newOutgoing makes the message of a record, with its message id, and starts the trace of the record.
func (s *Ship) newOutgoing(ctx context.Context, r core.Record, line int, id string) outgoing {
	r.Origin.Edge = s.config.Edge
	span := s.startTrace(ctx, &r, id)
	msg := s.newParcel(r)
	msg.span = span
	msg.Header.Set(nats.MsgIdHdr, id)
	return outgoing{msg: msg, size: len(r.Data), session: session{r.Source, r.Session}, line: line, end: r.Origin.End}
}

// newParcel makes the message of a record, with a claim check for a large one.
func (s *Ship) newParcel(r core.Record) parcel {
	p := parcel{Msg: records.Message(r)}
	if claims.Claimed(len(r.Data), s.limit()) {
		p.Msg, p.claimed = records.ClaimMessage(r), r.Data
	}
	p.cell = s.publisher.layout.Place(p.Msg, r.Source, r.Session)
	return p
}

// close ends the trace of o with its outcome.
func (o outgoing) close(err error) {
	endSpan(o.msg.span, err)
}

// messageID returns the Nats-Msg-Id of a record. Two ids are equal only for the same record at the same position of
// the same file. The id of an end of a session also depends on the shipped offset and the last record before it,
// because a rewritten log ends again.
func (f *file) messageID(r core.Record, end int64) string {
	position := strconv.FormatInt(r.Origin.Position, 10)
	if r.Origin.End {
		position = "end " + strconv.FormatInt(end, 10) + " " + f.lastID
	}
	h := sha256.New()
	for _, part := range [...]string{string(r.Source), r.Session, r.Origin.File, position} {
		_, _ = io.WriteString(h, strconv.Itoa(len(part))+" "+part) // a hash never fails
	}
	h.Write(r.Data)
	id := hex.EncodeToString(h.Sum(nil)[:16])
	if !r.Origin.End {
		f.lastID = id
	}
	return id
}

// Redaction is a secret or text that was replaced before it was sent.
type Redaction struct {
	redact.Hit

	Path string
	Line int // 0 for standard input
}

// redact returns a record as it is sent. Digests and ids are derived from the redacted bytes: a secret could be
// guessed from its digest.
func (s *Ship) redact(ctx context.Context, r core.Record, path string, line int) (core.Record, []redact.Hit) {
	// Its work is limited, and a visit that ends still sends what it has read.
	data, hits := s.config.Redactor.Record(r.Data) //nolint:contextcheck // see above
	if len(hits) == 0 {
		return r, nil
	}
	if hits[0].Rule == redact.RuleUnsearched {
		s.tally.trouble(ofRecords, fmt.Errorf("%s:%d: %w: it is sent without its content", path, line, redact.ErrUnsearched))
		s.config.Logger.ErrorContext(ctx, "record takes too much work to search for secrets and is sent without its content",
			"path", path, "line", line, "size", len(r.Data))
	}
	if s.config.Redacted != nil {
		for _, h := range hits {
			at := line + bytes.Count(r.Data[:min(h.Offset, len(r.Data))], []byte{'\n'})
			s.config.Redacted(Redaction{h, path, at})
		}
	}
	if r.Origin.Digest != "" {
		r.Origin.Digest = core.HexHash(string(data))
	}
	r.Data = data
	return r, hits
}

// redactLine returns the redacted first line of a file, which is part of the identity of the file.
func (s *Ship) redactLine(line []byte) []byte {
	line, _ = s.config.Redactor.Record(line)
	return line
}

// defaultPayload is the max_payload of a server with default settings.
const defaultPayload = 1 << 20

// limit returns how many bytes of headers and data the broker accepts in one message. A dry run without a broker
// assumes the default.
func (s *Ship) limit() int64 {
	if s.config.DryRun && (s.publisher.nc == nil || s.publisher.nc.MaxPayload() == 0) {
		return defaultPayload
	}
	return s.publisher.nc.MaxPayload()
}
