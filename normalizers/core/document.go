package core

import (
	"crypto/sha256"
	"iter"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// DocumentTail is how many messages at the end of a document may still change.
const DocumentTail = 8

// DocumentHead identifies the messages that a document began with when it was last read,
// where the vendor rewrites the document in place. As long as the document still begins
// with them they are not looked at again, however many they are.
type DocumentHead struct {
	Messages int         `json:"n,omitzero"`
	Digest   Fingerprint `json:"d,omitzero"`
}

// Unchanged returns how many messages the document still begins with, of those that it began with
// when it was last read; 0 where one of them is another.
func (h DocumentHead) Unchanged(messages []jsontext.Value) int {
	if h.Messages > len(messages) || DigestOf(messages[:h.Messages]) != h.Digest {
		return 0
	}
	return h.Messages
}

// Read notes that the document was read: all but the last messages cannot change any more.
func (h *DocumentHead) Read(messages []jsontext.Value) {
	if n := len(messages) - DocumentTail; n > 0 {
		*h = DocumentHead{Messages: n, Digest: DigestOf(messages[:n])}
	}
}

// DigestOf hashes the messages that a document begins with.
func DigestOf(messages []jsontext.Value) Fingerprint { return DigestOfAll(slices.Values(messages)) }

// DigestOfAll is [DigestOf] for messages of which each is hashed before the next one is made.
func DigestOfAll(messages iter.Seq[jsontext.Value]) Fingerprint {
	h := sha256.New()
	for m := range messages {
		_, _ = h.Write(m) // never fails by contract
		_, _ = h.Write([]byte{0xff})
	}
	return Fingerprint(h.Sum(nil)[:6])
}
