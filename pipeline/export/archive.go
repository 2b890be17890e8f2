package export

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nuid"

	"tributary/pipeline/events"
	"tributary/pipeline/streams"
)

// Names in an export. Readers of partitioned files skip names that begin with _.
const (
	controlDir  = "_export"
	pricesName  = "prices.csv"
	columnsName = "columns.parquet" // has no rows, but every column, because files of older versions lack some
)

// manifestName returns the name of the manifest of a cell.
func manifestName(cell int) string {
	if cell == 0 {
		return "manifest.json"
	}
	return fmt.Sprintf("manifest-%d.json", cell)
}

// ErrOtherExport means that the place has the files of an export of something else.
var ErrOtherExport = errors.New("another export is there")

// place stores the files of an export: in a folder or a bucket. Names have slashes.
type place interface {
	String() string
	// manifest returns the name of the manifest.
	manifest() string
	// load returns the manifest; nil if there is none.
	load(ctx context.Context) ([]byte, error)
	// save replaces the manifest that was last loaded or saved.
	save(ctx context.Context, manifest []byte) error
	// put replaces a file beside the manifest that no export reads.
	put(ctx context.Context, name string, data []byte) error
	// list lists the files.
	list(ctx context.Context) ([]stored, error)
	// read returns a file.
	read(ctx context.Context, name string) ([]byte, error)
	// add adds files, each of which appears whole. After a failure any of them may be there.
	add(ctx context.Context, files []file) error
	// remove removes a file.
	remove(ctx context.Context, name string) error
}

// stored is an existing file.
type stored struct {
	name string
	size int64
}

// file is a file to add.
type file struct {
	name  string
	write func(io.Writer) error
}

// manifest states what an export has stored.
type manifest struct {
	Generation string    `json:"generation"`
	Created    time.Time `json:"stream_created"`  // when the events stream was created
	Broker     time.Time `json:"broker,omitzero"` // see [streams.BrokerSince]; zero for unknown
	Format     Format    `json:"format"`
	Raw        bool      `json:"raw"`
	Months     bool      `json:"months,omitzero"`  // folders are months; in older versions they are days
	Through    uint64    `json:"through"`          // sequence of the last event in a file
	Read       uint64    `json:"read,omitzero"`    // sequence up to which no event follows Through
	Pending    span      `json:"pending,omitzero"` // span whose files are being added
	Run        string    `json:"run"`              // run that wrote this manifest

	First    events.Mark  `json:"first,omitzero"`    // first event of all; zero if an older version wrote its file
	Marks    events.Marks `json:"marks,omitempty"`   // last event of some spans, including Pending
	Removing bool         `json:"removing,omitzero"` // files behind Through, of a stream that is gone, are being removed

	Compacting span `json:"compacting,omitzero"` // span whose files are being replaced by one in each folder
}

// span is a range of sequences in the events stream of a cell, both ends included, see [streams.PlaceOf]; zero for
// none.
type span struct {
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
}

// archive is what an export has stored. The manifest names a span before its files are added, and marks it as stored
// afterwards. So after an interruption the next run adds the files of the same span.
type archive struct {
	place    place
	manifest manifest
	there    map[string]bool // files of the pending span that an earlier run added
}

// openArchive finds out what an export has stored at a place. With replace, it removes the files of another
// generation of the same broker, and returns their number.
func openArchive(ctx context.Context, p place, want manifest, replace bool) (a *archive, replaced int, err error) {
	want.Run = nuid.Next()
	a = &archive{place: p, manifest: want, there: map[string]bool{}}
	data, err := p.load(ctx)
	if err != nil {
		return nil, 0, err
	}
	if data != nil {
		err = a.take(data, replace)
	} else {
		err = a.findFolders(ctx)
	}
	if err != nil {
		return nil, 0, err
	}
	if err := a.save(ctx); err != nil { // before list, so that no other run adds anything after this
		return nil, 0, err
	}
	list, err := p.list(ctx)
	if err != nil {
		return nil, 0, err
	}
	if a.manifest.Removing {
		if replaced, err = a.finishRemoval(ctx, list); err != nil {
			return nil, replaced, err
		}
		if list, err = p.list(ctx); err != nil {
			return nil, replaced, err
		}
	}
	if err := a.recover(list); err != nil {
		return nil, replaced, err
	}
	_, err = a.finishCompaction(ctx, list)
	return a, replaced, err
}

// findFolders finds out from file names whether the folders are days, if no manifest states it.
func (a *archive) findFolders(ctx context.Context) error {
	list, err := a.place.list(ctx)
	a.manifest.Months = !slices.ContainsFunc(list, func(f stored) bool { return strings.HasPrefix(f.name, dayFolder) })
	return err
}

// take takes over the progress of a manifest, if it belongs to the same export. With replace, files of another
// generation are to be removed. It compares the broker, so that files of one broker are not replaced by those of
// another.
func (a *archive) take(data []byte, replace bool) error {
	var have manifest
	if err := json.Unmarshal(data, &have); err != nil {
		return fmt.Errorf("%s: %s/%s is not a manifest: remove it, and the next run restores it from the file names", a.place, controlDir, a.place.manifest())
	}
	want := a.manifest
	replace = replace && have.Generation != want.Generation && !have.Broker.IsZero() && have.Broker.Equal(want.Broker)
	if replace {
		have.Generation, have.Created = want.Generation, want.Created
		have.Through, have.Read, have.Pending, have.First, have.Marks, have.Removing = want.Through, 0, span{}, events.Mark{}, nil, true
		have.Compacting = span{}
	}
	for _, d := range []struct{ what, have, want string }{
		{"generation", have.Generation, want.Generation},
		{"format", string(have.Format), string(want.Format)},
		{"raw", strconv.FormatBool(have.Raw), strconv.FormatBool(want.Raw)},
		{"stream created", have.Created.UTC().Format(time.RFC3339Nano), want.Created.UTC().Format(time.RFC3339Nano)},
	} {
		if d.have != d.want {
			return fmt.Errorf("%w: %s has %s %s, not %s: name another place", ErrOtherExport, a.place, d.what, d.have, d.want)
		}
	}
	a.manifest.Through, a.manifest.Read, a.manifest.Pending = have.Through, have.Read, have.Pending
	a.manifest.First, a.manifest.Marks, a.manifest.Removing = have.First, have.Marks, have.Removing
	a.manifest.Months, a.manifest.Compacting = have.Months, have.Compacting
	if want.Broker.IsZero() {
		a.manifest.Broker = have.Broker
	}
	return nil
}

// recover finds out from the manifest and the file names which spans are complete. Spans are stored in order, so only
// the last one can be partial, except for spans made by a compaction.
func (a *archive) recover(list []stored) error {
	m := &a.manifest
	found := map[span][]string{}
	if m.Pending != (span{}) {
		found[m.Pending] = nil
		m.Pending = span{}
	}
	for _, f := range list {
		if s, ok := spanOf(f.name, m.Format); ok && streams.CellOf(s.First) == streams.CellOf(m.Through) {
			found[s] = append(found[s], f.name)
		}
	}
	spans, compacted := outermost(slices.Collect(maps.Keys(found)))
	for i, s := range spans {
		if s.Last <= m.Through {
			continue
		}
		if s.First <= m.Through {
			return fmt.Errorf("%w: in %s, files from %d to %d overlap those through %d: name another place", ErrOtherExport, a.place, s.First, s.Last, m.Through)
		}
		if i < len(spans)-1 || compacted[s] {
			m.Through = s.Last
			continue
		}
		m.Through, m.Pending = s.First-1, s
		for _, name := range found[s] {
			a.there[name] = true
		}
	}
	return nil
}

// save stores the manifest.
func (a *archive) save(ctx context.Context) error {
	data, err := json.Marshal(&a.manifest)
	if err != nil {
		return err
	}
	return a.place.save(ctx, append(data, '\n'))
}

// note adds the marks of the first and last event of a span that is about to be stored.
func (a *archive) note(first, last events.Mark) {
	if a.manifest.Through == streams.PlaceOf(a.cell(), 0) {
		a.manifest.First = first
	}
	if last.Position > a.manifest.Marks.Last() {
		a.manifest.Marks = a.manifest.Marks.With(last)
	}
}

// store stores the rows of a span. It returns the number of new rows and files: an existing file already has the same
// rows.
func (a *archive) store(ctx context.Context, s span, parts map[partition][]Row) (rows, files int, err error) {
	a.manifest.Pending = s
	if err := a.save(ctx); err != nil {
		return 0, 0, err
	}
	var list []file
	for _, p := range slices.SortedFunc(maps.Keys(parts), comparePartitions) {
		f := file{s.name(p, a.manifest.Format), func(w io.Writer) error { return a.manifest.Format.write(w, parts[p]) }}
		if !a.there[f.name] {
			list = append(list, f)
			rows += len(parts[p])
		}
	}
	if err := a.place.add(ctx, list); err != nil {
		return 0, 0, err
	}
	a.manifest.Through, a.manifest.Pending, a.there = s.Last, span{}, nil
	return rows, len(list), a.save(ctx)
}

// partPattern matches file names of any format.
const partPattern = "*=*/source=*/part-*"

// Prefixes of folder names.
const (
	monthFolder = "month="
	dayFolder   = "date="
)

// partName matches a file name.
var partName = regexp.MustCompile(`^part-(\d{20})-(\d{20})(\..*)$`)

// name returns the name of the file with the rows of a partition.
func (s span) name(p partition, f Format) string {
	return p.folder + "/source=" + pathValue(p.source) + "/" + s.fileName(f)
}

// fileName returns the name of a file in its folder.
func (s span) fileName(f Format) string {
	return fmt.Sprintf("part-%020d-%020d%s", s.First, s.Last, f.extension())
}

// has reports whether s contains all sequences of o.
func (s span) has(o span) bool { return s.First <= o.First && o.Last <= s.Last }

// compareSpans orders a span before those it contains.
func compareSpans(a, b span) int {
	return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(b.Last, a.Last))
}

// outermost returns the spans that no other span contains, in order, and which of them contain others.
func outermost(spans []span) (list []span, made map[span]bool) {
	made = map[span]bool{}
	slices.SortFunc(spans, compareSpans)
	for _, s := range spans {
		if n := len(list); n > 0 && list[n-1].has(s) {
			made[list[n-1]] = true
			continue
		}
		list = append(list, s)
	}
	return list, made
}

// spanOf returns the span of a file of a format.
func spanOf(name string, f Format) (span, bool) {
	m := partName.FindStringSubmatch(path.Base(name))
	if m == nil || m[3] != f.extension() {
		return span{}, false
	}
	first, err1 := strconv.ParseUint(m[1], 10, 64)
	last, err2 := strconv.ParseUint(m[2], 10, 64)
	return span{first, last}, errors.Join(err1, err2) == nil && 0 < first && first <= last
}

// partition is the folder and source of a row.
type partition struct{ folder, source string }

// partition returns the partition of a row.
func (a *archive) partition(r *Row) partition {
	date := r.Date.String()
	if a.manifest.Months {
		return partition{monthFolder + date[:len("2006-01")], r.Source}
	}
	return partition{dayFolder + date, r.Source}
}

func comparePartitions(a, b partition) int {
	return cmp.Or(strings.Compare(a.folder, b.folder), strings.Compare(a.source, b.source))
}

// pathValue escapes bytes of a partition value that are not safe in names, as Hive does.
func pathValue(s string) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if c == '_' || c == '-' || c == '.' && i > 0 || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
