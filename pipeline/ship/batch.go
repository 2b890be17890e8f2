package ship

import (
	"context"
	"errors"
	"fmt"

	"tributary/normalizers/core"
	"tributary/pipeline/ship/database"
	"tributary/pipeline/streams"
)

// add adds a record to the batch of the visit, and sends the batch when it is full. end is the offset behind the
// record.
func (v *visit) add(ctx context.Context, r core.Record, line int, end int64) error {
	if err := v.findCells(ctx); err != nil {
		return err
	}
	limit := v.limit()
	r, hits := v.redact(ctx, r, v.log.path, line)
	o := v.newOutgoing(ctx, r, line, v.f.messageID(r, end))
	o.redacted = hits
	if size := wireSize(o.msg.Msg); size > limit {
		r := tooLarge(v.log.path, line, size, limit)
		o.close(&r)
		v.refuse(ctx, r)
		v.end = end
		return nil
	}
	v.batch = append(v.batch, o)
	v.bytes += len(r.Data)
	v.end = end
	if len(v.batch) >= v.config.BatchRecords || v.bytes >= batchBytes {
		return v.flush(ctx)
	}
	return nil
}

// flush sends the batch and advances the offset of the file.
func (v *visit) flush(ctx context.Context) error {
	o := &v.f.offset
	if len(v.batch) > 0 {
		last, err := v.send(ctx)
		if err != nil {
			return err
		}
		if last != nil {
			o.Acks = o.Acks.With(max(v.end, o.Done), last)
		}
	}
	if v.end > o.Done {
		if !packed(v.log.path) && !database.Is(v.log.path) {
			v.tally.advance(v.f, v.end-o.Done)
		}
		databaseVisit{v}.sent()
		o.Done, o.Ended = v.end, false
		v.remember()
	}
	return nil
}

// send publishes the batch, empties it, and counts the outcome. It returns the last sequences of the batch in the raw
// streams, nil for none.
func (v *visit) send(ctx context.Context) (last streams.Positions, err error) {
	batch, bytes := v.batch, v.bytes
	v.batch, v.bytes = nil, 0
	var r receipt
	if !v.config.DryRun {
		msgs := make([]parcel, len(batch))
		for i, o := range batch {
			msgs[i] = o.msg
		}
		r = v.publisher.publish(msgs, bytes)
	}
	stored, duplicates := batch[:0], 0
	for i, o := range batch {
		rejection := r.rejected[i]
		o.close(errors.Join(r.err, rejection))
		if rejection != nil {
			v.refuse(ctx, tooLarge(v.log.path, o.line, wireSize(o.msg.Msg), v.limit()))
			continue
		}
		stored = append(stored, o)
		if r.duplicate[i] && !o.end {
			duplicates++
		}
	}
	if r.err == nil {
		v.tally.count(stored, duplicates)
	}
	return r.last, r.err
}

// tooLarge refuses a record whose message the broker does not accept.
func tooLarge(path string, line int, size, limit int64) Refusal {
	return Refusal{
		Reason: ReasonTooLarge, Path: path, Line: line, Size: size, Limit: limit,
		Err: fmt.Errorf("record dropped: its message has %d bytes with headers, the broker accepts %d: raise max_payload of the server, or max_msg_size of stream %s",
			size, limit, streams.RawStream),
	}
}
