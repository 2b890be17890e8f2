package pipeline

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"log/slog"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"tributary/envelopes"
	"tributary/pipeline/objects"
)

// The content of an archive may be an object outside the broker, so that the disk of the broker does not grow with
// the sessions that ever were. The message of the archive then names the object, and everything that archive.go says
// stays true:
//   - An object never changes. Each move writes a new one, before the batch with the message that names it. A worker
//     that was overtaken, or that died in between, leaves an object that no message names.
//   - A worker lists the objects of an archive before it replaces it, and removes some of these after the
//     acknowledgement. By then none of them can have been written for a message that is still to be stored: the
//     acknowledgement says that the partition was not taken over before.
//   - The object that is replaced stays until the next move at the earliest, and for [archiver.grace]: a broker that
//     was put back to an older copy names it again.

// archiveObjectVersion is the first byte of a message that names an object. Behind it are the SHA-256 of the
// object, the length of its name, the name, and which sessions it may have.
const archiveObjectVersion = 2

// archiveObjects are the archives outside the broker. The zero value has no place for them.
type archiveObjects struct{ store objects.Store }

// markerObject says that archives are in a place. Where it is missing, the place is another one, or not mounted,
// and what is not found there is not lost.
const markerObject = "tributary-archives.txt"

const markerText = "States of sessions that ended long ago, which workers of Tributary moved here. Without this file they read nothing of it.\n"

// ErrArchives says that the archives outside the broker cannot be reached.
var ErrArchives = errors.New("archives of session states cannot be reached")

var (
	errNoArchives    = fmt.Errorf("%w: they are outside the broker: set TRIBUTARY_ARCHIVES as the other workers have it", ErrArchives)
	errOtherArchives = fmt.Errorf("%w: they are not there: mount the folder, or set TRIBUTARY_ARCHIVES to where they are", ErrArchives)
)

// unreached is the error of a place that does not answer.
func unreached(err error) error { return fmt.Errorf("%w: %w", ErrArchives, err) }

// open returns the archive of a message. It may be empty when the archive has none of the wanted sessions, nil for all.
// The error is [errArchive] when another try does not help.
func (a archiveObjects) open(ctx context.Context, message []byte, wanted []string) (archive, error) {
	if !isReference(message) {
		return decodeArchive(message)
	}
	r, err := decodeArchiveReference(message)
	if err != nil || wanted != nil && !slices.ContainsFunc(wanted, r.sessions.mayHave) {
		return nil, err
	}
	return a.get(ctx, r)
}

// get returns the archive that a reference names. The error is that of open.
func (a archiveObjects) get(ctx context.Context, r archiveReference) (archive, error) {
	if a.store == nil {
		return nil, errNoArchives
	}
	data, err := a.store.Get(ctx, r.object)
	if errors.Is(err, fs.ErrNotExist) {
		if err := a.marked(ctx); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%w: object %s of %s is missing", errArchive, r.object, a.store)
	}
	if err != nil {
		return nil, unreached(err)
	}
	if sha256.Sum256(data) != r.sum {
		return nil, fmt.Errorf("%w: object %s of %s has other bytes", errArchive, r.object, a.store)
	}
	return decodeArchive(data)
}

// put writes an archive to a new object below a path, and returns the message that names it.
func (a archiveObjects) put(ctx context.Context, folder string, content archive, data []byte) ([]byte, error) {
	r := archiveReference{object: path.Join(folder, nuid.Next()), sum: sha256.Sum256(data), sessions: newSessionFilter(content)}
	if err := a.store.Put(ctx, r.object, data); err != nil {
		return nil, unreached(err)
	}
	return r.encode(), nil
}

// replaced returns which objects below a path are of no use any more once the archive of message is replaced, which is empty when
// there is none. Those that were replaced less than grace ago are not among them.
func (a archiveObjects) replaced(ctx context.Context, folder string, message []byte, grace time.Duration) (names []string, err error) {
	current := ""
	if isReference(message) {
		r, err := decodeArchiveReference(message)
		if err != nil {
			return nil, err
		}
		current = r.object
	}
	list, err := a.store.List(ctx, folder)
	if err != nil {
		return nil, unreached(err)
	}
	for _, o := range list {
		switch {
		case o.Name != current:
			names = append(names, o.Name)
		case time.Since(o.Modified) < grace:
			return nil, nil // it has replaced the others only now
		}
	}
	return names, nil
}

// remove removes objects.
func (a archiveObjects) remove(ctx context.Context, names []string) error {
	for _, name := range names {
		if err := a.store.Delete(ctx, name); err != nil {
			return unreached(err)
		}
	}
	return nil
}

// marked returns an error unless archives are in the place.
func (a archiveObjects) marked(ctx context.Context) error {
	_, err := a.store.Get(ctx, markerObject)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", a.store, errOtherArchives)
	}
	if err != nil {
		return unreached(err)
	}
	return nil
}

// CheckArchives reports whether the archives of the session states of a generation can be read: an error says that a
// place outside the broker, nil for none, is not the one where they are, or does not answer.
func CheckArchives(ctx context.Context, js jetstream.JetStream, generation string, place objects.Store) error {
	l, err := readLayout(ctx, js)
	if err != nil {
		return err
	}
	outside, err := archivesOutside(ctx, js, cellNames(generation, l.Cells))
	switch {
	case err != nil || place == nil && !outside:
		return err
	case place == nil:
		return errNoArchives
	}
	err = archiveObjects{place}.marked(ctx)
	if errors.Is(err, errOtherArchives) && !outside {
		return nil // a worker makes it one
	}
	return err
}

// prepare makes a place, which may be nil, one for archives, unless the archives of the cells are elsewhere. A place that does
// not answer is logged: sessions that are new do not need it.
func (a archiveObjects) prepare(ctx context.Context, js jetstream.JetStream, cells []string, log *slog.Logger) error {
	outside, err := archivesOutside(ctx, js, cells)
	switch {
	case err != nil || a.store == nil && !outside:
		return err
	case a.store == nil:
		return errNoArchives
	}
	err = a.marked(ctx)
	if errors.Is(err, errOtherArchives) {
		if outside {
			return err
		}
		err = a.store.Put(ctx, markerObject, []byte(markerText))
	}
	if err != nil {
		log.WarnContext(ctx, "the place of the archives of session states cannot be used: late records of sessions that ended long ago wait for it", slog.Any("error", err))
	}
	return nil
}

// archivesOutside reports whether the newest archive of one of the cells is outside the broker.
func archivesOutside(ctx context.Context, js jetstream.JetStream, cells []string) (bool, error) {
	for _, cell := range cells {
		newest, err := LastStored(ctx, js, EventsStream(cell), envelopes.ArchiveFilter(cell))
		if errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return false, err
		}
		if isReference(newest.Data) {
			return true, nil
		}
	}
	return false, nil
}

// isReference reports whether the message of an archive names an object.
func isReference(message []byte) bool { return len(message) > 0 && message[0] == archiveObjectVersion }

// archivesFolder is the path of the objects of an events stream. A stream of the same name that is made later has
// another one.
func archivesFolder(cell string, created time.Time) string {
	return fmt.Sprintf("%s-%x", cell, created.UnixNano())
}

// archiveFolder is the path of the objects of an archive, below that of its stream.
func archiveFolder(stream, subject string) string {
	parts := strings.Split(subject, ".") // archives.<generation>.<partition>.<n>
	return path.Join(stream, parts[2], parts[3])
}

// drop removes the objects of the archives of events streams that are to be removed.
func (a archiveObjects) drop(ctx context.Context, js jetstream.JetStream, cells []string) error {
	if a.store == nil {
		outside, err := archivesOutside(ctx, js, cells)
		if outside {
			err = errNoArchives
		}
		return err
	}
	for _, cell := range cells {
		stream, err := js.Stream(ctx, EventsStream(cell))
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		list, err := a.store.List(ctx, archivesFolder(cell, stream.CachedInfo().Created))
		if err != nil {
			return unreached(err)
		}
		for _, o := range list {
			if err := a.store.Delete(ctx, o.Name); err != nil {
				return unreached(err)
			}
		}
	}
	return nil
}

// archiveReference is the message of an archive whose content is an object.
type archiveReference struct {
	object   string
	sum      [sha256.Size]byte
	sessions sessionFilter
}

// encode returns the message.
func (r archiveReference) encode() []byte {
	data := append([]byte{archiveObjectVersion}, r.sum[:]...)
	data = append(binary.AppendUvarint(data, uint64(len(r.object))), r.object...)
	return append(data, r.sessions...)
}

// decodeArchiveReference is the inverse of encode.
func decodeArchiveReference(data []byte) (r archiveReference, err error) {
	cut := fmt.Errorf("%w: its reference is cut off", errArchive)
	if len(data) < 1+len(r.sum) {
		return r, cut
	}
	rest := data[1+copy(r.sum[:], data[1:]):]
	n, w := binary.Uvarint(rest)
	if w <= 0 || n > uint64(len(rest)-w) {
		return r, cut
	}
	r.object, r.sessions = string(rest[w:w+int(n)]), sessionFilter(rest[w+int(n):])
	return r, nil
}

// sessionFilter is a Bloom filter of the names of sessions: of sessions that are not in an archive, it tells most
// without the archive. Of those that are, it tells all.
type sessionFilter []byte

// The filter of an archive: 16 bits for each session, up to a kilobyte. Full as archives are after a year
// at 100,000 sessions a day, one of 100 sessions that are new is looked for in vain.
const (
	filterBytes    = 2 // for each session
	maxFilterBytes = 1 << 10
	filterHashes   = 4
)

func newSessionFilter(a archive) sessionFilter {
	f := make(sessionFilter, min(filterBytes*len(a), maxFilterBytes))
	for name := range a {
		for bit := range f.bits(name) {
			f[bit/8] |= 1 << (bit % 8)
		}
	}
	return f
}

// mayHave reports whether a session may be in the archive.
func (f sessionFilter) mayHave(name string) bool {
	if len(f) == 0 {
		return false
	}
	for bit := range f.bits(name) {
		if f[bit/8]&(1<<(bit%8)) == 0 {
			return false
		}
	}
	return true
}

// bits yields the bits of a name, from two halves of one hash.
func (f sessionFilter) bits(name string) func(func(uint64) bool) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	begin, step := h.Sum64()>>32, h.Sum64()<<32>>32|1
	return func(yield func(uint64) bool) {
		for i := range uint64(filterHashes) {
			if !yield((begin + i*step) % uint64(8*len(f))) {
				return
			}
		}
	}
}
