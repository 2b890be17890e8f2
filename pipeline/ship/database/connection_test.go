package database_test

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/ship/database"
)

// In each journal mode, what is read is of one transaction while another process writes, and the writer never waits.
func TestWhatIsReadIsOfOneTransaction(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"wal", "delete", "truncate", "persist"} {
		t.Run("journal="+mode, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "opencode.db")
			writeDatabase(t, path, normalizers.VendorOf(envelopes.OpenCode), []tableRow{{Table: "session", Row: map[string]json.RawMessage{"id": json.RawMessage(`"ses_1"`)}}})
			writer, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(0)&_pragma=synchronous(OFF)&_pragma=journal_mode("+mode+")")
			if err != nil {
				t.Fatal(err)
			}
			writer.SetMaxOpenConns(1)
			t.Cleanup(func() { _ = writer.Close() })
			title := func(version int) string { return strings.Repeat(fmt.Sprintf("%06d ", version), 10_000) }
			write := func(version int) error {
				_, err := writer.ExecContext(t.Context(), `UPDATE session SET title = ?`, title(version))
				return err
			}
			if err := write(0); err != nil {
				t.Fatal(err)
			}
			written := make(chan error, 1)
			go func() {
				for version := range 1000 {
					if err := write(version); err != nil {
						written <- fmt.Errorf("version %d: %w", version, err)
						return
					}
				}
				written <- nil
			}()
			for over := false; !over; {
				select {
				case err := <-written:
					if over = true; err != nil {
						t.Error(err)
					}
				default:
				}
				for r, err := range database.Records(t.Context(), path, envelopes.OpenCode) {
					if errors.Is(err, database.ErrLocked) && !over {
						break // the writer has disturbed it for too long
					}
					if err != nil {
						t.Fatal(err)
					}
					requireOneVersion(t, &r)
				}
			}
		})
	}
}

// requireOneVersion requires that a record has the title of one version.
func requireOneVersion(t *testing.T, r *core.Record) {
	t.Helper()
	if r.Origin.End {
		return
	}
	var of struct{ Row struct{ Title string } }
	if err := json.Unmarshal(r.Data, &of); err != nil {
		t.Fatal(err)
	}
	if title := of.Row.Title; len(title) < 7 || title != strings.Repeat(title[:7], len(title)/7) {
		t.Fatalf("of several transactions: %.30q ... %q", title, title[max(0, len(title)-30):])
	}
}
