package pipeline

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
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"tributary/envelopes"
	"tributary/normalizers"
)

// ClaimsBucket is the object bucket for the bytes of records that are too large for a
// message. An object is named by the SHA-256 of its bytes in lower-case hex.
const ClaimsBucket = "CLAIMS"

// The bucket is a stream like any other, by the conventions of NATS (ADR-20): a message
// at metaPrefix says which chunks an object consists of, and replaces the one before it.
const (
	claimsStream = "OBJ_" + ClaimsBucket
	chunkPrefix  = "$O." + ClaimsBucket + ".C."
	metaPrefix   = "$O." + ClaimsBucket + ".M."
)

// Claim names the bytes of a record that lie in [ClaimsBucket]. The zero value names
// none.
type Claim struct {
	Digest string // SHA-256 in lower-case hex
	Size   int64  // in bytes, 1 or more
}

// ClaimOf returns the claim of data, which must not be empty.
func ClaimOf(data []byte) Claim {
	sum := sha256.Sum256(data)
	return Claim{hex.EncodeToString(sum[:]), int64(len(data))}
}

// String is the value of [envelopes.HeaderClaim]: CLAIMS/<sha256>;<size>.
func (c Claim) String() string {
	return ClaimsBucket + "/" + c.Digest + ";" + strconv.FormatInt(c.Size, 10)
}

// parseClaim is the inverse of [Claim.String] and takes nothing else: no other bucket, no
// URL, no other spelling of the digest or the size. What a reference can make a worker
// read is the bucket of its own account, and nothing beside it.
func parseClaim(s string) (Claim, error) {
	bucket, rest, _ := strings.Cut(s, "/")
	digest, size, _ := strings.Cut(rest, ";")
	n, err := strconv.ParseInt(size, 10, 64)
	c := Claim{digest, n}
	sum, bad := hex.DecodeString(digest)
	if bucket != ClaimsBucket || err != nil || n < 1 || bad != nil || len(sum) != sha256.Size ||
		s != c.String() || digest != strings.ToLower(digest) {
		return Claim{}, fmt.Errorf("%w: %s is not %s/<sha256>;<size>", errClaim, envelopes.HeaderClaim, ClaimsBucket)
	}
	return c, nil
}

// Claimed reports whether a record of size bytes travels by claim check at a server of
// maxPayload bytes a message: one that is longer than half of that (architecture.md
// section 7). All others fit a message with their headers.
func Claimed(size int, maxPayload int64) bool { return int64(size) > maxPayload/2 }

// Claims stores and fetches the bytes of large records in [ClaimsBucket], which
// [Provision] makes. It may be used by many at once.
//
// An object is stored before the message that names it, so who reads the message finds the
// object. An object that no message names, because its producer died in between or the
// raw stream let its record go, is found and removed by [Claims.Orphans] and
// [Claims.Remove].
type Claims struct{ js jetstream.JetStream }

// NewClaims returns the claims of the account of js. It asks nothing of the broker.
func NewClaims(js jetstream.JetStream) *Claims { return &Claims{js} }

// How an object is moved.
const (
	chunkBytes  = 512 << 10 // of a chunk, or half a message where the server takes less
	chunksAhead = 4         // sent without an acknowledgement
	pageBytes   = 2 << 20   // about as much as is asked for at once
	maxRounds   = 10        // as often another may be faster
)

// retryReplica is how long a replica is waited for that has not got all chunks yet.
const retryReplica = 50 * time.Millisecond

// errBusy is an object that others change again and again, or that replicas do not get.
var errBusy = errors.New("the object keeps changing")

// Put stores data, and returns when they are there in full and can be named by a message.
// Bytes that are there already are not stored twice, but they are marked as new: the time
// until [Claims.Remove] may take them begins again. A message that names them has to be
// published well within it; who has to wait longer calls Put again, which costs little.
//
// Any number may put the same bytes at the same time: each stores chunks of its own, and
// one of them names its chunks first. The others see that, let theirs go, and are content.
// Who dies in the middle leaves chunks that nothing names, and a later Put stores the
// bytes anew. On an error, too, Put may just be called again.
func (c *Claims) Put(ctx context.Context, data []byte) (Claim, error) {
	claim := ClaimOf(data)
	if claim.Size > normalizers.MaxRecordBytes || claim.Size == 0 {
		return Claim{}, fmt.Errorf("%w: %d bytes are not in 1 to %d", normalizers.ErrTooLarge, claim.Size, normalizers.MaxRecordBytes)
	}
	for range maxRounds {
		done, err := c.put(ctx, claim, data)
		if err != nil {
			return Claim{}, fmt.Errorf("store object in bucket %s: %w", ClaimsBucket, err)
		}
		if done {
			return claim, nil
		}
	}
	return Claim{}, fmt.Errorf("store object in bucket %s: %w", ClaimsBucket, errBusy)
}

// put is one attempt of [Claims.Put]. It is not done when another has changed the object
// meanwhile.
func (c *Claims) put(ctx context.Context, claim Claim, data []byte) (done bool, err error) {
	before, err := c.find(ctx, claim.Digest)
	if err != nil {
		return false, err
	}
	now := before
	fresh := !before.holds(claim)
	if !fresh {
		whole, err := c.whole(ctx, before)
		if err != nil {
			return false, err
		}
		fresh = !whole
	}
	if fresh {
		if now, err = c.upload(ctx, claim, data); err != nil {
			return false, err
		}
	}
	// The sequence of the one before makes sure that nobody's object is replaced unseen:
	// neither one that was put meanwhile nor one that was removed.
	err = c.name(ctx, now, before.sequence)
	switch {
	case fenced(err):
		if fresh {
			c.purge(ctx, now)
		}
		return false, nil
	case err != nil:
		return false, err // it may be stored all the same: the chunks must stay
	case !fresh:
		return true, nil
	}
	c.purge(ctx, before)
	// A process that was asleep between its chunks and their name may find them removed.
	return c.whole(ctx, now)
}

// Get fetches the bytes that claim names. Size and digest are verified; nothing longer
// than [normalizers.MaxRecordBytes] is fetched. The error is permanent, see [Reason], when
// the bytes are not there or not those: the leader of the stream has said so. Any other
// error is worth another try.
func (c *Claims) Get(ctx context.Context, claim Claim) ([]byte, error) {
	if claim.Size > normalizers.MaxRecordBytes {
		return nil, fmt.Errorf("%w: claim of %d bytes, the limit is %d", normalizers.ErrTooLarge, claim.Size, normalizers.MaxRecordBytes)
	}
	o, err := c.find(ctx, claim.Digest)
	for range maxRounds {
		if err != nil {
			return nil, fmt.Errorf("fetch object: %w", err)
		}
		if err := o.check(claim); err != nil {
			return nil, err
		}
		data, chunks, err := c.download(ctx, o, claim.Size)
		if err != nil {
			return nil, fmt.Errorf("fetch object: %w", err)
		}
		switch n := int64(len(data)); {
		case n > claim.Size:
			return nil, errClaimSize
		case n == claim.Size && ClaimOf(data) != claim:
			return nil, errClaimDigest
		case n == claim.Size:
			return data, nil
		}
		// Chunks are missing. That is final when the leader has no more of them either,
		// and they are still those of the object: another may have put it anew, which
		// takes the chunks of before away under the reader.
		// A replica that is a little behind is waited for.
		stored, err := c.count(ctx, o)
		if err != nil {
			return nil, fmt.Errorf("fetch object: %w", err)
		}
		if stored > chunks {
			if err := pause(ctx, retryReplica); err != nil {
				return nil, err
			}
		}
		before := o.sequence
		if o, err = c.find(ctx, claim.Digest); err == nil && o.sequence == before && stored <= chunks {
			return nil, errClaimSize
		}
	}
	return nil, fmt.Errorf("fetch object: %w", errBusy)
}

// object is what the bucket says about an object: the fields of an ObjectInfo of NATS that
// matter here. Whoever may write to the bucket has written it.
type object struct {
	Name    string   `json:"name"`
	Bucket  string   `json:"bucket"`
	NUID    string   `json:"nuid"` // names the chunks
	Size    int64    `json:"size"`
	Chunks  uint64   `json:"chunks"`
	Digest  string   `json:"digest,omitzero"`
	Deleted bool     `json:"deleted,omitzero"`
	Options *options `json:"options,omitzero"`

	sequence uint64 // in the stream; 0 when there is no such object
	stored   time.Time
}

// options are those of an object.
type options struct {
	Link *struct{} `json:"link,omitzero"` // the object is the name of another one
}

// onlyToken is what names the chunks of an object: anything but one token, such as a
// wildcard, would name those of others.
var onlyToken = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// readObject reads the message of an object. One that cannot be read names no chunks.
func readObject(m storedMessage) object {
	var o object
	if err := json.Unmarshal(m.Data, &o); err != nil || !onlyToken.MatchString(o.NUID) || o.Deleted ||
		o.Options != nil && o.Options.Link != nil {
		o = object{}
	}
	o.sequence, o.stored = m.Sequence, m.Time
	return o
}

// find reads what the bucket says about an object from the leader of its stream: a
// replica that is behind must not make a record a dead letter.
func (c *Claims) find(ctx context.Context, name string) (object, error) {
	m, err := leaderGet(ctx, c.js, claimsStream, getRequest{LastBySubject: metaSubject(name)})
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return object{}, nil
	}
	if err != nil {
		return object{}, fmt.Errorf("read bucket %s: %w", ClaimsBucket, err)
	}
	return readObject(m), nil
}

func metaSubject(name string) string {
	return metaPrefix + base64.URLEncoding.EncodeToString([]byte(name))
}

// holds reports whether o says that it is the object of claim.
func (o object) holds(claim Claim) bool {
	return o.NUID != "" && o.Size == claim.Size && o.Digest == objectDigest(claim)
}

// objectDigest is the digest of a claim as NATS writes it.
func objectDigest(claim Claim) string {
	sum, _ := hex.DecodeString(claim.Digest) // which ClaimOf has made
	return "SHA-256=" + base64.URLEncoding.EncodeToString(sum)
}

// check reports what makes it needless to fetch o for claim. The digest that o states is
// not asked: that of the bytes counts.
func (o object) check(claim Claim) error {
	switch {
	case o.NUID == "":
		return errClaimMissing
	case o.Size != claim.Size:
		return errClaimSize
	}
	return nil
}

// count is how many chunks of o the leader of the stream has.
func (c *Claims) count(ctx context.Context, o object) (uint64, error) {
	s, err := c.js.Stream(ctx, claimsStream)
	if err != nil {
		return 0, err
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(chunkPrefix+o.NUID))
	if err != nil {
		return 0, err
	}
	return info.State.Subjects[chunkPrefix+o.NUID], nil
}

// whole reports whether all chunks of o are there.
func (c *Claims) whole(ctx context.Context, o object) (bool, error) {
	n, err := c.count(ctx, o)
	return err == nil && n == o.Chunks, err
}

// upload stores data as the chunks of a new object, which it returns. Nothing names them
// yet.
func (c *Claims) upload(ctx context.Context, claim Claim, data []byte) (object, error) {
	o := object{Name: claim.Digest, Bucket: ClaimsBucket, NUID: nuid.Next(), Size: claim.Size, Digest: objectDigest(claim)}
	nc := c.js.Conn()
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return object{}, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	unanswered := 0
	for chunk := range slices.Chunk(data, int(max(1, min(chunkBytes, nc.MaxPayload()/2)))) {
		if unanswered == chunksAhead {
			err = awaitAck(ctx, sub)
			unanswered--
		}
		if err == nil {
			err = nc.PublishMsg(&nats.Msg{Subject: chunkPrefix + o.NUID, Reply: inbox, Data: chunk})
		}
		if err != nil {
			break
		}
		o.Chunks++
		unanswered++
	}
	for ; err == nil && unanswered > 0; unanswered-- {
		err = awaitAck(ctx, sub)
	}
	if err != nil {
		c.purge(ctx, o)
		return object{}, err
	}
	return o, nil
}

// awaitAck waits for the acknowledgement of one message.
func awaitAck(ctx context.Context, sub *nats.Subscription) error {
	m, err := nextWithin(ctx, sub)
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
		return fmt.Errorf("%w: %w", errUnconfirmed, err)
	}
	if ack.Error != nil {
		return ack.Error
	}
	return nil
}

// name publishes o as the object of its name, in the place of the one at sequence last,
// 0 for none. It fails when that is not the newest any more; see [fenced].
func (c *Claims) name(ctx context.Context, o object, last uint64) error {
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	_, err = c.js.PublishMsg(ctx, &nats.Msg{
		Subject: metaSubject(o.Name),
		Header: nats.Header{
			jetstream.MsgRollup:                 {jetstream.MsgRollupSubject},
			jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(last, 10)},
		},
		Data: data,
	})
	return err
}

// purge lets the chunks of o go, if it has any. When that fails they lie there until
// [Claims.Remove] takes them.
func (c *Claims) purge(ctx context.Context, o object) {
	if o.NUID == "" || !c.js.Conn().IsConnected() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	_ = c.purgeChunks(ctx, o.NUID)
}

// purgeChunks removes the chunks of a name.
func (c *Claims) purgeChunks(ctx context.Context, name string) error {
	s, err := c.js.Stream(ctx, claimsStream)
	if err != nil {
		return err
	}
	return s.Purge(ctx, jetstream.WithPurgeSubject(chunkPrefix+name))
}

// download reads the chunks of o, up to size bytes and a little more: an object that is
// longer than it says is not read to its end. It returns how many chunks it has read, too.
func (c *Claims) download(ctx context.Context, o object, size int64) (data []byte, chunks uint64, err error) {
	nc := c.js.Conn()
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return nil, 0, err
	}
	buf := bytes.NewBuffer(make([]byte, 0, size))
	for from, more := uint64(1), true; more && int64(buf.Len()) < size; {
		body, err := json.Marshal(getRequest{
			Sequence: from, NextBySubject: chunkPrefix + o.NUID, Batch: MaxBatch, MaxBytes: pageBytes, NoHeaders: true,
		})
		if err != nil {
			return nil, 0, err
		}
		if err := nc.PublishRequest(apiSubject(c.js, "DIRECT.GET."+claimsStream), inbox, body); err != nil {
			return nil, 0, err
		}
		n, last, err := readChunks(ctx, sub, buf)
		if err != nil {
			return nil, 0, err
		}
		from, more = last+1, n > 0
		chunks += n
	}
	return buf.Bytes(), chunks, nil
}

// readChunks reads the answer to one request into buf. It returns how many chunks came,
// and the sequence of the last. Stored messages come without the headers that they may
// have, so what has some is a word of the server.
func readChunks(ctx context.Context, sub *nats.Subscription, buf *bytes.Buffer) (n, last uint64, err error) {
	for {
		m, err := nextWithin(ctx, sub)
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

// nextWithin waits for the next message of sub, for as long as any answer is waited for.
func nextWithin(ctx context.Context, sub *nats.Subscription) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return sub.NextMsgWithContext(ctx)
}
