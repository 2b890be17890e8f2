package claims

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/broker"
	"tributary/pipeline/streams"
)

// uploads iterates over the uploads described under a name, oldest first, each once, so that later descriptions
// cannot hide an upload. It asks the leader of the stream, because a replica that is behind must not make a record a
// dead letter. An error comes last.
func (c *Store) uploads(ctx context.Context, name string) iter.Seq2[object, error] {
	return func(yield func(object, error) bool) {
		seen := make(map[string]bool)
		for from := uint64(1); ; {
			m, err := broker.LeaderGet(ctx, c.js, streams.ClaimsStream, broker.GetRequest{Sequence: from, NextBySubject: metaSubject(name)})
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				return
			}
			if err != nil {
				yield(object{}, fmt.Errorf("read bucket %s: %w", streams.ClaimsBucket, err))
				return
			}
			o := readObject(m)
			from = o.sequence + 1
			if seen[o.NUID] {
				continue
			}
			seen[o.NUID] = true
			if !yield(o, nil) {
				return
			}
		}
	}
}

// intact returns the oldest upload that has the bytes of claim, or one without a name of chunks. It does not trust
// descriptions, because any client that may write to the bucket can write them before the bytes are put.
func (c *Store) intact(ctx context.Context, claim Claim) (object, error) {
	for o, err := range c.uploads(ctx, claim.Digest) {
		if err != nil {
			return object{}, err
		}
		if !o.holds(claim) {
			continue
		}
		n, err := c.count(ctx, o)
		if err != nil {
			return object{}, err
		}
		if n < o.Chunks {
			continue
		}
		if c.knows(claim.Digest, o.NUID) {
			return o, nil
		}
		same, err := c.verify(ctx, o, claim)
		if err != nil {
			return object{}, err
		}
		if same {
			c.remember(claim.Digest, o.NUID)
			return o, nil
		}
	}
	return object{}, nil
}

// verify reads the chunks of an upload and reports whether they begin with the bytes of claim. It needs only the
// rights of a producer.
func (c *Store) verify(ctx context.Context, o object, claim Claim) (bool, error) {
	sum, size := sha256.New(), int64(0)
	for from := uint64(1); size < claim.Size; {
		m, err := broker.LeaderGet(ctx, c.js, streams.ClaimsStream, broker.GetRequest{Sequence: from, NextBySubject: streams.ObjectChunkPrefix + o.NUID})
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("read bucket %s: %w", streams.ClaimsBucket, err)
		}
		part := m.Data[:min(int64(len(m.Data)), claim.Size-size)]
		_, _ = sum.Write(part) // a hash never fails
		size += int64(len(part))
		from = m.Sequence + 1
	}
	return hex.EncodeToString(sum.Sum(nil)) == claim.Digest, nil
}

// knows reports whether the named chunks are known to have the bytes of a digest.
func (c *Store) knows(digest, chunks string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.verified[digest] == chunks
}

// remember notes that the named chunks have the bytes of a digest.
func (c *Store) remember(digest, chunks string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.verified) >= maxVerified {
		clear(c.verified) // they will be verified again
	}
	if chunks == "" {
		delete(c.verified, digest)
		return
	}
	c.verified[digest] = chunks
}
