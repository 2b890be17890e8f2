package claims

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
	"tributary/pipeline/broker"
	"tributary/pipeline/streams"
)

// Object is an object of [streams.ClaimsBucket], or chunks without an object, left by a producer that died during
// Put.
type Object struct {
	Name    string    // SHA-256 of its bytes; empty for chunks without an object
	Size    int64     // stored bytes
	Stored  time.Time // when it was last put, by the broker's clock
	Records int       // number of records in the raw stream that name it

	subject string   // subject of its descriptions; empty for chunks without an object
	newest  uint64   // sequence of the newest description
	chunks  []string // names of chunks that no other object names
}

// Objects lists the objects of [streams.ClaimsBucket] with the number of records that name each. It reads the headers
// of the whole raw stream. On a cluster, the list may come from a replica that is a moment behind.
func (c *Store) Objects(ctx context.Context) ([]Object, error) {
	return c.list(ctx, func(Object, time.Time) bool { return true })
}

// Orphans lists the objects that were put longer than olderThan ago and that no record in the raw stream names: their
// producer died before it published the record, or the record has left the raw stream by age or purge.
//
// It does not list the object of a record still to be published, if the producer publishes the record within
// olderThan of its last [Store.Put]:
//   - Orphans lists the bucket first and then reads the raw stream to its end. It skips objects put within olderThan.
//     The record of an older object is published by now, so Orphans finds it.
//   - A producer that finds its bytes already there, from an old record that is gone, puts them anew: the object gets
//     a new time and one more description. [Store.Remove] removes the listed descriptions, and keeps the chunks if
//     there is a newer description. If Remove comes first, the server refuses the producer's description, which
//     expects the newest one, and the producer stores the bytes again.
//   - Orphans lists chunks before descriptions, so it recognizes chunks that got an object meanwhile. The chunks of a
//     working producer are younger than olderThan. A producer that was suspended for longer checks its chunks after
//     naming them, and stores them again if they are gone.
//
// All times are by the broker's clock.
func (c *Store) Orphans(ctx context.Context, olderThan time.Duration) ([]Object, error) {
	objects, err := c.list(ctx, func(o Object, now time.Time) bool { return now.Sub(o.Stored) > olderThan })
	return slices.DeleteFunc(objects, func(o Object) bool { return o.Records > 0 }), err
}

// Remove removes a listed object. It returns false and keeps the bytes if the object was put anew or removed
// meanwhile.
func (c *Store) Remove(ctx context.Context, o Object) (bool, error) {
	s, err := c.js.Stream(ctx, streams.ClaimsStream)
	if err != nil {
		return false, fmt.Errorf("bucket %s: %w", streams.ClaimsBucket, err)
	}
	if o.subject != "" {
		if newest, err := c.last(ctx, streams.ClaimsStream, o.subject); err != nil || newest != o.newest {
			return false, err
		}
		if err := s.Purge(ctx, jetstream.WithPurgeSubject(o.subject), jetstream.WithPurgeSequence(o.newest+1)); err != nil {
			return false, fmt.Errorf("remove object from bucket %s: %w", streams.ClaimsBucket, err)
		}
		if newer, err := c.last(ctx, streams.ClaimsStream, o.subject); err != nil || newer != 0 {
			return false, err
		}
	}
	// No description names the chunks any more. If this fails, they are chunks without an object.
	for _, name := range o.chunks {
		if err := s.Purge(ctx, jetstream.WithPurgeSubject(streams.ObjectChunkPrefix+name)); err != nil {
			return false, fmt.Errorf("remove chunks from bucket %s: %w", streams.ClaimsBucket, err)
		}
	}
	return true, nil
}

// list lists the objects for which want returns true, and counts the records that name them.
func (c *Store) list(ctx context.Context, want func(o Object, now time.Time) bool) ([]Object, error) {
	s, err := c.js.Stream(ctx, streams.ClaimsStream)
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", streams.ClaimsBucket, err)
	}
	now := s.CachedInfo().TimeStamp
	chunks, err := c.listChunks(ctx)
	if err != nil {
		return nil, err
	}
	described, err := c.listDescribed(ctx, chunks)
	if err != nil {
		return nil, err
	}
	var objects []Object
	names := make(map[string]int) // index of each object by name
	for _, o := range described {
		if want(*o, now) {
			names[o.Name] = len(objects)
			objects = append(objects, *o)
		}
	}
	for _, o := range chunks {
		if want(*o, now) {
			objects = append(objects, *o)
		}
	}
	if err := c.countRecords(ctx, objects, names); err != nil {
		return nil, err
	}
	slices.SortFunc(objects, func(a, b Object) int { return a.Stored.Compare(b.Stored) })
	return objects, nil
}

// listDescribed lists the objects that have a description, by its subject. It moves the chunks that they name out of
// chunks. Chunks named by several objects belong to none of them: any producer can describe an object that names the
// chunks of another.
func (c *Store) listDescribed(ctx context.Context, chunks map[string]*Object) (map[string]*Object, error) {
	objects := make(map[string]*Object)
	owners := make(map[string]*Object) // by name of the chunks; nil if there are several
	err := c.each(ctx, streams.ClaimsStream, streams.ObjectMetaPrefix+">", false, func(m broker.Message) {
		o := objects[m.Subject]
		if o == nil {
			o = &Object{Name: objectName(m.Subject), subject: m.Subject}
			objects[m.Subject] = o
		}
		o.Stored, o.newest = m.Stored.UTC(), m.Sequence
		name := readObject(broker.Stored{Subject: m.Subject, Sequence: m.Sequence, Data: m.Data, Time: m.Stored}).NUID
		if name == "" {
			return
		}
		owner, named := owners[name]
		switch {
		case !named:
			owners[name] = o
			if mine := chunks[name]; mine != nil {
				o.Size += mine.Size
				delete(chunks, name)
			}
		case owner != o:
			owners[name] = nil
		}
	})
	for name, o := range owners {
		if o != nil {
			o.chunks = append(o.chunks, name)
		}
	}
	return objects, err
}

// countRecords counts the records of the raw stream that name each object. names maps the name of an object to its
// index.
func (c *Store) countRecords(ctx context.Context, objects []Object, names map[string]int) error {
	if len(names) == 0 {
		return nil
	}
	streams, err := streams.RawStreams(ctx, c.js)
	if err != nil {
		return err
	}
	for _, stream := range streams {
		// Not >: for that the server finds no last message once the last message of the stream was removed.
		err := c.each(ctx, stream, "raw.>", true, func(m broker.Message) {
			for _, value := range m.Header[envelopes.HeaderClaim] {
				claim, err := Parse(value)
				if i, ok := names[claim.Digest]; ok && err == nil {
					objects[i].Records++
				}
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// listChunks lists chunks by name, as objects without a description.
func (c *Store) listChunks(ctx context.Context) (map[string]*Object, error) {
	chunks := make(map[string]*Object)
	err := c.each(ctx, streams.ClaimsStream, streams.ObjectChunkPrefix+">", true, func(m broker.Message) {
		name := strings.TrimPrefix(m.Subject, streams.ObjectChunkPrefix)
		if !isToken(name) {
			return // purging a name such as * would remove the chunks of other objects
		}
		if chunks[name] == nil {
			chunks[name] = &Object{chunks: []string{name}}
		}
		size, _ := strconv.ParseInt(m.Header.Get("Nats-Msg-Size"), 10, 64) // set by the server
		chunks[name].Size += size
		chunks[name].Stored = m.Stored.UTC()
	})
	return chunks, err
}

// objectName returns the name of the object that a message describes. If the token in the subject is not the only
// valid encoding of a name, it returns the token, so that no object gets the name of another.
func objectName(subject string) string {
	token := strings.TrimPrefix(subject, streams.ObjectMetaPrefix)
	name, err := base64.URLEncoding.DecodeString(token)
	if err != nil || metaSubject(string(name)) != subject {
		return token
	}
	return string(name)
}

// each calls do for the messages of a stream that match filter, up to the last one that the leader has at the
// beginning. headersOnly excludes their bodies. After a failure it tries again behind the last message read.
func (c *Store) each(ctx context.Context, stream, filter string, headersOnly bool, do func(broker.Message)) error {
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
		}, func(m broker.Message) bool {
			do(m)
			seen = m.Sequence
			return seen < end
		})
		if err == nil {
			break
		}
		if failures++; failures == maxRounds || ctx.Err() != nil {
			return fmt.Errorf("read stream %s: %w", stream, err)
		}
		if err := broker.Pause(ctx, time.Duration(failures)*RetryReplica); err != nil {
			return err
		}
		if end, err = c.last(ctx, stream, filter); err != nil { // the last message may be gone
			return err
		}
	}
	return nil
}

// read calls do for the messages of a stream until do returns false. It returns an error when no message arrives.
func (c *Store) read(ctx context.Context, stream string, cfg jetstream.ConsumerConfig, do func(broker.Message) bool) error {
	r, err := broker.OpenReader(ctx, c.js, stream, cfg)
	if err != nil {
		return err
	}
	defer r.Close()
	for {
		wait, cancel := context.WithTimeoutCause(ctx, broker.RequestTimeout, broker.ErrSilent)
		messages, err := r.Next(wait, nil)
		cancel()
		if err != nil {
			return err
		}
		for _, m := range messages {
			if !do(m) {
				return nil
			}
		}
	}
}

// last returns the sequence of the last message of a stream that matches filter; 0 for none.
func (c *Store) last(ctx context.Context, stream, filter string) (uint64, error) {
	m, err := broker.LeaderGet(ctx, c.js, stream, broker.GetRequest{LastBySubject: filter})
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, nil
	}
	return m.Sequence, broker.Wrap(err, "read stream "+stream)
}
