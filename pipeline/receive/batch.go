package receive

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"strconv"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/collector/pdata/pcommon"

	"tributary/normalizers/core"
	"tributary/pipeline/claims"
	"tributary/pipeline/records"
	"tributary/pipeline/redact"
)

// batch is the records of one request.
type batch struct {
	*Receiver

	call *call
	msgs []parcel
	seen map[string]int // message ids, how often
}

// parcel is the message of a record. A record that is too large for a message is stored as an object first.
type parcel struct {
	*nats.Msg

	record  core.Record
	claimed []byte // content of the object; nil when the message has the record
	hits    []redact.Hit
}

// newBatch returns an empty batch. Without a connection the limit of a message is not known.
func (r *Receiver) newBatch(c *call) (*batch, error) {
	if !r.publish.nc.IsConnected() {
		return nil, errAway
	}
	return &batch{Receiver: r, call: c, seen: make(map[string]int)}, nil
}

// validSession reports whether a record may have a session id.
func validSession(session string) bool {
	return session != "" && len(session) <= records.MaxSessionBytes
}

// add adds a record of the sender to the batch, redacted. An id is a part of its message id: with an equal one the
// record is the same. If id is empty, the bytes of the record are.
func (b *batch) add(r core.Record, id string) {
	p := parcel{}
	r.Data, p.hits = b.config.Redactor.Record(r.Data)
	if len(p.hits) > 0 && p.hits[0].Rule == redact.RuleUnsearched {
		b.config.Logger.ErrorContext(b.call.Context(), "a record takes too much work to search for secrets and is stored without its content", "source", r.Source, "route", b.call.route)
	}
	r.Origin.Edge = b.call.sender.Edge
	if r.Origin.Traceparent == "" {
		r.Origin.Traceparent, r.Origin.Tracestate = traceOf(b.call.Context(), b.call.Request)
	}
	p.Msg = records.Message(r)
	if claims.Claimed(len(r.Data), b.publish.nc.MaxPayload()) {
		p.Msg, p.claimed = records.ClaimMessage(r), r.Data
	}
	if id != unidentified {
		if id == "" {
			sum := sha256.Sum256(r.Data)
			id = hex.EncodeToString(sum[:])
		}
		p.Header.Set(nats.MsgIdHdr, b.messageID(r, id))
	}
	p.record = r
	b.msgs = append(b.msgs, p)
}

// unidentified is the id of a record that is never the same as another one.
const unidentified = "-"

// messageID returns the Nats-Msg-Id of a record, by which the broker drops one that is sent again. Equal records of a
// request have different ones, which are the same when the request is sent again.
func (b *batch) messageID(r core.Record, id string) string {
	whole := digest(string(r.Source), r.Session, id)
	n := b.seen[whole]
	b.seen[whole]++
	if n > 0 {
		whole = digest(whole, strconv.Itoa(n))
	}
	return whole
}

// digest returns a digest of texts, different for different lists.
func digest(texts ...string) string {
	h := sha256.New()
	for _, t := range texts {
		_, _ = io.WriteString(h, strconv.Itoa(len(t))+" "+t) // a hash never fails
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// exportedID returns the id of an exported record, empty without a sequence. An agent that resumes a session may count
// from the start again, so the time is a part of it.
func exportedID(signal, sequence string, at pcommon.Timestamp) string {
	if sequence == "" {
		return ""
	}
	return signal + " " + sequence + " " + strconv.FormatUint(uint64(at), 10)
}

// store stores the batch, in its order. It returns by index the records that the stream can never store.
func (b *batch) store() (large map[int]bool, err error) {
	if len(b.msgs) == 0 {
		return nil, nil
	}
	// A client that goes away does not take back what it has sent.
	large, err = b.publish.store(context.WithoutCancel(b.call.Context()), b.msgs)
	if err != nil {
		return nil, err
	}
	for i, p := range b.msgs {
		if large[i] {
			b.metrics.refused(b.call.Context(), p.record.Source)
		} else {
			b.metrics.stored(b.call.Context(), p)
		}
	}
	b.activity.stored(len(b.msgs) - len(large))
	return large, nil
}
