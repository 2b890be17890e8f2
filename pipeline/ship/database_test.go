package ship_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tributary/envelopes"
	"tributary/pipeline/ship"
	"tributary/pipeline/ship/database"
)

var databaseKills = flag.Int("database.kills", 3, "how often ship is killed while another process writes a database")

// ofDatabase makes a Ship read a database in a folder of OpenCode.
func ofDatabase(path string) func(*ship.Config) {
	return func(c *ship.Config) { c.Roots = []ship.Root{databaseRoot(path)} }
}

// databaseRoot returns the root of a database of OpenCode.
func databaseRoot(path string) ship.Root {
	return ship.Root{Source: envelopes.OpenCode, Dir: filepath.Dir(path), Suffixes: []string{filepath.Base(path)}, Flat: true}
}

// rowsOf returns the rows of a table among records.
func rowsOf(all []stored, table string) []string {
	var rows []string
	for _, r := range recordsOf(all) {
		if strings.HasPrefix(string(r.Data), `{"table":"`+table+`"`) {
			rows = append(rows, string(r.Data))
		}
	}
	return rows
}

// A row is a record: once, and again when it has changed. Nothing else of the database is read, nothing is changed
// in its folder.
func TestRowsOfADatabaseAreShippedOnceAndAgainWhenTheyChange(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"wal", "delete"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			e, path := newEdge(t), garden(t)
			w := writeDatabase(t, path, mode)
			w.exec(openCodeSchema, insertSession("ses_1"), insertMessage("ses_1", "msg_ses_1"), insertPart("ses_1", "1", "one"), insertPart("ses_1", "2", ""))
			raw := e.tap()
			f := e.follow(ofDatabase(path))
			got := raw.next(4)
			want := []string{partRow("ses_1", "1", "one"), partRow("ses_1", "2", "")}
			if diff := cmp.Diff(want, rowsOf(got, "part")); diff != "" {
				t.Fatalf("parts (-want +got):\n%s", diff)
			}
			for _, r := range got {
				if r.Source != envelopes.OpenCode || r.Session != "ses_1" || r.Origin.Digest == "" || r.Origin.File == "" {
					t.Errorf("record of %s of %s, origin %+v", r.Session, r.Source, r.Origin)
				}
			}
			w.exec(`UPDATE part SET data = '{"type":"text","text":"two"}', time_updated = 1780000003000 WHERE id = 'prt_2'`)
			raw.expect(partRow("ses_1", "2", "two"))
			w.exec(`UPDATE part SET data = '{"type":"text","text":"TWO"}' WHERE id = 'prt_2'`, insertPart("ses_1", "3", "three"))
			raw.expect(partRow("ses_1", "2", "TWO"), partRow("ses_1", "3", "three"))
			f.stop()
			w.exec(`UPDATE session SET time_updated = time_updated + 1`, `UPDATE account SET access_token = 'another token-of-ada'`, insertPart("ses_1", "4", "four"))
			e.once(ofDatabase(path))
			raw.expect(partRow("ses_1", "4", "four"), "end of ses_1")
			w.end()
			before := files(t, filepath.Dir(path))
			if sum := e.once(ofDatabase(path)); sum.Records != 0 || len(sum.Refused) > 0 {
				t.Errorf("nothing has changed, but %+v", sum)
			}
			if err := os.Remove(e.offsets); err != nil {
				t.Fatal(err)
			}
			if sum := e.once(ofDatabase(path)); sum.Records != 6 || sum.Duplicates != 6 {
				t.Errorf("without offsets: %+v", sum)
			}
			if diff := cmp.Diff(before, files(t, filepath.Dir(path))); diff != "" {
				t.Errorf("the folder of the database has changed:\n%s", diff)
			}
			for _, r := range e.all() {
				if bytes.Contains(r.Data, []byte("token-of-ada")) {
					t.Errorf("a token was sent: %s", r.Data)
				}
			}
		})
	}
}

// Neither a checkpoint, VACUUM, a deleted row, nor another file with the same rows sends a row again.
func TestRowsAreKnownInARewrittenDatabase(t *testing.T) {
	t.Parallel()
	e, path := newEdge(t), garden(t)
	w := writeDatabase(t, path, "wal")
	w.exec(openCodeSchema, insertSession("ses_1"), insertMessage("ses_1", "msg_ses_1"))
	for n := range 300 {
		w.exec(insertPart("ses_1", fmt.Sprintf("%03d", n), strings.Repeat("x", n)))
	}
	f := e.follow(ofDatabase(path))
	f.until("all rows are stored", func(s ship.Summary) bool { return s.Records == 302 })
	w.exec(`DELETE FROM part WHERE rowid % 3 = 0`)
	w.exec(`PRAGMA wal_checkpoint(TRUNCATE)`)
	w.exec(`VACUUM`)
	w.exec(insertPart("ses_1", "new", "a new one"))
	f.until("the new row is stored", func(s ship.Summary) bool { return s.Records == 303 })
	f.stop()
	w.exec(`VACUUM INTO '` + path + `.copy'`)
	w.exec(insertPart("ses_1", "lost", "only in the old file"))
	w.end()
	for _, end := range []string{"-wal", "-shm"} {
		if err := os.Remove(path + end); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	if err := os.Rename(path+".copy", path); err != nil {
		t.Fatal(err)
	}
	again := writeDatabase(t, path, "wal")
	again.exec(insertPart("ses_1", "newer", "a newer one"))
	if sum := e.once(ofDatabase(path)); sum.Records != 1 {
		t.Errorf("shipped %+v", sum)
	}
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	if sum := e.once(ofDatabase(path)); sum.Records != 0 || len(sum.Refused) != 0 {
		t.Errorf("without the database: %+v", sum)
	}
}

// What keeps a database from being read has a name, and nothing is lost by it.
func TestDatabaseThatCannotBeReadIsNamed(t *testing.T) {
	ship.SetLockPatience(t, 300*time.Millisecond)
	trouble := func(t *testing.T, f *following, reason ship.Reason) {
		t.Helper()
		f.until("it is reported as "+string(reason), func(s ship.Summary) bool { return s.Refused[reason] > 0 && s.Trouble != nil })
	}
	over := func(records int) func(ship.Summary) bool {
		return func(s ship.Summary) bool { return s.Records == records && s.Trouble == nil }
	}
	t.Run("locked", func(t *testing.T) {
		e, path := newEdge(t), garden(t)
		w := writeDatabase(t, path, "delete")
		w.exec(openCodeSchema, insertSession("ses_1"))
		// More than its cache holds, so it writes into the file before it commits.
		w.exec(`PRAGMA cache_size = 1`, `BEGIN`, insertMessage("ses_1", "msg_ses_1"))
		const parts = 20
		for n := range parts {
			w.exec(insertPart("ses_1", strconv.Itoa(n), strings.Repeat("water ", 2000)))
		}
		f := e.follow(ofDatabase(path))
		trouble(t, f, ship.ReasonLocked)
		w.exec(`COMMIT`)
		f.until("all rows are stored", over(2+parts))
	})
	t.Run("migrated behind a lock", func(t *testing.T) {
		e, path := newEdge(t), garden(t)
		w := writeDatabase(t, path, "delete")
		w.exec(openCodeSchema, insertSession("ses_1"))
		w.exec(`PRAGMA cache_size = 1`, `BEGIN`, insertMessage("ses_1", "msg_ses_1"))
		for n := range 20 {
			w.exec(insertPart("ses_1", strconv.Itoa(n), strings.Repeat("water ", 2000)))
		}
		w.exec(`ALTER TABLE part RENAME TO part_old`)
		f := e.follow(ofDatabase(path))
		trouble(t, f, ship.ReasonLocked)
		w.exec(`COMMIT`)
		trouble(t, f, ship.ReasonUnknownSchema)
	})
	t.Run("migrated", func(t *testing.T) {
		e, path := newEdge(t), garden(t)
		w := writeDatabase(t, path, "wal")
		w.exec(openCodeSchema, insertSession("ses_1"), insertMessage("ses_1", "msg_ses_1"), insertPart("ses_1", "1", "one"))
		f := e.follow(ofDatabase(path))
		f.until("the rows are stored", over(3))
		w.exec(`ALTER TABLE part RENAME TO part_old`, insertMessage("ses_1", "msg_2"))
		trouble(t, f, ship.ReasonUnknownSchema)
		w.exec(`CREATE TABLE part AS SELECT * FROM part_old`, insertPart("ses_1", "2", "two"))
		f.until("the new rows are stored", over(5))
	})
	t.Run("damaged", func(t *testing.T) {
		e, path := newEdge(t), garden(t)
		w := writeDatabase(t, path, "wal")
		w.exec(openCodeSchema, insertSession("ses_1"), insertMessage("ses_1", "msg_ses_1"))
		for n := range 200 {
			w.exec(insertPart("ses_1", fmt.Sprintf("%03d", n), strings.Repeat("x", 500)))
		}
		w.end()
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		broken := bytes.Clone(whole)
		for at := 4096 * 3; at < len(broken); at++ {
			broken[at] ^= 0x5a
		}
		if err := os.WriteFile(path, broken, 0o600); err != nil {
			t.Fatal(err)
		}
		f := e.follow(ofDatabase(path))
		trouble(t, f, ship.ReasonDamaged)
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		f.until("all rows are stored", over(202))
	})
	t.Run("foreign", func(t *testing.T) {
		e, path := newEdge(t), garden(t)
		w := writeDatabase(t, path, "wal")
		w.exec(`CREATE TABLE bookmarks (id text PRIMARY KEY, url text)`)
		sum := e.once(func(c *ship.Config) { c.Roots, c.Paths = nil, []string{path} })
		if sum.Refused[ship.ReasonUnknownSource] != 1 || sum.Records != 0 {
			t.Errorf("shipped %+v", sum)
		}
		if err := os.WriteFile(path+".db", []byte("no database at all"), 0o600); err != nil {
			t.Fatal(err)
		}
		sum = e.once(func(c *ship.Config) { c.Roots, c.Paths = nil, []string{path + ".db"} })
		if sum.Refused[ship.ReasonUnknownSource] != 1 || sum.Records != 0 {
			t.Errorf("shipped %+v", sum)
		}
	})
}

// A write-ahead log without its index is read from a copy.
func TestDatabaseWithoutTheIndexOfItsLogIsReadFromACopy(t *testing.T) {
	t.Parallel()
	e, path := newEdge(t), garden(t)
	w := writeDatabase(t, path, "wal")
	w.exec(openCodeSchema, insertSession("ses_1"), insertMessage("ses_1", "msg_ses_1"), insertPart("ses_1", "1", "one"))
	copied := filepath.Join(t.TempDir(), "opencode.db")
	for _, end := range []string{"", "-wal"} {
		content, err := os.ReadFile(path + end)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(copied+end, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := files(t, filepath.Dir(copied))
	if sum := e.once(ofDatabase(copied)); sum.Records != 3 {
		t.Errorf("shipped %+v", sum)
	}
	if diff := cmp.Diff(before, files(t, filepath.Dir(copied))); diff != "" {
		t.Errorf("the folder of the database has changed:\n%s", diff)
	}
}

// A Ship that is killed again and again while another process writes stores every version of a row at most once, and
// the last one of each row. The other process never waits for a lock.
func TestKilledShipStoresEveryRowVersionOnce(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs processes of their own, of which the race detector sees nothing")
	}
	for _, mode := range []string{"wal", "delete"} {
		t.Run("journal="+mode, func(t *testing.T) {
			t.Parallel()
			killWhileDatabaseIsWritten(t, mode)
		})
	}
}

func killWhileDatabaseIsWritten(t *testing.T, mode string) {
	t.Helper()
	e, path := newEdge(t), garden(t)
	w := writeDatabase(t, path, mode)
	w.exec(openCodeSchema)
	for n := range 4 {
		id := fmt.Sprintf("storm%d", n)
		w.exec(insertSession(id), insertMessage(id, "msg_"+id))
	}
	raw := e.tap()
	for kill := range *databaseKills {
		w.send(fmt.Sprintf("storm %d 150", kill))
		victim := exec.CommandContext(t.Context(), os.Args[0])
		victim.Env = append(os.Environ(), victimDatabase+"="+path, victimURL+"="+e.server.URL(), victimOffsets+"="+e.offsets)
		victim.Stderr = os.Stderr
		if err := victim.Start(); err != nil {
			t.Fatal(err)
		}
		raw.next(1 + kill*7%40)
		if err := victim.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = victim.Wait() // it was killed
		commits := w.wait()
		t.Log("the writer: " + commits)
		if !strings.Contains(commits, "; 0 waited for a lock") {
			t.Error("the writer waited")
		}
	}
	e.once(ofDatabase(path))
	versions := map[string]int{}
	for _, r := range recordsOf(e.all()) {
		versions[string(r.Data)]++
	}
	for data, n := range versions {
		if n != 1 {
			t.Errorf("stored %d times: %.200s", n, data)
		}
	}
	rows := 0
	for r, err := range database.Records(t.Context(), path, "") {
		if err != nil {
			t.Fatal(err)
		}
		if !r.Origin.End {
			rows++
			if versions[string(r.Data)] != 1 {
				t.Errorf("not stored: %.200s", r.Data)
			}
		}
	}
	t.Logf("%d rows, %d versions of rows are stored, %d kills", rows, len(versions), *databaseKills)
	if rows < 8+*databaseKills*50 {
		t.Errorf("only %d rows", rows)
	}
}

// BenchmarkCommitBesideShip measures how long the commits of another process take while its database is shipped, in
// comparison with no Ship. No time is asserted.
func BenchmarkCommitBesideShip(b *testing.B) {
	for _, mode := range []string{"wal", "delete"} {
		for _, shipped := range []bool{false, true} {
			b.Run(fmt.Sprintf("journal=%s/shipped=%v", mode, shipped), func(b *testing.B) {
				e, path := newEdge(b), garden(b)
				w := writeDatabase(b, path, mode)
				w.exec(openCodeSchema, insertSession("storm1"))
				w.send("storm 1 500")
				w.wait()
				if shipped {
					f := e.follow(ofDatabase(path))
					f.until("the first rows are stored", func(s ship.Summary) bool { return s.Records > 0 })
				}
				for n := 0; b.Loop(); n++ {
					w.send(fmt.Sprintf("storm %d 1000", n+2))
					b.Log(w.wait())
				}
			})
		}
	}
}

// victimDatabase is the environment variable of a victim that follows a database.
const victimDatabase = "SHIP_VICTIM_DATABASE"
