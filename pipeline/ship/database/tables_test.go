package database_test

import (
	"bytes"
	"database/sql"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tributary/envelopes"
	"tributary/pipeline/ship/database"
)

// kiloTables are the tables of Kilo Code that are read, with all of their columns, and one that may not be read.
const kiloTables = `
CREATE TABLE session (id text PRIMARY KEY, project_id text NOT NULL, workspace_id text, parent_id text, slug text NOT NULL,
  directory text NOT NULL, path text, title text NOT NULL, version text NOT NULL, share_url text, summary_additions integer,
  summary_deletions integer, summary_files integer, summary_diffs text, metadata text, cost real DEFAULT 0 NOT NULL,
  tokens_input integer DEFAULT 0 NOT NULL, tokens_output integer DEFAULT 0 NOT NULL, tokens_reasoning integer DEFAULT 0 NOT NULL,
  tokens_cache_read integer DEFAULT 0 NOT NULL, tokens_cache_write integer DEFAULT 0 NOT NULL, revert text, permission text,
  agent text, model text, time_created integer NOT NULL, time_updated integer NOT NULL, time_compacting integer, time_archived integer);
CREATE TABLE message (id text PRIMARY KEY, session_id text NOT NULL REFERENCES session(id) ON DELETE CASCADE,
  time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL);
CREATE TABLE part (id text PRIMARY KEY, message_id text NOT NULL REFERENCES message(id) ON DELETE CASCADE, session_id text NOT NULL,
  time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL);
CREATE TABLE session_share (session_id text PRIMARY KEY, id text NOT NULL, secret text NOT NULL, url text NOT NULL);
INSERT INTO session (id, project_id, slug, directory, title, version, share_url, cost, permission, time_created, time_updated)
  VALUES ('ses_1', 'prj_1', 'quiet-sum', '/w', 'A sum', '7.5.11', 'https://token-of-ada', 0.3, '["token-of-ada"]', 1791190800000, 1791190803000);
INSERT INTO message VALUES ('msg_1', 'ses_1', 1791190801000, 1791190801000, '{"role":"user","time":{"created":1791190801000},"agent":"code"}');
INSERT INTO part VALUES ('prt_1', 'msg_1', 'ses_1', 1791190801000, 1791190801000, '{"type":"text","text":"Add them."}');
INSERT INTO session_share VALUES ('ses_1', 's1', 'token-of-ada', 'https://token-of-ada');`

// A database with tables that two agents have is one of the agent in whose folder it is, else of the one that gives it
// its name.
func TestTablesOfTwoAgentsAreThoseOfTheName(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name         string
		source, want envelopes.Source
	}{
		{"kilo.db", "", envelopes.Kilo},
		{"copy-of-kilo.db", "", envelopes.Kilo},
		{"opencode.db", "", envelopes.OpenCode},
		{"copy.sqlite", "", envelopes.OpenCode},
		{"opencode-dev.db", envelopes.Kilo, envelopes.Kilo},
		{"kilo.db", envelopes.OpenCode, envelopes.OpenCode},
	} {
		path := filepath.Join(t.TempDir(), c.name)
		db, err := sql.Open("sqlite", path+"?_pragma=journal_mode(wal)")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.ExecContext(t.Context(), kiloTables); err != nil {
			t.Fatal(err)
		}
		var rows []string
		for r, err := range database.Records(t.Context(), path, c.source) {
			if err != nil {
				t.Fatal(err)
			}
			if r.Source != c.want || r.Session != "ses_1" || bytes.Contains(r.Data, []byte(secret)) {
				t.Errorf("%s: record of %s of %s: %s", c.name, r.Session, r.Source, r.Data)
			}
			rows = append(rows, string(r.Data))
		}
		want := []string{
			`{"table":"session","row":{"id":"ses_1","parent_id":null,"directory":"/w","title":"A sum","version":"7.5.11","revert":null,"time_created":1791190800000}}`,
			`{"table":"message","row":{"id":"msg_1","session_id":"ses_1","time_created":1791190801000,"data":{"role":"user","time":{"created":1791190801000},"agent":"code"}}}`,
			`{"table":"part","row":{"id":"prt_1","message_id":"msg_1","session_id":"ses_1","time_created":1791190801000,"data":{"type":"text","text":"Add them."}}}`,
			"",
		}
		if !slices.Equal(rows, want) {
			t.Errorf("%s: rows\n%s", c.name, strings.Join(rows, "\n"))
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
