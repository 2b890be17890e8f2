package redact

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Key is the key of placeholders. fmt and slog print it as [secret].
type Key []byte

// String implements fmt.Stringer.
func (Key) String() string { return "[secret]" }

// GoString implements fmt.GoStringer.
func (Key) GoString() string { return "[secret]" }

// minKey is the minimum length of a key; a shorter one could be guessed.
const minKey = 16

var errNoKey = errors.New("redaction has no key: set TRIBUTARY_REDACT_KEY, or TRIBUTARY_REDACT_KEY_FILE")

// NewKey returns the key in a text of the user, which must have at least 16 bytes.
func NewKey(text []byte) (Key, error) {
	text = bytes.TrimSpace(text)
	if len(text) < minKey {
		return nil, fmt.Errorf("the key of redaction has %d bytes: it needs %d or more, such as the output of openssl rand -hex 32", len(text), minKey)
	}
	return Key(bytes.Clone(text)), nil
}

// ReadKey reads the key from a file.
func ReadKey(path string) (Key, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the key of redaction: %w", err)
	}
	k, err := NewKey(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return k, nil
}

// ReadOrCreateKey reads the key from a file, or creates a random one if the file does not exist. Processes that
// create it at the same time get the same key.
func ReadOrCreateKey(path string) (Key, error) {
	k, err := ReadKey(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return k, err
	}
	if err := createKey(path); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make a key of redaction: %w", err)
	}
	return ReadKey(path)
}

// createKey writes a random key to a new file. The file gets its name, by a link, once it is whole.
func createKey(path string) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".redact-*") // of mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	var random [32]byte
	_, _ = rand.Read(random[:]) // never fails
	_, err = fmt.Fprintln(f, hex.EncodeToString(random[:]))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Link(f.Name(), path)
}

// fingerprint identifies the key without revealing it.
func (k Key) fingerprint() string { return k.digest([]byte("fingerprint of the key")) }

// Pseudonym returns a replacement for a name of a kind. Under one key, equal names of a kind have equal pseudonyms;
// without the key, names cannot be guessed by trying.
func (k Key) Pseudonym(kind, name string) string {
	return kind + "-" + k.digest([]byte(kind+"\x00"+name))
}

// digest returns the first 12 hex digits of an HMAC.
func (k Key) digest(b []byte) string {
	mac := hmac.New(sha256.New, k)
	mac.Write(b)
	return hex.EncodeToString(mac.Sum(nil)[:6])
}
