package claims

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/broker"
	"tributary/pipeline/streams"
)

// Claim is a claim check: it names the bytes of a record in [streams.ClaimsBucket]. The zero value names none.
type Claim struct {
	Digest string // SHA-256 in lower-case hex
	Size   int64  // in bytes, 1 or more
}

// Of returns the claim check of data, which must not be empty.
func Of(data []byte) Claim {
	sum := sha256.Sum256(data)
	return Claim{hex.EncodeToString(sum[:]), int64(len(data))}
}

// String returns the value of [envelopes.HeaderClaim]: CLAIMS/<sha256>;<size>.
func (c Claim) String() string {
	return streams.ClaimsBucket + "/" + c.Digest + ";" + strconv.FormatInt(c.Size, 10)
}

// Parse is the inverse of [Claim.String]. It accepts nothing else: no other bucket, no URL, no other spelling of the
// digest or the size. So a producer cannot make a worker read anything but this bucket of its own account.
func Parse(s string) (Claim, error) {
	bucket, rest, _ := strings.Cut(s, "/")
	digest, size, _ := strings.Cut(rest, ";")
	n, err := strconv.ParseInt(size, 10, 64)
	c := Claim{digest, n}
	sum, bad := hex.DecodeString(digest)
	if bucket != streams.ClaimsBucket || err != nil || n < 1 || bad != nil || len(sum) != sha256.Size ||
		s != c.String() || digest != strings.ToLower(digest) {
		return Claim{}, fmt.Errorf("%w: %s is not %s/<sha256>;<size>", ErrMalformed, envelopes.HeaderClaim, streams.ClaimsBucket)
	}
	return c, nil
}

// Claimed reports whether a record of size bytes travels by claim check, because it is longer than half of
// maxPayload, the max_payload of the server. Every shorter record fits a message together with its headers.
func Claimed(size int, maxPayload int64) bool { return int64(size) > maxPayload/2 }

// Store stores and fetches the bytes of large records in [streams.ClaimsBucket], which [streams.Provision] creates.
// It is safe for concurrent use.
//
// A producer stores an object before it publishes the message that names it, so a reader of the message finds the
// object. [Store.Orphans] and [Store.Remove] find and remove objects that no message names, because their producer
// died in between or their record expired.
type Store struct {
	js jetstream.JetStream

	mu       sync.Mutex
	verified map[string]string // name of the chunks by digest, for bytes that this process stored or read
}

// NewStore returns a Store for the account of js. It sends no request to the broker.
func NewStore(js jetstream.JetStream) *Store {
	return &Store{js: js, verified: make(map[string]string)}
}

// How an object is transferred.
const (
	objectChunkBytes  = 512 << 10 // per chunk; half a message if the server accepts less
	objectChunksAhead = 4         // chunks sent without an acknowledgement
	objectPageBytes   = 2 << 20   // requested at a time, approximately
	maxRounds         = 10        // attempts while other processes change the object
	maxVerified       = 10_000    // remembered uploads, about 200 bytes each
)

// RetryReplica is the wait for a replica that is behind.
const RetryReplica = 50 * time.Millisecond

// errBusy means that other processes keep changing the object, or replicas stay behind.
var errBusy = errors.New("the object keeps changing")

// Put stores data in full and returns its claim check, which a message may name from then on. Bytes that the bucket
// already has are not stored twice, but become new: the age after which [Store.Remove] may remove them begins again.
// The producer must publish the message well within that age, or call Put again, which costs little. Bytes stored by
// another process count only after they were read and verified.
//
// Any number of producers may put the same bytes at the same time. Each stores chunks of its own and the first to
// name its chunks wins; the others remove theirs, if they may, and succeed. A producer that dies leaves chunks that
// nothing names, and a later Put stores the bytes anew. After an error, Put may be called again.
func (c *Store) Put(ctx context.Context, data []byte) (Claim, error) {
	claim := Of(data)
	if claim.Size > core.MaxRecordBytes || claim.Size == 0 {
		return Claim{}, fmt.Errorf("%w: %d bytes are not in 1 to %d", core.ErrTooLarge, claim.Size, core.MaxRecordBytes)
	}
	for range maxRounds {
		done, err := c.put(ctx, claim, data)
		if err != nil {
			return Claim{}, fmt.Errorf("store object in bucket %s: %w", streams.ClaimsBucket, err)
		}
		if done {
			return claim, nil
		}
	}
	return Claim{}, fmt.Errorf("store object in bucket %s: %w", streams.ClaimsBucket, errBusy)
}

// put is one attempt of [Store.Put]. done is false if another process changed the object meanwhile.
func (c *Store) put(ctx context.Context, claim Claim, data []byte) (done bool, err error) {
	last, err := c.last(ctx, streams.ClaimsStream, metaSubject(claim.Digest))
	if err != nil {
		return false, err
	}
	o, err := c.intact(ctx, claim)
	if err != nil {
		return false, err
	}
	fresh := o.NUID == ""
	if fresh {
		if o, err = c.upload(ctx, claim, data); err != nil {
			return false, err
		}
	}
	// Expecting the sequence of the newest description ensures that none was put or removed meanwhile.
	err = c.name(ctx, o, last)
	switch {
	case broker.Fenced(err):
		if fresh {
			c.purge(ctx, o)
		}
		return false, nil
	case err != nil:
		return false, err // the description may be stored nevertheless, so the chunks must stay
	}
	// If this process was suspended before it named its chunks, they may have been removed, and another client may
	// have put chunks between them.
	n, err := c.count(ctx, o)
	if err == nil && n > o.Chunks {
		done, err = c.verify(ctx, o, claim)
	} else {
		done = n == o.Chunks
	}
	if err != nil || !done {
		c.remember(claim.Digest, "")
		return false, err
	}
	c.remember(claim.Digest, o.NUID)
	return true, nil
}

// Get fetches the bytes that claim names and verifies their size and digest. It fetches at most
// [core.MaxRecordBytes]. The error is permanent, see [records.Reason], if the leader of the stream confirmed that the
// bytes are missing, or differ from what claim names. Any other error is worth another try.
func (c *Store) Get(ctx context.Context, claim Claim) ([]byte, error) {
	if claim.Size > core.MaxRecordBytes {
		return nil, fmt.Errorf("%w: claim of %d bytes, the limit is %d", core.ErrTooLarge, claim.Size, core.MaxRecordBytes)
	}
	for range maxRounds {
		why, behind := ErrMissing, false
		for o, err := range c.uploads(ctx, claim.Digest) {
			if err != nil {
				return nil, fmt.Errorf("fetch object: %w", err)
			}
			data, stale, err := c.fetch(ctx, o, claim)
			if err == nil {
				return data, nil
			}
			if !errors.Is(err, ErrMissing) && !errors.Is(err, ErrSize) && !errors.Is(err, ErrDigest) {
				return nil, fmt.Errorf("fetch object: %w", err)
			}
			why, behind = err, behind || stale
		}
		if !behind {
			return nil, why
		}
		if err := broker.Pause(ctx, RetryReplica); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("fetch object: %w", errBusy)
}

// fetch fetches the bytes of an upload. A permanent error means that they are not the bytes of claim; stale, that the
// answering replica has fewer chunks than the leader.
func (c *Store) fetch(ctx context.Context, o object, claim Claim) (data []byte, stale bool, err error) {
	if err := o.check(claim); err != nil {
		return nil, false, err
	}
	data, chunks, err := c.download(ctx, o, claim.Size)
	if err != nil {
		return nil, false, err
	}
	if int64(len(data)) < claim.Size {
		stored, err := c.count(ctx, o)
		if err != nil {
			return nil, false, err
		}
		return nil, stored > chunks, ErrSize
	}
	data = data[:claim.Size] // chunks that others added behind do not count
	if Of(data) != claim {
		return nil, false, ErrDigest
	}
	return data, false, nil
}

// object is the description of an object in the bucket, with the fields of an ObjectInfo of NATS used here. Any
// client that may write to the bucket can have written it.
type object struct {
	Name    string   `json:"name"`
	Bucket  string   `json:"bucket"`
	NUID    string   `json:"nuid"` // names the chunks
	Size    int64    `json:"size"`
	Chunks  uint64   `json:"chunks"`
	Digest  string   `json:"digest,omitzero"`
	Deleted bool     `json:"deleted,omitzero"`
	Options *options `json:"options,omitzero"`

	sequence uint64 // of the description in the stream
}

// options are the options of an object.
type options struct {
	Link *struct{} `json:"link,omitzero"` // set if the object is a link to another one
}

// onlyToken matches a valid name of the chunks of an object. Anything but one token, such as a wildcard, would match
// the chunks of other objects.
var onlyToken = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// isToken reports whether a name is one token of at most 64 bytes.
func isToken(name string) bool { return len(name) <= 64 && onlyToken.MatchString(name) }

// readObject decodes the description of an object. An unreadable one names no chunks.
func readObject(m broker.Stored) object {
	var o object
	if err := json.Unmarshal(m.Data, &o); err != nil || !isToken(o.NUID) || o.Deleted ||
		o.Options != nil && o.Options.Link != nil {
		o = object{}
	}
	o.sequence = m.Sequence
	return o
}

func metaSubject(name string) string {
	return streams.ObjectMetaPrefix + base64.URLEncoding.EncodeToString([]byte(name))
}

// holds reports whether the description of o matches claim.
func (o object) holds(claim Claim) bool {
	return o.NUID != "" && o.Size == claim.Size && o.Digest == ObjectDigest(claim)
}

// ObjectDigest returns the digest of a claim in the notation of NATS.
func ObjectDigest(claim Claim) string {
	sum, _ := hex.DecodeString(claim.Digest) // valid, because Of made it
	return "SHA-256=" + base64.URLEncoding.EncodeToString(sum)
}

// check returns why fetching o for claim would be in vain. It ignores the digest stated in o, because only the digest
// of the bytes counts.
func (o object) check(claim Claim) error {
	switch {
	case o.NUID == "":
		return ErrMissing
	case o.Size != claim.Size:
		return ErrSize
	}
	return nil
}

// count returns the number of chunks of o according to the leader of the stream.
func (c *Store) count(ctx context.Context, o object) (uint64, error) {
	s, err := c.js.Stream(ctx, streams.ClaimsStream)
	if err != nil {
		return 0, err
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(streams.ObjectChunkPrefix+o.NUID))
	if err != nil {
		return 0, err
	}
	return info.State.Subjects[streams.ObjectChunkPrefix+o.NUID], nil
}

// upload stores data as the chunks of a new object and returns it. No description names the chunks yet.
func (c *Store) upload(ctx context.Context, claim Claim, data []byte) (object, error) {
	o := object{Name: claim.Digest, Bucket: streams.ClaimsBucket, NUID: nuid.Next(), Size: claim.Size, Digest: ObjectDigest(claim)}
	nc := c.js.Conn()
	acks, err := broker.OpenInbox(nc)
	if err != nil {
		return object{}, err
	}
	defer acks.Close()
	unanswered := 0
	for chunk := range slices.Chunk(data, int(max(1, min(objectChunkBytes, nc.MaxPayload()/2)))) {
		if unanswered == objectChunksAhead {
			err = awaitAck(ctx, acks)
			unanswered--
		}
		if err == nil {
			err = nc.PublishMsg(&nats.Msg{Subject: streams.ObjectChunkPrefix + o.NUID, Reply: acks.Subject, Data: chunk})
		}
		if err != nil {
			break
		}
		o.Chunks++
		unanswered++
	}
	for ; err == nil && unanswered > 0; unanswered-- {
		err = awaitAck(ctx, acks)
	}
	if err != nil {
		c.purge(ctx, o)
		return object{}, err
	}
	return o, nil
}

// awaitAck waits for the acknowledgement of one message.
func awaitAck(ctx context.Context, acks *broker.Inbox) error {
	m, err := nextWithin(ctx, acks)
	if err != nil {
		return err
	}
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return nats.ErrNoResponders
	}
	var ack struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &ack); err != nil {
		return fmt.Errorf("%w: %w", broker.ErrUnconfirmed, err)
	}
	if ack.Error != nil {
		return ack.Error
	}
	return nil
}

// name publishes the description of o, expecting the newest description at sequence last, 0 for none. If there is a
// newer one, it fails, see [broker.Fenced].
func (c *Store) name(ctx context.Context, o object, last uint64) error {
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	_, err = c.js.PublishMsg(ctx, &nats.Msg{
		Subject: metaSubject(o.Name),
		Header:  nats.Header{jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(last, 10)}},
		Data:    data,
	})
	return err
}

// purge removes the chunks of o, if it has any. If that fails, they stay until [Store.Remove] removes them.
func (c *Store) purge(ctx context.Context, o object) {
	if o.NUID == "" || !c.js.Conn().IsConnected() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), broker.RequestTimeout)
	defer cancel()
	_ = c.purgeChunks(ctx, o.NUID)
}

// purgeChunks removes the chunks of a name.
func (c *Store) purgeChunks(ctx context.Context, name string) error {
	s, err := c.js.Stream(ctx, streams.ClaimsStream)
	if err != nil {
		return err
	}
	return s.Purge(ctx, jetstream.WithPurgeSubject(streams.ObjectChunkPrefix+name))
}

// download reads the chunks of o, up to size bytes and a little more, so that it does not read an object that is
// longer than described to the end. It also returns the number of chunks read.
func (c *Store) download(ctx context.Context, o object, size int64) (data []byte, chunks uint64, err error) {
	nc := c.js.Conn()
	answers, err := broker.OpenInbox(nc)
	if err != nil {
		return nil, 0, err
	}
	defer answers.Close()
	buf := bytes.NewBuffer(make([]byte, 0, size))
	for from, more := uint64(1), true; more && int64(buf.Len()) < size; {
		body, err := json.Marshal(broker.GetRequest{
			Sequence: from, NextBySubject: streams.ObjectChunkPrefix + o.NUID, Batch: broker.MaxBatch, MaxBytes: objectPageBytes, NoHeaders: true,
		})
		if err != nil {
			return nil, 0, err
		}
		if err := nc.PublishRequest(broker.APISubject(c.js, "DIRECT.GET."+streams.ClaimsStream), answers.Subject, body); err != nil {
			return nil, 0, err
		}
		n, last, err := readChunks(ctx, answers, buf)
		if err != nil {
			return nil, 0, err
		}
		from, more = last+1, n > 0
		chunks += n
	}
	return buf.Bytes(), chunks, nil
}

// readChunks reads the answer to one request into buf. It returns the number of chunks received and the sequence of
// the last one. The request excludes the headers of stored messages, so a message with headers is a status of the
// server.
func readChunks(ctx context.Context, answers *broker.Inbox, buf *bytes.Buffer) (n, last uint64, err error) {
	for {
		m, err := nextWithin(ctx, answers)
		if err != nil {
			return 0, 0, err
		}
		switch status := m.Header.Get("Status"); {
		case len(m.Header) == 0:
			buf.Write(m.Data)
			n++
		case status == "204":
			last, err = strconv.ParseUint(m.Header.Get(jetstream.LastSequenceHeader), 10, 64)
			return n, last, err
		case status == "404":
			return 0, 0, nil
		case status == "503":
			return 0, 0, nats.ErrNoResponders
		default:
			return 0, 0, fmt.Errorf("status %s %s", status, m.Header.Get("Description"))
		}
	}
}

// nextWithin waits for the next answer, for at most RequestTimeout.
func nextWithin(ctx context.Context, answers *broker.Inbox) (*nats.Msg, error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, broker.RequestTimeout)
	defer cancel()
	m, err := answers.Next(ctx)
	return m, broker.NameRequest(err, "the request for a large record", began)
}
