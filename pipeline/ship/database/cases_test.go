package database_test

import (
	"bytes"
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/rogpeppe/go-internal/txtar"
	_ "modernc.org/sqlite"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/antigravity/antigravitytest"
	"tributary/normalizers/core"
	"tributary/normalizers/cursor/cursortest"
	"tributary/normalizers/goose/goosetest"
	"tributary/normalizers/hermes/hermestest"
	"tributary/normalizers/kilo/kilotest"
	"tributary/normalizers/normalizerstest"
	"tributary/normalizers/openclaw/openclawtest"
	"tributary/normalizers/opencode/opencodetest"
	"tributary/pipeline/ship/database"
)

// suites are those of the vendors with a database.
var suites = []normalizerstest.Suite{
	opencodetest.Suite, kilotest.Suite, goosetest.Suite, cursortest.Suite, hermestest.Suite, antigravitytest.Suite, openclawtest.Suite,
}

// secret is in each column, row and member that may not be read.
const secret = "token-of-ada"

// The rows in the cases of a vendor, in a database as its agent writes it, have the events that an independent reader
// expects. Each is read once, in its last version, and nothing else is.
func TestDatabasesMatchTheirCases(t *testing.T) {
	t.Parallel()
	for _, s := range suites {
		paths, err := filepath.Glob(filepath.Join("../../../normalizers", s.Room, "testdata", "*.txtar"))
		if err != nil {
			t.Fatal(err)
		}
		read := 0
		for _, path := range paths {
			name := string(s.Source) + "/" + strings.TrimSuffix(filepath.Base(path), ".txtar")
			rows := slices.DeleteFunc(rowsOf(t, path), func(r tableRow) bool { return !isRead(t, normalizers.VendorOf(s.Source), r) })
			if len(rows) == 0 {
				continue
			}
			read++
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				file := filepath.Join(t.TempDir(), "sessions.db")
				if usual := normalizers.VendorOf(s.Source).Database.Names; len(usual) > 0 && usual[0][0] != '.' {
					file = filepath.Join(filepath.Dir(file), usual[0])
				}
				writeDatabase(t, file, normalizers.VendorOf(s.Source), rows)
				if lines := checkDatabase(t, s, file); len(lines) != len(rows) {
					t.Errorf("%d records of %d rows", len(lines), len(rows))
				}
			})
		}
		if read == 0 {
			t.Errorf("no case of %s has rows", s.Source)
		}
	}
}

// The real databases beside TRIBUTARY_CORPUS have the events that the independent readers expect.
func TestCorpusMatchesItsRows(t *testing.T) {
	t.Parallel()
	root := os.Getenv("TRIBUTARY_CORPUS")
	if root == "" {
		t.Skip("TRIBUTARY_CORPUS is not set")
	}
	for _, s := range suites {
		for _, beside := range []string{"", "-agents"} {
			paths, err := filepath.Glob(filepath.Join(root+beside, string(s.Source), "*", "*.db"))
			if err != nil {
				t.Fatal(err)
			}
			for _, path := range paths {
				t.Run(string(s.Source)+"/"+filepath.Base(path), func(t *testing.T) {
					t.Parallel()
					checkDatabase(t, s, path)
				})
			}
		}
	}
}

// checkDatabase compares the events of a database with what its rows state, and returns the records of the rows.
func checkDatabase(t *testing.T, s normalizerstest.Suite, path string) (lines [][]byte) {
	t.Helper()
	for r, err := range database.Records(t.Context(), path, "") {
		if err != nil {
			t.Fatal(err)
		}
		if r.Source != s.Source || bytes.Contains(r.Data, []byte(secret)) {
			t.Errorf("record of %s: %s", r.Source, r.Data)
		}
		if !r.Origin.End {
			lines = append(lines, r.Data)
		}
	}
	report := normalizerstest.NewReport()
	for _, p := range normalizerstest.CheckTruth(s, normalizers.Normalize, normalizerstest.FileNamed(s.Source, "sessions.jsonl"), bytes.Join(lines, []byte("\n")), report) {
		t.Error(p)
	}
	t.Log("\n" + report.String())
	return lines
}

// A database is found by a path below the current folder, too.
func TestRecordsOfARelativePath(t *testing.T) {
	t.Chdir(t.TempDir())
	writeDatabase(t, "sessions.db", normalizers.VendorOf(envelopes.Antigravity), []tableRow{{
		Table: "gen_metadata", Row: map[string]json.RawMessage{"idx": json.RawMessage("0"), "data": json.RawMessage("null")},
	}})
	n := 0
	for r, err := range database.Records(t.Context(), "sessions.db", "") {
		if err != nil {
			t.Fatal(err)
		}
		if n++; r.Session != "sessions" {
			t.Errorf("record of session %q", r.Session)
		}
	}
	if n != 2 {
		t.Errorf("%d records, want the row and the end", n)
	}
}

// tableRow is a row of a table.
type tableRow struct {
	Table string                     `json:"table"`
	Row   map[string]json.RawMessage `json:"row"`
}

// rowsOf returns the rows in a case, each in its last version.
func rowsOf(t *testing.T, path string) (rows []tableRow) {
	t.Helper()
	archive, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	places := map[string]int{}
	for _, f := range archive.Files {
		if f.Name != "raw.jsonl" {
			continue
		}
		for line := range bytes.Lines(f.Data) {
			var r tableRow
			if json.Unmarshal(line, &r) != nil || r.Row == nil {
				continue
			}
			key := fmt.Sprintf("%s %s%s%s%s%s", r.Table, r.Row["id"], r.Row["key"], r.Row["idx"], r.Row["session_id"], r.Row["seq"])
			if at, ok := places[key]; ok {
				rows[at] = r
				continue
			}
			places[key] = len(rows)
			rows = append(rows, r)
		}
	}
	return rows
}

// isRead reports whether a vendor lists the table of a row, and its key.
func isRead(t *testing.T, v *core.Vendor, r tableRow) bool {
	t.Helper()
	return slices.ContainsFunc(v.Database.Tables, func(table core.Table) bool {
		key, _ := valueOf(t, r.Row[table.Key]).(string)
		return table.Name == r.Table && (table.Prefixes == nil || slices.ContainsFunc(table.Prefixes, func(p string) bool { return strings.HasPrefix(key, p) }))
	})
}

// writeDatabase writes the tables of a vendor with rows, and with secrets.
func writeDatabase(t *testing.T, path string, v *core.Vendor, rows []tableRow) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	exec := func(query string, args ...any) {
		if _, err := db.ExecContext(t.Context(), query, args...); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
	}
	made := map[string][]string{}
	for _, table := range v.Database.Tables {
		columns := slices.Concat([]string{table.Key}, table.Columns, table.Optional, []string{"secret"})
		if table.Version != "" && !slices.Contains(columns, table.Version) {
			columns = append(columns, table.Version)
		}
		if made[table.Name] == nil {
			kind := "TEXT"
			if slices.ContainsFunc(rows, func(r tableRow) bool {
				_, isNumber := valueOf(t, r.Row[table.Key]).(int64)
				return r.Table == table.Name && isNumber
			}) {
				kind = "INTEGER"
			}
			unique := table.Key
			if table.InParent {
				unique += ", " + table.Parent
			}
			exec(fmt.Sprintf("CREATE TABLE %s (%s %s, %s, UNIQUE (%s) ON CONFLICT REPLACE)", table.Name, table.Key, kind, strings.Join(columns[1:], ", "), unique))
		}
		made[table.Name] = columns
	}
	exec("CREATE TABLE account (id, token)")
	exec("INSERT INTO account VALUES (1, ?)", secret)
	for _, r := range rows {
		columns := made[r.Table]
		values := make([]any, len(columns))
		for i, c := range columns {
			if values[i] = valueOf(t, r.Row[c]); r.Table == "gen_metadata" && c == "data" {
				values[i] = callBlob(r.Row[c])
			}
			if c == "secret" {
				values[i] = secret
			}
		}
		packValues(v, r, columns, values)
		exec(fmt.Sprintf("INSERT INTO %s (%s) VALUES (?%s)", r.Table, strings.Join(columns, ", "), strings.Repeat(", ?", len(columns)-1)), values...)
	}
	if made["cursorDiskKV"] != nil {
		addLists(exec, rows)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// packValues packs the JSON of every second row of a table with packed columns.
func packValues(v *core.Vendor, r tableRow, columns []string, values []any) {
	for _, table := range v.Database.Tables {
		for column, packed := range table.Packed {
			at := slices.Index(columns, column)
			if entry, ok := values[at].(string); ok && table.Name == r.Table && len(entry)%2 == 0 {
				values[at], values[slices.Index(columns, packed)] = nil, zstdOf(entry)
			}
		}
	}
}

// zstdOf returns a text packed.
func zstdOf(s string) []byte {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		panic(err) // the options are valid
	}
	return e.EncodeAll([]byte(s), nil)
}

// valueOf returns the value of a column: JSON as the agents write it, in a text.
func valueOf(t *testing.T, raw json.RawMessage) any {
	t.Helper()
	var v any
	if raw == nil {
		return nil
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	switch v := v.(type) {
	case nil, string:
		return v
	case float64:
		if v == float64(int64(v)) {
			return int64(v)
		}
		return v
	default:
		return string(raw)
	}
}

// callBlob returns the protocol buffers of Antigravity's API call, among them a prompt that may not be read; other bytes
// for a call of null.
func callBlob(raw json.RawMessage) []byte {
	var call struct {
		Model   string     `json:"model"`
		Shown   string     `json:"model_name"`
		Started *time.Time `json:"started_at"`
		Usage   *struct {
			ID     string `json:"response_id"`
			Input  uint64 `json:"input"`
			Read   uint64 `json:"cache_read"`
			Write  uint64 `json:"cache_write"`
			Output uint64 `json:"output"`
			Think  uint64 `json:"thinking"`
		} `json:"usage"`
	}
	if json.Unmarshal(raw, &call) != nil || call.Started == nil {
		return []byte(secret)
	}
	number := func(b []byte, n int, v uint64) []byte {
		return binary.AppendUvarint(binary.AppendUvarint(b, uint64(n)<<3), v)
	}
	bytes := func(b []byte, n int, v []byte) []byte {
		return append(binary.AppendUvarint(binary.AppendUvarint(b, uint64(n)<<3|2), uint64(len(v))), v...)
	}
	start := number(number(nil, 1, uint64(call.Started.Unix())), 2, uint64(call.Started.Nanosecond()))
	in := bytes(nil, 2, []byte(secret)) // the prompt
	if u := call.Usage; u != nil {
		usage := number(number(number(number(number(nil, 2, u.Input), 3, u.Output), 4, u.Write), 5, u.Read), 9, u.Think)
		in = bytes(in, 4, bytes(append(usage, 6<<3|5, 1, 2, 3, 4), 11, []byte(u.ID)))
	}
	in = bytes(bytes(bytes(in, 9, bytes(number(nil, 2, 1<<63), 4, start)), 19, []byte(call.Model)), 21, []byte(call.Shown))
	return bytes(bytes(nil, 2, []byte{1, 2}), 1, in)
}

// addLists adds to each session of Cursor the list of its messages, its secrets and the draft of a prompt; and messages
// that are in no list, other keys and a table that may not be read.
func addLists(exec func(string, ...any), rows []tableRow) {
	lists := map[string][]map[string]any{}
	for _, r := range rows {
		var key string
		if err := json.Unmarshal(r.Row["key"], &key); err != nil {
			continue
		}
		if rest, ok := strings.CutPrefix(key, "bubbleId:"); ok {
			at := strings.LastIndex(rest, ":")
			lists[rest[:at]] = append(lists[rest[:at]], map[string]any{"bubbleId": rest[at+1:]})
		}
	}
	for session, list := range lists {
		headers, _ := json.Marshal(list) // never fails
		exec(`UPDATE cursorDiskKV SET value = CAST(json_set(value, '$.fullConversationHeadersOnly', json(?), '$.text', ?, '$.blobEncryptionKey', ?, '$.modelConfig.xEncryptionKey', ?) AS BLOB) WHERE key = ?`,
			string(headers), secret, secret, secret, "composerData:"+session)
		exec(`INSERT INTO cursorDiskKV (key, value) VALUES (?, ?)`, "bubbleId:"+session+":left", `{"type":2,"text":"`+secret+`"}`)
	}
	exec(`INSERT INTO cursorDiskKV (key, value) VALUES ('bubbleId:orphan:1', ?), ('agentKv:blob:1', ?), ('bubbleIe', ?)`, secret, secret, secret)
	exec(`CREATE TABLE ItemTable (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB)`)
	exec(`INSERT INTO ItemTable VALUES ('cursorAuth/accessToken', ?)`, secret)
}
