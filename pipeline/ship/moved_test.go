package ship_test

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	_ "modernc.org/sqlite"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/normalizerstest"
	"tributary/pipeline/ship"
)

// secretSchema is a table that may not be read, which earlier versions have, too.
const secretSchema = `
CREATE TABLE auth_profile_store (store_key TEXT NOT NULL PRIMARY KEY, store_json TEXT NOT NULL) STRICT;
INSERT INTO auth_profile_store VALUES ('main', 'token-of-ada');`

// sessionSchema is what the agent's database has of sessions.
const sessionSchema = `
CREATE TABLE session_windows (session_id TEXT NOT NULL PRIMARY KEY, session_key TEXT NOT NULL, created_at INTEGER NOT NULL) STRICT;
CREATE TABLE transcript_events (
	session_id TEXT NOT NULL, seq INTEGER NOT NULL, event_json TEXT, created_at INTEGER NOT NULL,
	event_zstd BLOB, event_utf8_bytes INTEGER, navigation_json TEXT, PRIMARY KEY (session_id, seq),
	FOREIGN KEY (session_id) REFERENCES session_windows(session_id) ON DELETE CASCADE
) STRICT;`

// agentHome is a home with the log and the database of an agent of OpenClaw.
type agentHome struct {
	t  *testing.T
	db *sql.DB

	dir string // of the agent
}

func newAgentHome(t *testing.T, home string) *agentHome {
	t.Helper()
	h := &agentHome{t: t, dir: filepath.Join(home, ".openclaw", "agents", "main")}
	for _, dir := range []string{"agent", "sessions", "session-sqlite-import-archive"} {
		if err := os.MkdirAll(filepath.Join(h.dir, dir), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// open makes the database as earlier versions have it, without sessions.
func (h *agentHome) open() {
	h.t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(h.dir, "agent", "openclaw-agent.sqlite"))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = db.Close() })
	h.db = db
	h.exec("PRAGMA journal_mode = WAL")
	h.exec(secretSchema)
}

func (h *agentHome) exec(query string, args ...any) {
	h.t.Helper()
	if _, err := h.db.ExecContext(h.t.Context(), query, args...); err != nil {
		h.t.Fatalf("%s: %v", query, err)
	}
}

// put adds the entries of a session to the database.
func (h *agentHome) put(session string, first int, entries ...string) {
	h.t.Helper()
	h.exec("INSERT OR IGNORE INTO session_windows VALUES (?, 'agent:main:' || ?, 0)", session, session)
	for n, entry := range entries {
		h.exec("INSERT INTO transcript_events (session_id, seq, event_json, created_at) VALUES (?, ?, ?, 0)", session, first+n, entry)
	}
}

// header and said are entries of a session.
func header(session string) string {
	return fmt.Sprintf(`{"type":"session","version":3,"id":%q,"timestamp":"2026-08-30T09:00:00.000Z","cwd":"/w"}`, session)
}

func said(id string, minute int, text string) string {
	return fmt.Sprintf(`{"type":"message","id":%q,"parentId":null,"timestamp":"2026-08-30T09:%02d:00.000Z","message":{"role":"user","content":%q}}`, id, minute, text)
}

// A log that its agent moves to a database, in which the session goes on, has every event once: also when a row is
// packed, and when it is written again in place, which supersedes its event.
func TestLogThatIsMovedToADatabaseCountsOnce(t *testing.T) {
	t.Parallel()
	e, home := newEdge(t), t.TempDir()
	h := newAgentHome(t, home)
	once := func(want int) {
		t.Helper()
		sum := e.once(func(c *ship.Config) { c.Roots = ship.Roots(home, func(string) string { return "" }) })
		if sum.Records != want || len(sum.Refused) > 0 {
			t.Fatalf("%d records, want %d; refused %v", sum.Records, want, sum.Refused)
		}
	}
	log := []string{header("one"), said("a", 1, "first"), said("b", 5, "second"), said("c", 9, strings.Repeat("third ", 300))}
	path := filepath.Join(h.dir, "sessions", "one.jsonl")
	if err := os.WriteFile(path, []byte(strings.Join(log, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.open()
	once(len(log))

	h.exec(sessionSchema)
	h.put("one", 0, append(log, said("d", 20, "fourth"))...)
	h.put("two", 0, header("two"), said("a", 30, "another session"))
	if err := os.Rename(path, filepath.Join(h.dir, "session-sqlite-import-archive", "one.jsonl")); err != nil {
		t.Fatal(err)
	}
	once(7)
	found, _, err := ship.Logs(ship.Config{Roots: ship.Roots(home, func(string) string { return "" }), Paths: []string{h.dir}})
	if err != nil || len(found) != 1 || found[0].File.Source != envelopes.OpenClaw {
		t.Errorf("below a path: %v, %v", found, err)
	}

	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	h.exec("UPDATE transcript_events SET event_json = NULL, event_zstd = ?, event_utf8_bytes = ? WHERE session_id = 'one' AND seq = 3",
		encoder.EncodeAll([]byte(log[3]), nil), len(log[3]))
	h.exec("VACUUM")
	once(0)

	h.exec("UPDATE transcript_events SET event_json = ? WHERE session_id = 'one' AND seq = 4", said("d", 20, "fourth, redacted"))
	h.put("one", 5, said("e", 40, "fifth"))
	once(2)

	// The session is deleted: its rows go, and its log is written once more.
	h.exec("DELETE FROM transcript_events WHERE session_id = 'one'")
	if err := os.WriteFile(path+".deleted.2026-09-02T07-00-00.000Z", []byte(strings.Join(log, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	e.once(func(c *ship.Config) { c.Roots = ship.Roots(home, func(string) string { return "" }) })

	var framed []normalizers.Framed
	for _, r := range e.all() {
		if strings.Contains(string(r.Data), "token-of-ada") {
			t.Errorf("a token was sent: %s", r.Data)
		}
		framed = append(framed, normalizers.Framed{Record: r.Record})
	}
	var got []string
	for _, event := range normalizerstest.Events(normalizerstest.Fold(normalizers.Normalize, framed)) {
		if event.Source != envelopes.OpenClaw {
			t.Errorf("event of %s", event.Source)
		}
		line := event.SessionID + " " + event.EventID
		if event.Supersedes != "" {
			line += " supersedes " + event.Supersedes
		}
		got = append(got, line)
	}
	want := []string{"one one", "one a", "one b", "one c", "one d", "two two", "two a", "one d#r1 supersedes d", "one e"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}
