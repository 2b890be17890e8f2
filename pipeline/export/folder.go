package export

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
)

// Names in the folder of an export. Readers of partitioned files skip names that begin with _.
const (
	controlDir   = "_export"
	manifestName = "manifest.json"
	temporaryDir = "tmp"
)

// ErrOtherExport means that a folder holds an export of something else.
var ErrOtherExport = errors.New("folder holds another export")

// manifest says what a folder holds, and how far it goes.
type manifest struct {
	Generation string    `json:"generation"`
	Created    time.Time `json:"stream_created"` // when the events stream was created
	Format     Format    `json:"format"`
	Raw        bool      `json:"raw"`
	Through    uint64    `json:"through"` // sequence of the last event that is in a file
}

// span is a range of sequences of the events stream, both ends included.
type span struct{ first, last uint64 }

// folder is the folder of an export. Files appear in it whole: they are written elsewhere, synced and
// renamed. The manifest follows when all files of a span are there.
type folder struct {
	dir      string
	manifest manifest
	pending  span // whose files are there only in part; zero for none
}

// openFolder opens the folder of an export, which is made if it does not exist.
func openFolder(dir string, want manifest) (*folder, error) {
	f := &folder{dir: dir, manifest: want}
	tmp := filepath.Join(dir, controlDir, temporaryDir)
	if err := errors.Join(os.RemoveAll(tmp), os.MkdirAll(tmp, 0o700)); err != nil {
		return nil, err
	}
	spans, err := f.spans()
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(filepath.Join(dir, controlDir, manifestName))
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	default:
		if err := f.load(data); err != nil {
			return nil, err
		}
	}
	if err := f.recover(spans); err != nil {
		return nil, err
	}
	return f, f.save()
}

// load takes over how far a manifest goes, if it belongs to the same export.
func (f *folder) load(data []byte) error {
	var have manifest
	if err := json.Unmarshal(data, &have); err != nil {
		return fmt.Errorf("%s: not a manifest: remove it, and it is made again of the names of the files", filepath.Join(f.dir, controlDir, manifestName))
	}
	want := f.manifest
	for _, d := range []struct{ what, have, want string }{
		{"generation", have.Generation, want.Generation},
		{"format", string(have.Format), string(want.Format)},
		{"raw", strconv.FormatBool(have.Raw), strconv.FormatBool(want.Raw)},
		{"stream created", have.Created.UTC().Format(time.RFC3339Nano), want.Created.UTC().Format(time.RFC3339Nano)},
	} {
		if d.have != d.want {
			return fmt.Errorf("%w: %s has %s %s, not %s: name a new folder", ErrOtherExport, f.dir, d.what, d.have, d.want)
		}
	}
	f.manifest.Through = have.Through
	return nil
}

// recover finds out from the names of the files which spans are complete. Spans are stored one after the
// other, so only the last one can be there in part.
func (f *folder) recover(spans []span) error {
	for i, s := range spans {
		if s.last <= f.manifest.Through {
			continue
		}
		if s.first <= f.manifest.Through {
			return fmt.Errorf("%w: in %s, files from %d to %d overlap those through %d: name a new folder", ErrOtherExport, f.dir, s.first, s.last, f.manifest.Through)
		}
		if i == len(spans)-1 {
			f.pending = s
			f.manifest.Through = s.first - 1
			break
		}
		f.manifest.Through = s.last
	}
	return nil
}

// partName matches the name of a file.
var partName = regexp.MustCompile(`^part-(\d{20})-(\d{20})\.`)

// spans returns the spans of the files, in their order.
func (f *folder) spans() ([]span, error) {
	names, err := filepath.Glob(filepath.Join(f.dir, "date=*", "source=*", "part-*"+f.manifest.Format.extension()))
	if err != nil {
		return nil, err
	}
	found := map[span]bool{}
	for _, name := range names {
		m := partName.FindStringSubmatch(filepath.Base(name))
		if m == nil {
			continue
		}
		first, err1 := strconv.ParseUint(m[1], 10, 64)
		last, err2 := strconv.ParseUint(m[2], 10, 64)
		if err := errors.Join(err1, err2); err != nil || first > last {
			continue
		}
		found[span{first, last}] = true
	}
	var out []span
	for s := range found {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	return out, nil
}

// save stores the manifest.
func (f *folder) save() error {
	data, err := json.Marshal(&f.manifest)
	if err != nil {
		return err
	}
	tmp := f.temporary(manifestName)
	if err := writeFile(tmp, func(file *os.File) error {
		_, err := file.Write(append(data, '\n'))
		return err
	}); err != nil {
		return err
	}
	return move(tmp, filepath.Join(f.dir, controlDir, manifestName))
}

// temporary is the name of a file that is being written.
func (f *folder) temporary(name string) string {
	return filepath.Join(f.dir, controlDir, temporaryDir, name+".tmp")
}

// store stores the rows of a span: all files are written, then they appear, then the manifest says so.
// A file that is there already is kept: it has the same rows. It returns the number of rows and files
// that are new.
func (f *folder) store(s span, parts map[partition][]Row) (rows, files int, err error) {
	type written struct{ tmp, final string }
	var list []written
	for _, p := range slices.SortedFunc(maps.Keys(parts), comparePartitions) {
		name := fmt.Sprintf("part-%020d-%020d%s", s.first, s.last, f.manifest.Format.extension())
		w := written{f.temporary(strconv.Itoa(len(list))), filepath.Join(f.dir, "date="+p.date, "source="+pathValue(p.source), name)}
		if _, err := os.Stat(w.final); err == nil {
			continue
		}
		if err := writeFile(w.tmp, func(file *os.File) error { return f.manifest.Format.write(file, parts[p]) }); err != nil {
			return 0, 0, err
		}
		rows += len(parts[p])
		list = append(list, w)
	}
	for _, w := range list {
		if err := move(w.tmp, w.final); err != nil {
			return 0, 0, err
		}
	}
	f.manifest.Through, f.pending = s.last, span{}
	return rows, len(list), f.save()
}

// writeFile writes a new file and syncs it.
func writeFile(name string, write func(*os.File) error) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	err = write(file)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// move gives a file its final name, for good.
func move(from, to string) error {
	dir := filepath.Dir(to)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.Rename(from, to); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	_ = d.Sync() // not every file system can; the manifest is synced behind it
	return d.Close()
}

// partition is where rows go.
type partition struct{ date, source string }

func comparePartitions(a, b partition) int {
	return cmp.Or(strings.Compare(a.date, b.date), strings.Compare(a.source, b.source))
}

// pathValue writes the value of a partition as Hive does: bytes that are not safe in names are escaped.
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
