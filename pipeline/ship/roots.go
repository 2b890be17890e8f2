package ship

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/pipeline/ship/database"
)

// Root is a folder in which a vendor keeps its logs, at any depth.
type Root struct {
	Source   envelopes.Source
	Dir      string   // absolute
	Prefix   string   // of log names; other files are ignored
	Suffixes []string // suffixes of log names, packed or not; other files are ignored
	Within   string   // folder that logs lie in, at any depth below Dir; empty for all folders
	// Archived is what the vendor adds to the name of a log that it archives, up to a time: the name before it is the
	// identity of the log.
	Archived []string
	Beside   []string // suffixes of files that end like logs and are none
	Full     string   // name of the log that has all of every other log in its folder; empty for none
	// Moved is set if the vendor moves logs between folders and gives each a unique name: the name alone is then the
	// identity of a log.
	Moved bool
	Flat  bool // logs lie in Dir itself, not in folders below it
}

// Roots returns where the vendors keep their logs on this machine. home is the home of the user; getenv looks up the
// variables by which vendors let users change folders. The folders need not exist.
func Roots(home string, getenv func(string) string) []Root {
	var roots []Root
	for _, v := range normalizers.Vendors() {
		if len(v.Logs.Folders) == 0 {
			continue
		}
		homes := strings.FieldsFunc(getenv(v.Logs.Env), func(r rune) bool { return r == ',' })
		if len(homes) == 0 {
			homes = []string{filepath.Join(home, filepath.FromSlash(v.Logs.Home))}
		}
		for _, folder := range v.Logs.Folders {
			for _, home := range homes {
				if home = strings.TrimSpace(home); home == "" {
					continue
				}
				for _, dir := range folder.Dirs() {
					dir = filepath.Join(home, filepath.FromSlash(dir))
					roots = append(roots, Root{
						Source: v.Source, Dir: dir, Prefix: folder.Prefix, Suffixes: folder.Suffixes, Within: folder.Within,
						Archived: folder.Archived, Beside: folder.Beside, Full: folder.Full, Moved: folder.Moved,
					})
				}
			}
		}
	}
	return append(roots, databaseRoots(home, getenv)...)
}

// databaseRoots returns where the vendors keep their databases.
func databaseRoots(home string, getenv func(string) string) (roots []Root) {
	for _, v := range normalizers.Vendors() {
		if v.Database == nil {
			continue
		}
		set := ""
		if v.Database.Env != "" {
			set = getenv(v.Database.Env)
		}
		for _, folder := range v.Database.Folders {
			r := Root{Source: v.Source, Dir: filepath.Join(home, filepath.FromSlash(folder)), Suffixes: v.Database.Names, Flat: true}
			if set != "" {
				path := filepath.Join(set, filepath.FromSlash(v.Database.Below))
				if !filepath.IsAbs(path) {
					path = filepath.Join(r.Dir, path)
				}
				r.Dir, r.Suffixes = filepath.Dir(path), []string{filepath.Base(path)}
			}
			roots = append(roots, r)
			if filepath.IsAbs(set) || set != "" && v.Database.Below != "" {
				break
			}
		}
	}
	return roots
}

// log is a file to ship, as found by a search.
type log struct {
	path   string // absolute, without symbolic links in its folders
	origin string // identity for the stage: path below the root with '/', else the file's name; without the extension of a packed file
	source envelopes.Source
	forced bool // the user named the source; content does not decide
	info   fs.FileInfo
	stamp  database.Stamp // of a database; otherwise zero

	strayed bool // found by its inode alone, under a name that no log has
}

// setInfo sets what the file system states about the log.
func (l *log) setInfo(info fs.FileInfo) {
	l.info = info
	if database.Is(l.path) {
		l.stamp, _ = database.StampOf(l.path) // a visit reports the error
	}
}

// finder finds logs.
type finder struct {
	config Config

	logs   []log
	dirs   map[string]time.Time // every folder searched and when it had last changed; zero for the folder of a path
	failed []Refusal
	hidden []string // hidden folders below the paths, which were skipped
}

// find lists the logs that c asks for, in the order of their paths, and the folders in which new logs may appear.
// failed lists files and folders that cannot be read. The error names the paths of c that do not exist.
func find(c Config) (finder, error) {
	f := finder{config: c, dirs: map[string]time.Time{}}
	for i := range f.config.Roots {
		f.config.Roots[i].Dir = resolve(f.config.Roots[i].Dir)
	}
	if len(c.Paths) == 0 {
		for _, r := range f.config.Roots {
			if c.Source == "" || c.Source == r.Source {
				f.walk(r.Dir)
			}
		}
	}
	var missing error
	for _, path := range c.Paths {
		path = resolve(path)
		info, err := os.Stat(path)
		switch {
		case err != nil:
			missing = errors.Join(missing, fmt.Errorf("find logs: %w", err))
		case info.IsDir():
			f.walk(path)
		case !info.Mode().IsRegular():
			f.failed = append(f.failed, unreadable(path, errors.New("not a regular file")))
		default:
			if _, ok := f.dirs[filepath.Dir(path)]; !ok {
				f.dirs[filepath.Dir(path)] = time.Time{} // other files in it do not matter
			}
			f.add(path, info)
		}
	}
	slices.SortStableFunc(f.logs, func(a, b log) int { return cmp.Compare(a.path, b.path) })
	f.logs = slices.CompactFunc(f.logs, func(a, b log) bool { return a.path == b.path })
	return f, missing
}

// walk adds the logs below a folder. It skips hidden files and folders, see skipHidden, but not a folder that the agent
// hides and keeps its logs in, and does not follow a link to a folder, which may lead back.
func (f *finder) walk(dir string) {
	root := f.place(filepath.Join(dir, "any"))
	roots := []Root{root}
	for _, r := range f.config.Roots { // an agent may keep databases below the folder of its logs
		if r.Dir == root.Dir && r.Source == root.Source && !r.Flat {
			roots = append(roots, r)
		}
	}
	// The callback handles every error: the walk has none of its own.
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case path == dir && errors.Is(err, fs.ErrNotExist):
			return nil // roots may be missing
		case err != nil:
			f.failed = append(f.failed, unreadable(path, err))
			return nil
		case path != dir && strings.HasPrefix(d.Name(), ".") && d.Name() != f.place(path).Within:
			if d.IsDir() {
				f.skipHidden(path, root)
				return fs.SkipDir
			}
			return nil
		case d.IsDir() && root.Flat && path != dir:
			return fs.SkipDir
		case d.IsDir():
			f.dirs[path] = time.Time{}
			if info, err := d.Info(); err == nil { // read before the folder is
				f.dirs[path] = info.ModTime()
			}
			return nil
		case !slices.ContainsFunc(roots, func(r Root) bool { return r.holds(path) }) || f.place(path).isRepeated(path):
			return nil
		}
		info, err := os.Stat(path) // follows a link to a file
		if err == nil {
			f.add(path, info)
		} else if !errors.Is(err, fs.ErrNotExist) {
			f.failed = append(f.failed, unreadable(path, err))
		}
		return nil
	})
}

// skipHidden skips a hidden folder, except for one that an agent keeps its logs in, and for the logs of an agent's home
// below it. Those are logs of a copied home, and have the same identity as in the home itself.
func (f *finder) skipHidden(path string, within Root) {
	if within.Dir != "" {
		return // an agent's own folder
	}
	found := false
	for _, r := range Roots(filepath.Dir(path), func(string) string { return "" }) {
		below, err := filepath.Rel(path, r.Dir)
		if info, statErr := os.Stat(r.Dir); err != nil || !filepath.IsLocal(below) || statErr != nil || !info.IsDir() {
			continue
		}
		if found = true; !slices.ContainsFunc(f.config.Roots, func(have Root) bool { return have.Dir == r.Dir }) {
			f.config.Roots = append(slices.Clip(f.config.Roots), r)
		}
		f.walk(r.Dir)
	}
	switch {
	case found:
	case slices.ContainsFunc(f.config.Roots, func(r Root) bool { return r.Within == filepath.Base(path) }):
		f.walk(path)
	default:
		f.hidden = append(f.hidden, path)
	}
}

// add adds a file, unless it is not regular or too old.
func (f *finder) add(path string, info fs.FileInfo) {
	if !info.Mode().IsRegular() || info.ModTime().Before(f.config.Since) {
		return
	}
	root := f.place(path)
	l := log{path: path, origin: root.origin(path), source: root.Source}
	l.setInfo(info)
	if f.config.Source != "" {
		l.source, l.forced = f.config.Source, true
	}
	f.logs = append(f.logs, l)
}

// place returns the root that contains a path, of several in one folder that of such a log; the zero Root for none. It
// gives a file the same identity whatever path names it.
func (f *finder) place(path string) (first Root) {
	for _, r := range f.config.Roots {
		if first.Dir != "" && (r.Dir != first.Dir || r.Source != first.Source) {
			continue
		}
		if below, err := filepath.Rel(r.Dir, path); err == nil && filepath.IsLocal(below) {
			if r.holds(path) {
				return r
			}
			if first.Dir == "" {
				first = r
			}
		}
	}
	return first
}

// holds reports whether the file at a path below the root is a log.
func (r Root) holds(path string) bool {
	name := r.live(path)
	ends := func(suffix string) bool { return strings.HasSuffix(name, suffix) }
	if len(r.Suffixes) > 0 && !slices.ContainsFunc(r.Suffixes, ends) || slices.ContainsFunc(r.Beside, ends) {
		return false
	}
	if !strings.HasPrefix(filepath.Base(name), r.Prefix) {
		return false
	}
	if r.Within == "" {
		return true
	}
	below, err := filepath.Rel(r.Dir, path)
	return err == nil && slices.Contains(strings.Split(filepath.Dir(below), string(filepath.Separator)), r.Within)
}

// isRepeated reports whether another log in the folder of a log has all of it.
func (r Root) isRepeated(path string) bool {
	if r.Full == "" || filepath.Base(r.live(path)) == r.Full {
		return false
	}
	_, err := os.Stat(filepath.Join(filepath.Dir(path), r.Full))
	return err == nil
}

// live returns the path that a log had before it was packed or archived.
func (r Root) live(path string) string {
	path = normalizers.Unpacked(path)
	for _, suffix := range r.Suffixes {
		for _, archived := range r.Archived {
			if i := strings.LastIndex(path, suffix+archived); i >= 0 {
				return path[:i+len(suffix)]
			}
		}
	}
	return path
}

// origin returns the path of a log below its root, or its name if that is its identity.
func (r Root) origin(path string) string {
	path = r.live(path)
	if below, err := filepath.Rel(r.Dir, path); err == nil && r.Dir != "" && !r.Moved {
		return text(filepath.ToSlash(below))
	}
	return text(filepath.Base(path))
}

// text makes the name of a file valid UTF-8.
func text(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

// resolve makes a path absolute and removes symbolic links, as far as the path exists.
func resolve(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	return path
}
