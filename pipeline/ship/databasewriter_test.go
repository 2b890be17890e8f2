package ship_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"
)

// writerDatabase is the environment variable of a process that writes the database at this path.
const writerDatabase = "SHIP_WRITER_DATABASE"

// openCodeSchema has the tables of OpenCode that are read, and one that never may be.
const openCodeSchema = `
CREATE TABLE session (id text PRIMARY KEY, project_id text, parent_id text, directory text NOT NULL, title text NOT NULL, version text NOT NULL,
  share_url text, revert text, permission text, time_created integer NOT NULL, time_updated integer NOT NULL);
CREATE TABLE message (id text PRIMARY KEY, session_id text NOT NULL, time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL);
CREATE TABLE part (id text PRIMARY KEY, message_id text NOT NULL, session_id text NOT NULL, time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL);
CREATE TABLE account (id text PRIMARY KEY, access_token text);
INSERT INTO account VALUES ('acc_1', 'token-of-ada');`

// databaseWriter is another process that has a database open, as an agent does.
type databaseWriter struct {
	t   testing.TB
	in  io.Writer
	out *bufio.Scanner
	end func()
}

// writeDatabase starts a process that writes a database. mode is its journal mode.
func writeDatabase(tb testing.TB, path, mode string) *databaseWriter {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), writerDatabase+"="+path+"?_pragma=busy_timeout(20000)&_pragma=journal_mode("+mode+")&_pragma=synchronous(NORMAL)")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	w := &databaseWriter{t: tb, in: in, out: bufio.NewScanner(out)}
	w.end = func() {
		_ = in.Close()
		_ = cmd.Wait() // the test sees what it has written
	}
	tb.Cleanup(w.end)
	return w
}

// send sends statements without waiting for their end.
func (w *databaseWriter) send(statements string) {
	w.t.Helper()
	line, err := json.Marshal(statements)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.in.Write(append(line, '\n')); err != nil {
		w.t.Fatal(err)
	}
}

// wait waits for the end of statements, and returns the answer of the process.
func (w *databaseWriter) wait() string {
	w.t.Helper()
	if !w.out.Scan() {
		w.t.Fatal("the writer of the database has ended")
	}
	if answer := w.out.Text(); !strings.HasPrefix(answer, "error") {
		return answer
	}
	w.t.Fatal(w.out.Text())
	return ""
}

// exec runs statements.
func (w *databaseWriter) exec(statements ...string) {
	w.t.Helper()
	w.send(strings.Join(statements, ";\n"))
	w.wait()
}

// runDatabaseWriter is the main function of a process that writes a database: it runs the statements of each line.
func runDatabaseWriter(path string) int {
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	db.SetMaxOpenConns(1)
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 64<<20)
	for in.Scan() {
		var statements string
		answer := "ok"
		if err = json.Unmarshal(in.Bytes(), &statements); err == nil {
			var seed, commits int
			if n, _ := fmt.Sscanf(statements, "storm %d %d", &seed, &commits); n == 2 {
				answer, err = storm(db, uint64(seed), commits)
			} else {
				_, err = db.ExecContext(context.Background(), statements)
			}
		}
		if err != nil {
			answer = "error: " + err.Error()
		}
		fmt.Println(answer)
	}
	_ = db.Close()
	return 0
}

// storm commits changes of rows one after the other as an agent does in a hurry. It returns how long the commits took,
// and how often and how long they waited for a lock.
func storm(db *sql.DB, seed uint64, commits int) (string, error) {
	ctx, random := context.Background(), rand.New(rand.NewPCG(seed, 1))
	var took []time.Duration
	var waits int
	var longest time.Duration
	if _, err := db.ExecContext(ctx, "PRAGMA busy_timeout = 0"); err != nil {
		return "", err
	}
	for n := range commits {
		statement := insertPart(fmt.Sprintf("storm%d", random.IntN(4)), fmt.Sprintf("%d_%d", seed, n), strings.Repeat("water ", random.IntN(400)))
		switch random.IntN(8) {
		case 0, 1, 2:
			statement = fmt.Sprintf(`UPDATE part SET data = json_set(data, '$.text', 'changed by %d_%d'), time_updated = time_updated + 1 WHERE rowid = (SELECT max(rowid) - %d FROM part)`,
				seed, n, random.IntN(20))
		case 3:
			if n%50 == 0 {
				statement = `DELETE FROM part WHERE rowid = (SELECT max(rowid) FROM part)`
			}
		}
		start, locked := time.Now(), time.Time{}
		_, err := db.ExecContext(ctx, statement)
		for ; err != nil && strings.Contains(err.Error(), "locked"); _, err = db.ExecContext(ctx, statement) {
			if locked.IsZero() {
				locked = time.Now()
				waits++
			}
			<-time.After(20 * time.Microsecond) // less than the agents wait
		}
		if err != nil {
			return "", err
		}
		took = append(took, time.Since(start))
		if !locked.IsZero() {
			longest = max(longest, time.Since(locked))
		}
		<-time.After(time.Duration(random.IntN(2000)) * time.Microsecond) // an agent thinks between two commits
	}
	slices.Sort(took)
	_, err := db.ExecContext(ctx, "PRAGMA busy_timeout = 20000")
	return fmt.Sprintf("%d commits: median %v, 99 %% within %v, longest %v; %d waited for a lock, the longest %v",
		commits, took[len(took)/2], took[len(took)*99/100], took[len(took)-1], waits, longest), err
}

func insertSession(id string) string {
	return fmt.Sprintf(`INSERT INTO session VALUES ('%s', 'global', NULL, '/home/ada/ledger', 'Title of %s', '1.18.0', NULL, NULL, NULL, 1780000000000, 1780000000000)`, id, id)
}

func insertMessage(session, id string) string {
	return fmt.Sprintf(`INSERT INTO message VALUES ('%s', '%s', 1780000001000, 1780000001000, '{"role":"assistant","modelID":"m","time":{"created":1780000001000}}')`, id, session)
}

func insertPart(session, id, content string) string {
	return fmt.Sprintf(`INSERT INTO part VALUES ('prt_%s', 'msg_%s', '%s', 1780000002000, 1780000002000, '{"type":"text","text":"%s"}')`, id, session, session, content)
}

// partRow returns the record of a part.
func partRow(session, id, content string) string {
	return fmt.Sprintf(`{"table":"part","row":{"id":"prt_%s","message_id":"msg_%s","session_id":"%s","time_created":1780000002000,"data":{"type":"text","text":"%s"}}}`, id, session, session, content)
}

// files returns the size and the modification time of each file of a folder, by name.
func files(tb testing.TB, dir string) map[string]string {
	tb.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		tb.Fatal(err)
	}
	is := map[string]string{}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			tb.Fatal(err)
		}
		is[e.Name()] = fmt.Sprintf("%d bytes at %v", info.Size(), info.ModTime())
	}
	return is
}

// garden returns the path of a database in a folder of its own.
func garden(tb testing.TB) string {
	tb.Helper()
	return filepath.Join(tb.TempDir(), "opencode.db")
}
