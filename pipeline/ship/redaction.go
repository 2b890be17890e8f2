package ship

import (
	"bytes"
	"context"
	"fmt"

	"tributary/normalizers/core"
	"tributary/pipeline/redact"
)

// Redaction is a secret, or a text, that was replaced before it was sent.
type Redaction struct {
	redact.Hit

	Path string
	Line int // 0 for standard input
}

// redact returns a record as it is sent. What is derived from its bytes is derived from those
// that are sent: a digest of a secret could be guessed.
func (v *visit) redact(ctx context.Context, r core.Record, line int) (core.Record, []redact.Hit) {
	// Its work is limited, and a visit that ends sends what it has read.
	data, hits := v.config.Redactor.Record(r.Data) //nolint:contextcheck // see above
	if len(hits) == 0 {
		return r, nil
	}
	if hits[0].Rule == redact.RuleUnsearched {
		v.tally.trouble(fmt.Errorf("%s:%d: %w: it is sent without its content", v.log.path, line, redact.ErrUnsearched))
		v.config.Logger.ErrorContext(ctx, "record takes too much work to search for secrets and is sent without its content",
			"path", v.log.path, "line", line, "size", len(r.Data))
	}
	if v.config.Redacted != nil {
		for _, h := range hits {
			at := line + bytes.Count(r.Data[:min(h.Offset, len(r.Data))], []byte{'\n'})
			v.config.Redacted(Redaction{h, v.log.path, at})
		}
	}
	if r.Origin.Digest != "" {
		r.Origin.Digest = core.HexHash(string(data))
	}
	r.Data = data
	return r, hits
}

// redactLine returns the first line of a file as it is part of the identity of the file.
func (s *Ship) redactLine(line []byte) []byte {
	line, _ = s.config.Redactor.Record(line)
	return line
}
