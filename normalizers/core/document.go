package core

import (
	"crypto/sha256"
	"iter"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// DocumentTail is how many messages at the end of a document may still change.
const DocumentTail = 8

// DocumentHead identifies the leading messages of a document at its last read, for vendors that rewrite documents in
// place. While the document still begins with them they are not looked at again, however many they are.
type DocumentHead struct {
	Messages int         `json:"n,omitzero"`
	Digest   Fingerprint `json:"d,omitzero"`
}

// Unchanged returns how many messages the document still begins with, of those at its last read; 0 if any of them
// changed.
func (h DocumentHead) Unchanged(messages []jsontext.Value) int {
	if h.Messages > len(messages) || DigestOf(messages[:h.Messages]) != h.Digest {
		return 0
	}
	return h.Messages
}

// Read notes that the document was read: only its last messages can still change.
func (h *DocumentHead) Read(messages []jsontext.Value) {
	if n := len(messages) - DocumentTail; n > 0 {
		*h = DocumentHead{Messages: n, Digest: DigestOf(messages[:n])}
	}
}

// DigestOf hashes leading messages of a document.
func DigestOf(messages []jsontext.Value) Fingerprint { return DigestOfAll(slices.Values(messages)) }

// DigestOfAll is [DigestOf] for messages that are made one by one.
func DigestOfAll(messages iter.Seq[jsontext.Value]) Fingerprint {
	h := sha256.New()
	for m := range messages {
		_, _ = h.Write(m) // never fails
		_, _ = h.Write([]byte{0xff})
	}
	return Fingerprint(h.Sum(nil)[:6])
}
