package pipeline

import (
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"tributary/envelopes"
	"tributary/normalizers"
)

// Limits of a dead letter.
const (
	// maxHeaderBytes is what the headers of any message of ours take. The broker has 64
	// KiB for them, of which the batch and its own headers on delivery take some.
	maxHeaderBytes = 60 << 10
	// maxErrorBytes is the longest error text.
	maxErrorBytes = 1 << 10
)

// deadLetter is the message that keeps a record which could not be read for good:
// its bytes, its own headers under [envelopes.HeaderOriginal], and why. What does not fit
// a message of maxPayload bytes is left out, the body first, then headers: the record is
// named, and whole in the raw stream.
func deadLetter(generation string, partition int, r normalizers.Record, original nats.Header, cause error, maxPayload int64) *nats.Msg {
	reason, _ := Reason(cause)
	text := cause.Error()
	h := nats.Header{
		envelopes.HeaderReason:     {reason},
		envelopes.HeaderError:      {strings.ToValidUTF8(text[:min(len(text), maxErrorBytes)], "")},
		envelopes.HeaderStream:     {RawStream},
		envelopes.HeaderSequence:   {strconv.FormatUint(r.Sequence, 10)},
		envelopes.HeaderGeneration: {generation},
		envelopes.HeaderNormalizer: {strconv.Itoa(normalizers.Revision)},
		envelopes.HeaderFirstSeen:  {envelopes.FormatTime(r.Stored)},
	}
	if hashed(r.Session) && len(r.Session) <= maxSessionBytes {
		h[envelopes.HeaderSession] = []string{envelopes.EncodeHeaderValue(r.Session)}
	}
	size := headerSize(h)
	names := make([]string, 0, len(original))
	for name := range original {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		kept := nats.Header{envelopes.HeaderOriginal + name: original[name]}
		if n := headerSize(kept); size+n <= maxHeaderBytes {
			size += n
			h[envelopes.HeaderOriginal+name] = original[name]
		}
	}
	m := &nats.Msg{Subject: envelopes.DeadLetterSubject(generation, partition, r.Source, r.Session), Header: h}
	if int64(size+len(r.Data)+batchHeaderBytes) <= maxPayload {
		m.Data = r.Data
	}
	return m
}

// batchHeaderBytes is room for the headers of a batch, of the transport hop, and the
// first line.
const batchHeaderBytes = 1 << 10

// headerSize is the length of h on the wire without the first line.
func headerSize(h nats.Header) int {
	n := 0
	for name, values := range h {
		for _, v := range values {
			n += len(name) + len(v) + len(": \r\n")
		}
	}
	return n
}
