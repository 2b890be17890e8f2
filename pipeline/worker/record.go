package worker

import (
	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/broker"
	"tributary/pipeline/records"
	"tributary/pipeline/redact"
)

// received is a message of the raw stream and the record in it.
type received struct {
	core.Record

	raw  broker.Message
	body *body        // source of Data; nil when that came with the message
	hits []redact.Hit // the replaced parts of Data
	err  error        // reason why the record becomes a dead letter; nil if it is normalized

	erased bool // the record arrived after its session was erased, and yields nothing
}

func (r *received) key() records.SessionKey {
	return records.SessionKey{Source: r.Source, ID: r.Session}
}

// addressed reports whether the session of the record is known. It may be known although the rest of the record cannot
// be read. A record of an erased session belongs to none.
func (r *received) addressed() bool { return r.Source != envelopes.UnknownSource && !r.erased }

// normalized is the result of a record.
type normalized struct {
	messages []message
	stored   int          // messages that an earlier commit has stored
	session  *liveSession // session changed by the record; nil for none
}
