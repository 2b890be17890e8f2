package pipeline

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
)

// Object is an object of [ClaimsBucket], or chunks that belong to none: those of a
// producer that died while it put them.
type Object struct {
	Name    string    // the SHA-256 of its bytes; empty for chunks that belong to none
	Size    int64     // of what is stored, in bytes
	Stored  time.Time // when it was last put, by the clock of the broker
	Records int       // in the raw stream that name it

	subject  string // of the message that makes it an object; empty for chunks that belong to none
	sequence uint64 // of that message
	chunks   string // their name
}

// Objects lists what [ClaimsBucket] holds, and how many records name it. It reads the
// headers of the whole raw stream. On a cluster the list may be that of a replica which is a
// moment behind.
func (c *Claims) Objects(ctx context.Context) ([]Object, error) {
	return c.list(ctx, func(Object, time.Time) bool { return true })
}

// Orphans lists the objects that were put longer ago than olderThan and that no record in
// the raw stream names: their producer has died before it published the record, or the
// raw stream has let the record go, by its age or by a purge.
//
// Nothing of a record that is on its way is among them, as long as its producer publishes
// it within olderThan of its last [Claims.Put], and these are the reasons:
//   - The bucket is listed first, and then the raw stream is read to its end. An object
//     that was put within olderThan is left alone. For one that was put before, the record
//     has been published by now, so it is found.
//   - A producer that finds its bytes there already, of an old record that is long gone,
//     puts them anew, which gives them a new time, and with it another message that makes
//     them an object. [Claims.Remove] deletes the very message that was listed, so that it
//     removes nothing that was put since. When the producer comes second, its own message,
//     which expects the one that was deleted, is refused, and it stores the bytes again.
//   - Chunks that belong to no object are listed before the objects, so what became one
//     since is known. Those of a producer that is still at work are not old. One that wakes
//     up after longer than olderThan looks for its chunks when it has named them, and
//     stores them again when they have gone.
//
// The times compared are all those of the broker.
func (c *Claims) Orphans(ctx context.Context, olderThan time.Duration) ([]Object, error) {
	objects, err := c.list(ctx, func(o Object, now time.Time) bool { return now.Sub(o.Stored) > olderThan })
	return slices.DeleteFunc(objects, func(o Object) bool { return o.Records > 0 }), err
}

// Remove removes an object that was listed. It reports false, and removes nothing, when
// another has put it anew since, or removed it.
func (c *Claims) Remove(ctx context.Context, o Object) (bool, error) {
	s, err := c.js.Stream(ctx, claimsStream)
	if err != nil {
		return false, fmt.Errorf("bucket %s: %w", ClaimsBucket, err)
	}
	if o.subject != "" {
		if err := s.DeleteMsg(ctx, o.sequence); err != nil {
			now, again := leaderGet(ctx, c.js, claimsStream, getRequest{LastBySubject: o.subject})
			if errors.Is(again, jetstream.ErrMsgNotFound) || again == nil && now.Sequence != o.sequence {
				return false, nil // it is another object by now
			}
			return false, fmt.Errorf("remove object from bucket %s: %w", ClaimsBucket, err)
		}
	}
	if o.chunks == "" {
		return true, nil
	}
	// Only that message named them. If this fails they belong to none from now on.
	err = s.Purge(ctx, jetstream.WithPurgeSubject(chunkPrefix+o.chunks))
	return err == nil, wrap(err, "remove chunks from bucket "+ClaimsBucket)
}

// list lists the objects that are wanted, and counts the records that name them.
func (c *Claims) list(ctx context.Context, want func(o Object, now time.Time) bool) ([]Object, error) {
	s, err := c.js.Stream(ctx, claimsStream)
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", ClaimsBucket, err)
	}
	now := s.CachedInfo().TimeStamp
	chunks, err := c.listChunks(ctx)
	if err != nil {
		return nil, err
	}
	var objects []Object
	names := make(map[string]int) // index of an object by its name
	err = c.each(ctx, claimsStream, metaPrefix+">", false, func(m rawMessage) {
		o := Object{Name: objectName(m.Subject), Stored: m.stored.UTC(), subject: m.Subject, sequence: m.sequence}
		said := readObject(storedMessage{Subject: m.Subject, Sequence: m.sequence, Data: m.Data, Time: m.stored})
		o.chunks = said.NUID
		if mine := chunks[said.NUID]; mine != nil {
			o.Size = mine.Size
			delete(chunks, said.NUID)
		}
		if want(o, now) {
			names[o.Name] = len(objects)
			objects = append(objects, o)
		}
	})
	if err != nil {
		return nil, err
	}
	for _, o := range chunks {
		if want(*o, now) {
			objects = append(objects, *o)
		}
	}
	if len(names) > 0 {
		err = c.each(ctx, RawStream, ">", true, func(m rawMessage) {
			for _, value := range m.Header[envelopes.HeaderClaim] {
				claim, err := parseClaim(value)
				if i, ok := names[claim.Digest]; ok && err == nil {
					objects[i].Records++
				}
			}
		})
	}
	if err != nil {
		return nil, err
	}
	slices.SortFunc(objects, func(a, b Object) int { return a.Stored.Compare(b.Stored) })
	return objects, nil
}

// listChunks lists all chunks by their name, as if they belonged to no object.
func (c *Claims) listChunks(ctx context.Context) (map[string]*Object, error) {
	chunks := make(map[string]*Object)
	err := c.each(ctx, claimsStream, chunkPrefix+">", true, func(m rawMessage) {
		name := strings.TrimPrefix(m.Subject, chunkPrefix)
		if !onlyToken.MatchString(name) {
			return // a name such as * would purge those of others
		}
		if chunks[name] == nil {
			chunks[name] = &Object{chunks: name}
		}
		size, _ := strconv.ParseInt(m.Header.Get("Nats-Msg-Size"), 10, 64) // by the server
		chunks[name].Size += size
		chunks[name].Stored = m.stored.UTC()
	})
	return chunks, err
}

// objectName is the name of the object that a message makes, or its token where that is no
// encoded name.
func objectName(subject string) string {
	token := strings.TrimPrefix(subject, metaPrefix)
	name, err := base64.URLEncoding.DecodeString(token)
	if err != nil {
		return token
	}
	return string(name)
}

// each calls do for the messages of a stream that match filter, up to the last that the
// leader of the stream has when it begins; without their bodies when only headers count.
// A broker that cannot be read for a moment is tried again, behind what was read.
func (c *Claims) each(ctx context.Context, stream, filter string, headersOnly bool, do func(rawMessage)) error {
	end, err := c.last(ctx, stream, filter)
	if err != nil {
		return err
	}
	seen := uint64(0)
	for failures := 0; seen < end; {
		err := c.read(ctx, stream, jetstream.ConsumerConfig{
			Description:   "Claims of records.",
			FilterSubject: filter,
			HeadersOnly:   headersOnly,
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy,
			OptStartSeq:   seen + 1,
		}, func(m rawMessage) bool {
			do(m)
			seen = m.sequence
			return seen < end
		})
		if err == nil {
			break
		}
		if failures++; failures == maxRounds || ctx.Err() != nil {
			return fmt.Errorf("read stream %s: %w", stream, err)
		}
		if err := pause(ctx, time.Duration(failures)*retryReplica); err != nil {
			return err
		}
		if end, err = c.last(ctx, stream, filter); err != nil { // the last one may have gone
			return err
		}
	}
	return nil
}

// read calls do for the messages of a stream until it returns false. It gives up when
// none comes.
func (c *Claims) read(ctx context.Context, stream string, cfg jetstream.ConsumerConfig, do func(rawMessage) bool) error {
	r, err := openStream(ctx, c.js, stream, cfg)
	if err != nil {
		return err
	}
	defer r.close()
	for {
		round, cancel := context.WithTimeoutCause(ctx, requestTimeout, errSilent)
		run, err := r.next(round, nil)
		cancel()
		if err != nil {
			return err
		}
		for _, m := range run {
			if !do(m) {
				return nil
			}
		}
	}
}

// last is the sequence of the last message of a stream that matches filter; 0 when there
// is none.
func (c *Claims) last(ctx context.Context, stream, filter string) (uint64, error) {
	m, err := leaderGet(ctx, c.js, stream, getRequest{LastBySubject: filter})
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, nil
	}
	return m.Sequence, wrap(err, "read stream "+stream)
}
