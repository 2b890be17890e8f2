package ship_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tributary/envelopes"
	"tributary/pipeline/ship"
)

// cursorSchema has the tables of Cursor.
const cursorSchema = `
CREATE TABLE ItemTable (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB);
CREATE TABLE cursorDiskKV (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB);
INSERT INTO ItemTable VALUES ('cursorAuth/accessToken', 'token-of-ada')`

// composer returns the statement that writes a session of Cursor with the list of its messages.
func composer(status string, messages ...string) string {
	var list []string
	for _, m := range messages {
		list = append(list, fmt.Sprintf(`{"bubbleId":"%s"}`, m))
	}
	return fmt.Sprintf(`INSERT INTO cursorDiskKV VALUES ('composerData:c1', '{"composerId":"c1","name":"May","status":"%s","text":"a draft","blobEncryptionKey":"token-of-ada","fullConversationHeadersOnly":[%s]}')`,
		status, strings.Join(list, ","))
}

// bubble returns the statement that writes a message of Cursor, and bubbleRow its record.
func bubble(id, content string) string {
	return fmt.Sprintf(`INSERT INTO cursorDiskKV VALUES ('bubbleId:c1:%s', '{"type":2,"text":"%s","richText":"{}"}')`, id, content)
}

func bubbleRow(id, content string) string {
	return fmt.Sprintf(`{"table":"cursorDiskKV","row":{"key":"bubbleId:c1:%s","value":{"type":2,"text":"%s"}}}`, id, content)
}

const composerRow = `{"table":"cursorDiskKV","row":{"key":"composerData:c1","value":{"composerId":"c1","name":"May"}}}`

// A message is read when the list of its session has it and it is complete, in the order of the list; when the database
// is idle, also the last one of a session that is generated. A change of a list sends no message again.
func TestMessagesAreShippedWhenTheirSessionListsThem(t *testing.T) {
	t.Parallel()
	e, path := newEdge(t), filepath.Join(t.TempDir(), "state.vscdb")
	of := func(c *ship.Config) {
		c.Roots = []ship.Root{{Source: envelopes.Cursor, Dir: filepath.Dir(path), Suffixes: []string{filepath.Base(path)}, Flat: true}}
	}
	w := writeDatabase(t, path, "wal")
	w.exec(cursorSchema, bubble("z1", "one"), bubble("a2", "two"), bubble("lost", "taken back"), composer("generating", "z1", "a2"))
	raw := e.tap()
	f := e.follow(of)
	raw.expect(composerRow, bubbleRow("z1", "one"))
	w.exec(bubble("a2", "two and more"), bubble("m3", "three"), composer("completed", "z1", "a2", "m3"))
	raw.expect(bubbleRow("a2", "two and more"), bubbleRow("m3", "three"))
	w.exec(composer("completed", "z1"))
	w.exec(bubble("b4", "four"), composer("completed", "z1", "b4"))
	raw.expect(bubbleRow("b4", "four"))
	w.exec(bubble("b4", "four!"))
	raw.expect(bubbleRow("b4", "four!"))
	w.exec(bubble("b5", "fi"), composer("generating", "z1", "b4", "b5"))
	w.exec(bubble("b6", "six"), composer("generating", "z1", "b4", "b6", "b5"))
	raw.expect(bubbleRow("b6", "six"))
	f.stop()
	e.once(of)
	raw.expect(bubbleRow("b5", "fi"), "end of c1")
	if sum := e.once(of); sum.Records != 0 || len(sum.Refused) > 0 {
		t.Errorf("nothing has changed, but %+v", sum)
	}
	for _, r := range e.all() {
		if bytes.Contains(r.Data, []byte("token-of-ada")) || bytes.Contains(r.Data, []byte("taken back")) || bytes.Contains(r.Data, []byte("draft")) {
			t.Errorf("was sent: %s", r.Data)
		}
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
	w.exec(cursorSchema, composer("completed", "z1"), bubble("z1", "one"))
	line := `{"role":"user","message":{"content":[{"type":"text","text":"one"}]}}`
	want := []string{composerRow, bubbleRow("z1", "one"), "end of c1"}
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
