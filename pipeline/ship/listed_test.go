package ship_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tributary/envelopes"
	"tributary/pipeline/ship"
)

// cursorSchema has the tables of Cursor.
const cursorSchema = `
CREATE TABLE ItemTable (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB);
CREATE TABLE cursorDiskKV (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB);
INSERT INTO ItemTable VALUES ('cursorAuth/accessToken', 'token-of-ada')`

// composer returns the statement that writes a session of Cursor with the list of its messages, and composerRow its record.
func composer(session, status string, messages ...string) string {
	var list []string
	for _, m := range messages {
		list = append(list, fmt.Sprintf(`{"bubbleId":"%s"}`, m))
	}
	return fmt.Sprintf(`INSERT INTO cursorDiskKV VALUES ('composerData:%[1]s', '{"composerId":"%[1]s","name":"May","status":"%s","text":"a draft","blobEncryptionKey":"token-of-ada","fullConversationHeadersOnly":[%s]}')`,
		session, status, strings.Join(list, ","))
}

func composerRow(session string) string {
	return fmt.Sprintf(`{"table":"cursorDiskKV","row":{"key":"composerData:%[1]s","value":{"composerId":"%[1]s","name":"May"}}}`, session)
}

// bubble returns the statement that writes a message of Cursor, and bubbleRow its record.
func bubble(session, id, content string) string {
	return fmt.Sprintf(`INSERT INTO cursorDiskKV VALUES ('bubbleId:%s:%s', '{"type":2,"text":"%s","richText":"{}"}')`, session, id, content)
}

func bubbleRow(session, id, content string) string {
	return fmt.Sprintf(`{"table":"cursorDiskKV","row":{"key":"bubbleId:%s:%s","value":{"type":2,"text":"%s"}}}`, session, id, content)
}

// A message is read when the list of its session has it and it is complete, in the order of the list; when the database
// is idle, also the last one of a session that is generated. A change of a list sends no message again.
func TestMessagesAreShippedWhenTheirSessionListsThem(t *testing.T) {
	t.Parallel()
	e, path := newEdge(t), filepath.Join(t.TempDir(), "state.vscdb")
	of := func(c *ship.Config) {
		c.Roots = []ship.Root{{Source: envelopes.Cursor, Dir: filepath.Dir(path), Suffixes: []string{filepath.Base(path)}, Flat: true}}
	}
	w := writeDatabase(t, path, "wal")
	w.exec(cursorSchema, bubble("c1", "z1", "one"), bubble("c1", "a2", "two"), bubble("c1", "lost", "taken back"), composer("c1", "generating", "z1", "a2"))
	raw := e.tap()
	f := e.follow(of)
	raw.expect(composerRow("c1"), bubbleRow("c1", "z1", "one"))
	w.exec(bubble("c1", "a2", "two and more"), bubble("c1", "m3", "three"), composer("c1", "completed", "z1", "a2", "m3"))
	raw.expect(bubbleRow("c1", "a2", "two and more"), bubbleRow("c1", "m3", "three"))
	w.exec(composer("c1", "completed", "z1"))
	w.exec(bubble("c1", "b4", "four"), composer("c1", "completed", "z1", "b4"))
	raw.expect(bubbleRow("c1", "b4", "four"))
	w.exec(bubble("c1", "b4", "four!"))
	raw.expect(bubbleRow("c1", "b4", "four!"))
	w.exec(bubble("c1", "b5", "fi"), composer("c1", "generating", "z1", "b4", "b5"))
	w.exec(bubble("c1", "b6", "six"), composer("c1", "generating", "z1", "b4", "b6", "b5"))
	raw.expect(bubbleRow("c1", "b6", "six"))
	f.stop()
	e.once(of)
	raw.expect(bubbleRow("c1", "b5", "fi"), "end of c1")
	if sum := e.once(of); sum.Records != 0 || len(sum.Refused) > 0 {
		t.Errorf("nothing has changed, but %+v", sum)
	}
	for _, r := range e.all() {
		if bytes.Contains(r.Data, []byte("token-of-ada")) || bytes.Contains(r.Data, []byte("taken back")) || bytes.Contains(r.Data, []byte("draft")) {
			t.Errorf("was sent: %s", r.Data)
		}
	}
}

// A session that appears while ship runs is shipped as it grows, in a database that was there and in one that appears
// in a folder that was not, first empty, then without its tables: every version of a row once, however fast the sessions
// follow each other.
func TestSessionsThatAppearInDatabasesAreShippedOnce(t *testing.T) {
	ship.SetLockPatience(t, 300*time.Millisecond)
	for _, mode := range []string{"wal", "delete"} {
		t.Run(mode, func(t *testing.T) {
			e, home := newEdge(t), t.TempDir()
			first, second := filepath.Join(home, "first"), filepath.Join(home, "second")
			of := func(c *ship.Config) {
				for _, dir := range []string{first, second} {
					c.Roots = append(c.Roots, ship.Root{Source: envelopes.Cursor, Dir: dir, Suffixes: []string{"state.vscdb"}, Flat: true})
				}
			}
			appear := func(dir string) string {
				path := filepath.Join(dir, "state.vscdb")
				if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(path, nil, 0o600)); err != nil {
					t.Fatal(err)
				}
				return path
			}
			w := writeDatabase(t, appear(first), mode)
			w.exec(cursorSchema, composer("c1", "completed", "a1"), bubble("c1", "a1", "one"))
			raw := e.tap()
			f := e.follow(of)
			raw.expect(composerRow("c1"), bubbleRow("c1", "a1", "one"))

			w.exec(composer("c2", "none"))
			raw.expect(composerRow("c2"))
			w.exec(bubble("c2", "a1", "a prompt"), bubble("c2", "a2", "an"), composer("c2", "generating", "a1", "a2"))
			raw.expect(bubbleRow("c2", "a1", "a prompt"))
			w.exec(bubble("c2", "a2", "an answer"), composer("c2", "completed", "a1", "a2"))
			raw.expect(bubbleRow("c2", "a2", "an answer"))

			path := appear(second)
			f.until("the empty file is found", func(s ship.Summary) bool { return s.Files == 2 })
			other := writeDatabase(t, path, mode)
			other.exec(`CREATE TABLE ItemTable (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB)`)
			f.until("the tables are missing", func(s ship.Summary) bool { return s.Refused[ship.ReasonUnknownSchema] == 1 })
			other.exec(`DROP TABLE ItemTable`, cursorSchema)
			other.exec(composer("d1", "completed", "a1"), bubble("d1", "a1", "one"))
			raw.expect(composerRow("d1"), bubbleRow("d1", "a1", "one"))

			const sessions = 40
			var want []string
			for n := range sessions {
				for _, at := range []struct {
					*databaseWriter
					session string
				}{{w, fmt.Sprint("many", n)}, {other, fmt.Sprint("more", n)}} {
					at.send(bubble(at.session, "a1", "a prompt"))
					at.send(composer(at.session, "completed", "a1"))
					at.send(bubble(at.session, "a2", "an answer") + ";" + composer(at.session, "completed", "a1", "a2"))
					want = append(want, composerRow(at.session), bubbleRow(at.session, "a1", "a prompt"), bubbleRow(at.session, "a2", "an answer"))
				}
			}
			for range 3 * sessions {
				w.wait()
				other.wait()
			}
			got := brief(raw.next(len(want)))
			slices.Sort(got)
			slices.Sort(want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("rows of sessions that follow each other (-want +got):\n%s", diff)
			}
			f.stop()
			sum := e.once(of)
			if rows := recordsOf(e.all()); sum.Records != 0 || len(sum.Refused) > 0 || len(rows) != 7+len(want) {
				t.Errorf("%d rows are stored; after that %+v", len(rows), sum)
			}
		})
	}
}

// The logs of an agent are read after its databases, which may have the same sessions with more content.
func TestLogsWaitForTheDatabasesOfTheirAgent(t *testing.T) {
	t.Parallel()
	e, home := newEdge(t), t.TempDir()
	transcripts, editor := filepath.Join(home, ".cursor"), filepath.Join(home, "Cursor")
	for _, dir := range []string{transcripts, editor} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	w := writeDatabase(t, filepath.Join(editor, "state.vscdb"), "wal")
	w.exec(cursorSchema, composer("c1", "completed", "z1"), bubble("c1", "z1", "one"))
	line := `{"role":"user","message":{"content":[{"type":"text","text":"one"}]}}`
	want := []string{composerRow("c1"), bubbleRow("c1", "z1", "one"), "end of c1"}
	for n := range 8 {
		if err := os.WriteFile(filepath.Join(transcripts, fmt.Sprintf("c%d.jsonl", n+2)), []byte(line+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	e.once(func(c *ship.Config) {
		c.Parallel = 4
		c.Roots = []ship.Root{
			{Source: envelopes.Cursor, Dir: transcripts, Suffixes: []string{".jsonl"}},
			{Source: envelopes.Cursor, Dir: editor, Suffixes: []string{"state.vscdb"}, Flat: true},
		}
	})
	got := e.all()
	if len(got) != 3+8*2 {
		t.Fatalf("%d records", len(got))
	}
	if diff := cmp.Diff(want, brief(got[:3])); diff != "" {
		t.Errorf("the first records (-want +got):\n%s", diff)
	}
}
