package ship_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tributary/pipeline/ship"
)

func TestGrowingFileIsShippedLineByLine(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.write("garden/one.jsonl", lines(prompt("one", 1)))
	raw := e.tap()
	e.follow()
	raw.expect(prompt("one", 1))
	for n := 2; n <= 20; n++ {
		e.append("garden/one.jsonl", lines(prompt("one", n)))
		raw.expect(prompt("one", n))
	}
}

// A log whose first lines do not show its agent is refused when it is idle, and shipped when it does.
func TestFileThatShowsItsAgentLaterIsShipped(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	raw := e.tap()
	first := `{"type":"latch-of-tomorrow","sessionId":"one"}`
	e.write("garden/one.jsonl", lines(first))
	f := e.follow(func(c *ship.Config) {
		c.Roots, c.Paths, c.Idle = nil, []string{e.path("garden/one.jsonl")}, 50*time.Millisecond
	})
	f.until("the log is refused", func(s ship.Summary) bool { return s.Refused[ship.ReasonUnknownSource] == 1 })
	e.append("garden/one.jsonl", lines(first))
	e.append("garden/one.jsonl", lines(prompt("one", 1)))
	raw.expect(first, first, prompt("one", 1))
	f.stop()
}

// The interval of the search is longer than the test: only notifications can find changes.
func TestGrowthIsNotifiedWithoutASearch(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("changes are not notified on this system")
	}
	e := newEdge(t)
	e.write("garden/one.jsonl", lines(prompt("one", 1)))
	raw := e.tap()
	e.follow(func(c *ship.Config) { c.Rescan = time.Hour })
	raw.expect(prompt("one", 1))
	e.append("garden/one.jsonl", lines(prompt("one", 2)))
	raw.expect(prompt("one", 2))
	e.write("garden/two.jsonl", lines(prompt("two", 1)))
	raw.expect(prompt("two", 1))
	e.mkdir("orchard/deep")
	e.write("orchard/deep/three.jsonl", lines(prompt("three", 1)))
	raw.expect(prompt("three", 1))
	e.append("orchard/deep/three.jsonl", lines(prompt("three", 2)))
	raw.expect(prompt("three", 2))
	// Also what is written while the file is being read.
	for n := 3; n <= 1000; n++ {
		e.append("orchard/deep/three.jsonl", lines(prompt("three", n)))
	}
	raw.expect(prompts("three", 3, 1000)...)
}

func TestPartialLineWaitsForItsRest(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	raw := e.tap()
	e.write("garden/one.jsonl", lines(prompt("one", 1)))
	e.write("garden/two.jsonl", "")
	e.follow(func(c *ship.Config) { c.Parallel = 1 })
	raw.expect(prompt("one", 1))
	for n := 2; n <= 5; n++ {
		half := strings.Replace(prompt("one", n), "water", "gieße 🌱", 1)
		cut := strings.Index(half, "🌱") + n - 2 // before and within the letter
		e.append("garden/one.jsonl", half[:cut])
		// With one worker the half line was read before the other file is shipped.
		e.append("garden/two.jsonl", lines(prompt("two", n)))
		raw.expect(prompt("two", n))
		e.append("garden/one.jsonl", half[cut:]+"\n")
		raw.expect(half)
	}
}

func TestFileOverwrittenByAShorterOneIsShippedFromItsStart(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	raw := e.tap()
	e.write("garden/one.jsonl", lines(prompts("one", 1, 3)...))
	e.follow()
	raw.expect(prompts("one", 1, 3)...)
	e.write("garden/one.jsonl", lines(prompt("fresh", 1)))
	raw.expect("end of one", prompt("fresh", 1))
	e.append("garden/one.jsonl", lines(prompt("fresh", 2)))
	got := raw.expect(prompt("fresh", 2))
	if p := got[0].Origin.Position; p != int64(len(prompt("fresh", 1))+1) {
		t.Errorf("the record has position %d", p)
	}
}

// As a rotation with copytruncate does, after which the log outgrows its old size before the
// next visit.
func TestFileOverwrittenByALongerOneIsShippedFromItsStart(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.write("garden/one.jsonl", lines(prompt("one", 1)))
	e.once()
	e.write("garden/one.jsonl", lines(prompts("fresh", 1, 9)...))
	e.once()
	e.wantStored(append(append([]string{prompt("one", 1), "end of one"}, prompts("fresh", 1, 9)...), "end of fresh")...)
}

// The log never gets shorter.
func TestFollowedFileOverwrittenInPlaceIsShippedFromItsStart(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	raw := e.tap()
	e.write("garden/one.jsonl", lines(prompt("one", 1)))
	e.follow()
	raw.expect(prompt("one", 1))
	f, err := os.OpenFile(e.path("garden/one.jsonl"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte(lines(prompts("fresh", 1, 9)...)), 0); err != nil {
		t.Fatal(err)
	}
	raw.expect(append([]string{"end of one"}, prompts("fresh", 1, 9)...)...)
}

// The folder is moved away and back while its files are being shipped.
func TestFolderMovedAwayAndBackLosesNothing(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	raw := e.tap()
	e.write("garden/one.jsonl", lines(prompt("one", 1)))
	e.follow()
	raw.expect(prompt("one", 1))
	for n := 2; n < 6; n++ {
		e.rename("garden", "../away")
		if n%2 == 0 {
			raw.expect("end of one")
		}
		e.rename("../away", "garden")
		e.append("garden/one.jsonl", lines(prompt("one", n)))
		for got := ""; got != prompt("one", n); {
			if got = brief(raw.next(1))[0]; got != prompt("one", n) && got != "end of one" {
				t.Fatalf("unexpected %s", got)
			}
		}
	}
}

func TestHardLinkIsNotShippedTwice(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.write("garden/one.jsonl", lines(prompt("one", 1)))
	if err := os.Link(e.path("garden/one.jsonl"), e.path("garden/two.jsonl")); err != nil {
		t.Skip(err)
	}
	if got := e.once(); got.Records != 1 {
		t.Errorf("shipped %+v", got)
	}
	e.wantStored(prompt("one", 1), "end of one")
}

func TestReplacedFileIsShippedAsAnotherFile(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	raw := e.tap()
	e.write("garden/one.jsonl", lines(prompt("one", 1)))
	e.follow()
	raw.expect(prompt("one", 1))
	e.write("garden/.new", lines(prompts("other", 1, 2)...))
	e.rename("garden/.new", "garden/one.jsonl")
	// The order in which the two files are visited is undefined.
	got := map[string]bool{}
	for _, r := range brief(raw.next(3)) {
		got[r] = true
	}
	for _, want := range append(prompts("other", 1, 2), "end of one") {
		if !got[want] {
			t.Errorf("not in the raw stream: %s", want)
		}
	}
}

func TestRenamedFileStaysTheSameFile(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	raw := e.tap()
	e.write("garden/one.jsonl", lines(prompt("one", 1)))
	f := e.follow()
	first := raw.expect(prompt("one", 1))
	e.mkdir("orchard")
	e.rename("garden/one.jsonl", "orchard/moved.jsonl")
	e.append("orchard/moved.jsonl", lines(prompt("one", 2)))
	second := raw.expect(prompt("one", 2))
	f.stop()
	e.rename("orchard/moved.jsonl", "orchard/again.jsonl")
	e.append("orchard/again.jsonl", lines(prompt("one", 3)))
	e.follow()
	third := raw.expect(prompt("one", 3))
	for _, r := range []stored{second[0], third[0]} {
		if r.Origin.File != first[0].Origin.File {
			t.Errorf("%s has another file identity", r.Data)
		}
	}
}

// The offsets keep the new path although the file has no new content.
func TestRenamedFileIsNotShippedAgain(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.write("garden/one.jsonl", lines(prompts("one", 1, 3)...))
	e.once()
	e.rename("garden/one.jsonl", "garden/two.jsonl")
	e.once()
	if got := e.once(); got.Records != 0 {
		t.Errorf("%+v was shipped again", got)
	}
	e.wantStored(append(prompts("one", 1, 3), "end of one")...)
}

// An archived log is the same log: only its new records are shipped. An archive that is found has its identity, too, and a
// file that stands beside logs is not shipped.
func TestArchivedLogsAreShipped(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	archives := func(c *ship.Config) {
		c.Roots[0].Archived, c.Roots[0].Beside = []string{".reset.", ".deleted."}, []string{".trace.jsonl"}
	}
	const one, two = "garden/one.jsonl", "garden/two.jsonl.deleted.2026-03-01T04-00-00.000Z"
	e.write(one, lines(prompt("one", 1)))
	e.write(two, lines(prompt("two", 1)))
	e.write("garden/one.trace.jsonl", lines(prompt("trace", 1)))
	e.write("garden/three.jsonl.bak.2026-03-01T04-00-00.000Z", lines(prompt("three", 1)))
	if got := e.once(archives); got.Files != 2 || got.Records != 2 {
		t.Errorf("%d files, %d records", got.Files, got.Records)
	}
	e.rename(one, one+".reset.2026-03-02T04-00-00.000Z")
	e.append(one+".reset.2026-03-02T04-00-00.000Z", lines(prompt("one", 2)))
	e.rename(two, "garden/two.jsonl")
	e.append("garden/two.jsonl", lines(prompt("two", 2)))
	if got := e.once(archives); got.Records != 2 {
		t.Errorf("%d records after the archive", got.Records)
	}
	files := map[string]string{}
	for _, r := range recordsOf(e.all()) {
		if file, known := files[r.Session]; known && file != r.Origin.File {
			t.Errorf("%s has another file identity", r.Data)
		}
		files[r.Session] = r.Origin.File
	}
	if len(files) != 2 {
		t.Errorf("%d sessions", len(files))
	}
	// Without the offsets, the broker knows each record by the identity of its log.
	if got := e.once(archives, func(c *ship.Config) { c.Offsets += ".new" }); got.Files != 2 || len(recordsOf(e.all())) != 4 {
		t.Errorf("%d files, %d records are stored", got.Files, len(recordsOf(e.all())))
	}
}

// Of two logs in a folder the one that has all is shipped, also where the other one was there first. The other one is
// shipped if it is named.
func TestLogThatIsRepeatedInWholeIsNotShipped(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	full := func(c *ship.Config) { c.Roots[0].Full, c.Parallel = "full.jsonl", 1 }
	e.mkdir("both")
	e.write("both/short.jsonl", lines(prompt("short", 1)))
	e.write("both/full.jsonl", lines(prompt("full", 1)))
	e.write("garden/short.jsonl", lines(prompt("garden", 1)))
	if got := e.once(full); got.Files != 2 || got.Records != 2 {
		t.Errorf("%d files, %d records", got.Files, got.Records)
	}
	above := func(c *ship.Config) { c.Paths = []string{filepath.Dir(e.root)} }
	if got := e.once(full, above); got.Records != 0 {
		t.Errorf("%d records below a folder that was named", got.Records)
	}
	if got := e.once(full, func(c *ship.Config) { c.Paths = []string{e.path("both/short.jsonl")} }); got.Records != 1 {
		t.Errorf("%d records of a log that was named", got.Records)
	}
	raw := e.tap()
	raw.next(e.count())
	e.follow(full)
	e.append("garden/short.jsonl", lines(prompt("garden", 2)))
	raw.expect(prompt("garden", 2))
	e.write("garden/full.jsonl", lines(prompt("garden", 3)))
	raw.expect("end of garden", prompt("garden", 3))
	e.append("garden/short.jsonl", lines(prompt("garden", 4)))
	e.append("garden/full.jsonl", lines(prompt("garden", 5)))
	raw.expect(prompt("garden", 5))
}

// The name after the rotation is not that of a log.
func TestRotatedFileIsReadToItsEnd(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	raw := e.tap()
	e.write("garden/one.jsonl", lines(prompt("one", 1)))
	e.follow(func(c *ship.Config) { c.Parallel = 1 })
	raw.expect(prompt("one", 1))
	e.rename("garden/one.jsonl", "garden/one.jsonl.1")
	e.append("garden/one.jsonl.1", lines(prompt("one", 2)))
	raw.expect(prompt("one", 2))
	e.write("garden/one.jsonl", lines(prompt("two", 1)))
	raw.expect(prompt("two", 1))
	e.append("garden/one.jsonl.1", lines(prompt("one", 3)))
	raw.expect(prompt("one", 3))
}

// A file on the inode of a log, whose name is not that of a log and whose content differs,
// is not shipped.
func TestReusedInodeUnderAnotherNameIsNotShipped(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	raw := e.tap()
	e.write("garden/one.jsonl", lines(prompt("one", 1)))
	e.follow(func(c *ship.Config) { c.Parallel = 1 })
	raw.expect(prompt("one", 1))
	for n := 2; n < 6; n++ {
		e.rename("garden/one.jsonl", "garden/notes")
		e.write("garden/notes", lines(prompt("private", n)))
		raw.expect("end of one")
		e.write("garden/one.jsonl", lines(prompt("one", n)))
		raw.expect(prompt("one", n))
	}
}

// The file has no framer when it is rotated.
func TestIdleFileThatGrowsAndIsRotatedIsReadToItsEnd(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	raw := e.tap()
	e.follow(func(c *ship.Config) { c.Idle = 200 * time.Millisecond })
	for n := range 5 {
		session := fmt.Sprintf("s%d", n)
		name := "garden/" + session + ".jsonl"
		e.write(name, lines(prompt(session, 1)))
		raw.expect(prompt(session, 1), "end of "+session)
		e.append(name, lines(prompt(session, 2)))
		e.rename(name, name+".1")
		raw.expect(prompt(session, 2), "end of "+session)
	}
}

func TestDeletedFileEndsItsSessions(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	raw := e.tap()
	e.write("garden/one.jsonl", lines(prompt("one", 1)))
	e.write("garden/two.jsonl", lines(prompt("two", 1)))
	f := e.follow(func(c *ship.Config) { c.Parallel = 1 })
	raw.expect(prompt("one", 1), prompt("two", 1))
	if err := os.Remove(e.path("garden/one.jsonl")); err != nil {
		t.Fatal(err)
	}
	raw.expect("end of one")
	f.stop()
	want := map[string]int64{e.path("garden/two.jsonl"): int64(len(lines(prompt("two", 1))))}
	if diff := cmp.Diff(want, readOffsets(t, e.offsets).done()); diff != "" {
		t.Errorf("offsets (-want +got):\n%s", diff)
	}
}

func TestNewFoldersAreFollowed(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	if err := os.RemoveAll(e.root); err != nil {
		t.Fatal(err)
	}
	raw := e.tap()
	e.follow()
	e.mkdir("garden")
	e.write("garden/one.jsonl", lines(prompt("one", 1)))
	raw.expect(prompt("one", 1))
	e.mkdir("garden/one/subagents")
	e.write("garden/one/subagents/agent-a.jsonl", lines(prompt("one", 2)))
	raw.expect(prompt("one", 2))
	e.append("garden/one.jsonl", lines(prompt("one", 3)))
	raw.expect(prompt("one", 3))
}

func TestIdleFileEndsItsSessionsAndCanGrowAgain(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	raw := e.tap()
	f := e.follow(func(c *ship.Config) { c.Idle = 300 * time.Millisecond })
	e.write("garden/one.jsonl", lines(prompt("one", 1)))
	raw.expect(prompt("one", 1), "end of one")
	e.append("garden/one.jsonl", lines(prompt("one", 2)))
	second := raw.expect(prompt("one", 2), "end of one")
	if second[0].Origin.Previous != 0 {
		t.Errorf("the second record follows position %d", second[0].Origin.Previous)
	}
	f.stop()
	// An end is not sent again.
	e.follow(func(c *ship.Config) { c.Idle = 300 * time.Millisecond })
	e.append("garden/one.jsonl", lines(prompt("one", 3)))
	raw.expect(prompt("one", 3), "end of one")
}

// A last line without an end is a record if it is complete JSON; otherwise it waits.
func TestIdleFileShipsACompleteLastLineWithoutEnd(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	raw := e.tap()
	e.write("garden/one.jsonl", lines(prompt("one", 1))+prompt("one", 2))
	e.write("garden/two.jsonl", lines(prompt("two", 1))+prompt("two", 2)[:30])
	f := e.follow(func(c *ship.Config) { c.Idle, c.Parallel = 300*time.Millisecond, 1 })
	got := map[string]bool{}
	for _, r := range brief(raw.next(5)) {
		got[r] = true
	}
	for _, want := range []string{prompt("one", 1), prompt("one", 2), "end of one", prompt("two", 1), "end of two"} {
		if !got[want] {
			t.Errorf("not in the raw stream: %s", want)
		}
	}
	f.until("the unfinished line waits", func(s ship.Summary) bool { return s.Waiting > 0 })
	e.append("garden/one.jsonl", "\n"+lines(prompt("one", 3)))
	raw.expect(prompt("one", 3), "end of one")
	e.append("garden/two.jsonl", prompt("two", 2)[30:]+"\n")
	raw.expect(prompt("two", 2), "end of two")
}

// Records that state no session belong to the next session that the file states, or, when
// the file is idle, to the session that the file is named after.
func TestIdleFileTakesTheSessionFromItsName(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	raw := e.tap()
	summary := `{"type":"summary","summary":"Watering","leafUuid":"l1"}`
	e.write("garden/named.jsonl", lines(summary))
	e.follow(func(c *ship.Config) { c.Idle = 300 * time.Millisecond })
	got := raw.expect(summary, "end of named")
	if got[0].Session != "named" {
		t.Errorf("the record has session %s", got[0].Session)
	}
}

func TestUnreadableFileIsReportedOnceAndShippedWhenItCanBeRead(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	raw := e.tap()
	e.unreadable("garden/one.jsonl")
	f := e.follow()
	f.until("the file is reported", func(s ship.Summary) bool { return s.Refused[ship.ReasonUnreadable] == 1 })
	e.write("garden/two.jsonl", lines(prompt("two", 1)))
	raw.expect(prompt("two", 1))
	e.write("garden/.new", lines(prompt("one", 1)))
	e.rename("garden/.new", "garden/one.jsonl")
	raw.expect(prompt("one", 1))
	if got := f.ship.Summary().Refused[ship.ReasonUnreadable]; got != 1 {
		t.Errorf("reported %d times", got)
	}
}

func TestFileIsShippedWhenItsPermissionsAllow(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("root reads everything")
	}
	e := newEdge(t)
	raw := e.tap()
	e.write("garden/one.jsonl", lines(prompt("one", 1)))
	if err := os.Chmod(e.path("garden/one.jsonl"), 0); err != nil {
		t.Fatal(err)
	}
	f := e.follow()
	f.until("the file is reported", func(s ship.Summary) bool { return s.Refused[ship.ReasonUnreadable] == 1 })
	if err := os.Chmod(e.path("garden/one.jsonl"), 0o600); err != nil {
		t.Fatal(err)
	}
	raw.expect(prompt("one", 1))
}

// With Since an old file is skipped until it is written to, and then shipped whole.
func TestOldFileIsShippedWholeWhenItGrows(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	raw := e.tap()
	e.write("garden/old.jsonl", lines(prompt("old", 1)))
	e.aged("garden/old.jsonl")
	e.write("garden/new.jsonl", lines(prompt("new", 1)))
	e.follow(func(c *ship.Config) { c.Since = time.Now().Add(-time.Hour) })
	raw.expect(prompt("new", 1))
	e.append("garden/old.jsonl", lines(prompt("old", 2)))
	raw.expect(prompt("old", 1), prompt("old", 2))
}

func TestNamedFileIsFollowed(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	raw := e.tap()
	path := filepath.Join(t.TempDir(), "session log")
	if err := os.WriteFile(path, []byte(lines(prompt("one", 1))), 0o600); err != nil {
		t.Fatal(err)
	}
	e.follow(func(c *ship.Config) { c.Paths = []string{path} })
	raw.expect(prompt("one", 1))
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(lines(prompt("one", 2))); err != nil {
		t.Fatal(err)
	}
	raw.expect(prompt("one", 2))
}

func TestManyFilesKeepNoDescriptorsOpen(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("counts descriptors in /proc")
	}
	e := newEdge(t)
	files := 3000
	if testing.Short() {
		files = 300 // the race detector sees nothing new in many
	}
	for n := range files {
		dir := fmt.Sprintf("project-%d", n%20)
		e.mkdir(dir)
		e.write(fmt.Sprintf("%s/s%d.jsonl", dir, n), lines(prompt(fmt.Sprintf("s%d", n), 1)))
	}
	raw := e.tap()
	f := e.follow(func(c *ship.Config) { c.Rescan = time.Second })
	raw.next(files)
	f.until("nothing waits", func(s ship.Summary) bool { return s.Records == files })
	raw2 := e.count()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	logs := 0
	for _, fd := range open {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(to, e.root) {
			logs++
		}
	}
	if logs > 16 {
		t.Errorf("%d logs are open after %d records", logs, raw2)
	}
	e.append("project-7/s7.jsonl", lines(prompt("s7", 2)))
	raw.expect(prompt("s7", 2))
}
