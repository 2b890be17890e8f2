package database

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// Each statement is short, so that one beside a writer in rollback mode is disturbed seldom.
const (
	statementTime = time.Millisecond
	firstRows     = 64   // rows of the first statement
	mostRows      = 4096 // rows of any statement
)

// Row is a row that a scan has found. Its content is read later.
type Row struct {
	Version uint64 // changes with nearly every change of the row
	Size    int64  // bytes of its columns

	table    int   // index in the tables of the vendor
	id       int64 // its rowid
	key      string
	parent   string
	order    string
	unlisted bool // its parent does not list it
}

// Key identifies a row in its database: a digest of table and key, and of the parent if that is part of the key.
type Key uint64

// Key returns the key of a row.
func (d *DB) Key(r *Row) Key {
	key := d.Table(r) + "\n" + r.key
	if d.tables()[r.table].InParent {
		key += "\n" + r.parent
	}
	return Key(Digest([]byte(key)))
}

// Table returns the name of the table of a row.
func (d *DB) Table(r *Row) string { return d.tables()[r.table].Name }

func (d *DB) tables() []core.Table { return d.vendor.Database.Tables }

// Scan finds the rows that want accepts, in the order of their records. It reads no content but the lists of parents.
// idle is set if the database is not written any more: then also rows are read that may not be complete.
func (d *DB) Scan(ctx context.Context, idle bool, want func(Key, *Row) bool) ([]Row, error) {
	var found []Row
	parents := map[string]Row{} // those that may have a list
	for i := range d.tables() {
		if d.have[d.tables()[i].Name] == nil {
			continue // of a later version
		}
		prefixes := d.tables()[i].Prefixes
		if prefixes == nil {
			prefixes = []string{""}
		}
		for _, prefix := range prefixes {
			err := d.scanTable(ctx, i, prefix, func(r Row) {
				if t := &d.tables()[i]; t.Listed != nil {
					r.parent = t.ParentOf(r.key)
					r.Version ^= parents[r.parent].Version // read again when the list may have changed
				} else if d.isListing(t.Name) {
					parents[r.key] = r
				}
				if want(d.Key(&r), &r) {
					found = append(found, r)
				}
			})
			if err != nil {
				return nil, reason(err)
			}
		}
	}
	if err := d.list(ctx, found, parents, idle); err != nil {
		return nil, reason(err)
	}
	return d.arrange(found), nil
}

// isListing reports whether rows of a table have lists of other rows.
func (d *DB) isListing(table string) bool {
	return slices.ContainsFunc(d.tables(), func(t core.Table) bool { return t.Listed != nil && t.Of == table })
}

// list sets the order of rows that their parents list, and notes which are in no list. Waits then reports whether a
// list has rows that may not be complete, and idle is not set.
func (d *DB) list(ctx context.Context, found []Row, parents map[string]Row, idle bool) error {
	var places map[string]int // of the rows of a parent
	d.waits = false
	of := ""
	for i := range found { // the rows of a parent follow each other
		r := &found[i]
		t := &d.tables()[r.table]
		if t.Listed == nil {
			continue
		}
		if parent := parents[r.parent]; places == nil || r.parent != of {
			value, err := d.listOf(ctx, &parent)
			if err != nil {
				return err
			}
			keys, final := t.Listed(parent.key, value)
			if !idle && final < len(keys) {
				keys, d.waits = keys[:final], true
			}
			places, of = make(map[string]int, len(keys)), r.parent
			for n, key := range keys {
				places[key] = n
			}
		}
		n, ok := places[r.key]
		r.unlisted, r.order = !ok, strconv.Itoa(n)
	}
	return nil
}

// listOf returns the JSON of a parent; nil for none, or for one that no record may hold.
func (d *DB) listOf(ctx context.Context, parent *Row) (value []byte, err error) {
	if parent.key == "" || parent.Size > core.MaxRecordBytes {
		return nil, nil
	}
	t := &d.tables()[parent.table]
	query := fmt.Sprintf("SELECT +%s FROM %s WHERE rowid = ? AND %s = ?", quoted(t.JSON[0]), quoted(t.Name), quoted(t.Key))
	found, err := d.row(ctx, query, []any{parent.id, parent.key}, &value)
	if err != nil || !found || !jsontext.Value(value).IsValid(lenient.Options) {
		return nil, err
	}
	return value, nil
}

// Waits reports whether the last scan has left out rows because they may not be complete.
func (d *DB) Waits() bool { return d.waits }

// scanTable finds the rows of a table whose keys begin with a prefix, in short statements.
func (d *DB) scanTable(ctx context.Context, table int, prefix string, each func(Row)) error {
	t := &d.tables()[table]
	var sizes []string
	for _, column := range d.columnsOf(t) {
		sizes = append(sizes, "ifnull(octet_length("+quoted(column)+"), 0)")
	}
	version := append([]string{"rowid", cmp.Or(quoted(t.Version), "''")}, sizes...)
	// A key range uses the index of the keys; all rows are read in the order in which they are stored.
	by, from, to := "rowid", any(int64(-1<<63)), ""
	if prefix != "" {
		by, from, to = quoted(t.Key), prefix, " AND "+quoted(t.Key)+" < ?3"
	}
	// With the plus, the driver does not convert a value by the declared type of its column.
	query := fmt.Sprintf("SELECT rowid, +%s, +%s, +%s, %s, %s FROM %s WHERE %s > ?1%s ORDER BY %s LIMIT ?2",
		quoted(t.Key), cmp.Or(quoted(t.Parent), "''"), cmp.Or(quoted(t.Order), "''"), "concat_ws(' ', "+strings.Join(version, ", ")+")", strings.Join(sizes, "+"), quoted(t.Name), by, to, by)
	for {
		start := time.Now()
		args := []any{from, d.limit}
		if prefix != "" {
			args = append(args, prefix[:len(prefix)-1]+string(prefix[len(prefix)-1]+1))
		}
		var list []Row
		err := d.query(ctx, query, args, func(rows *sql.Rows) error {
			list = list[:0]
			for rows.Next() {
				r := Row{table: table}
				var parent, order, version sql.NullString
				if err := rows.Scan(&r.id, &r.key, &parent, &order, &version, &r.Size); err != nil {
					return err
				}
				r.parent, r.order, r.Version = parent.String, order.String, Digest([]byte(version.String))
				list = append(list, r)
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, r := range list {
			each(r)
		}
		if len(list) < d.limit {
			return nil
		}
		last := list[len(list)-1]
		if from = any(last.id); prefix != "" {
			from = last.key
		}
		d.limit = min(max(int(int64(len(list))*int64(statementTime)/max(1, int64(time.Since(start)))), 1), mostRows, 2*d.limit)
	}
}

// columnsOf returns the columns of a table that are read.
func (d *DB) columnsOf(t *core.Table) []string {
	columns := append([]string{t.Key}, t.Columns...)
	for _, c := range t.Optional {
		if slices.Contains(d.have[t.Name], c) {
			columns = append(columns, c)
		}
	}
	return columns
}

// quoted returns a name as SQL; empty for none.
func quoted(name string) string {
	if name == "" {
		return ""
	}
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}

// Digest returns the first eight bytes of a digest of b.
func Digest(b []byte) uint64 {
	sum := sha256.Sum256(b)
	return binary.BigEndian.Uint64(sum[:])
}

// arrange puts rows in the order of their records: each behind its parent, or, if that has not changed, in the order
// of the tables.
func (d *DB) arrange(found []Row) []Row {
	slices.SortStableFunc(found, func(a, b Row) int {
		parents := 0
		if d.tables()[a.table].InParent { // their order says nothing about rows of another parent
			parents = cmp.Compare(a.parent, b.parent)
		}
		return cmp.Or(cmp.Compare(a.table, b.table), parents, compareOrder(a.order, b.order), compareOrder(a.key, b.key))
	})
	type place struct {
		table string
		key   string
	}
	present := map[place]bool{}
	for i := range found {
		present[place{d.Table(&found[i]), found[i].key}] = true
	}
	children := map[place][]*Row{}
	var roots []*Row
	for i := range found {
		r := &found[i]
		if of := (place{d.tables()[r.table].Of, r.parent}); present[of] {
			children[of] = append(children[of], r)
		} else {
			roots = append(roots, r)
		}
	}
	arranged := make([]Row, 0, len(found))
	var add func(r *Row)
	add = func(r *Row) {
		arranged = append(arranged, *r)
		for _, c := range children[place{d.Table(r), r.key}] {
			add(c)
		}
	}
	for _, r := range roots {
		add(r)
	}
	return arranged
}

// compareOrder compares two values of a column of whole numbers or texts.
func compareOrder(a, b string) int {
	x, errA := strconv.ParseInt(a, 10, 64)
	y, errB := strconv.ParseInt(b, 10, 64)
	if errA == nil && errB == nil {
		return cmp.Compare(x, y)
	}
	return cmp.Compare(a, b)
}

// Read returns the data of the record of a row: [ErrNoRow] for a row that is gone, [ErrUnlisted] for one that its parent
// does not list, [core.ErrTooLarge] for one that no record may hold, or an error of [Open].
func (d *DB) Read(ctx context.Context, r *Row) ([]byte, error) {
	if r.unlisted {
		return nil, ErrUnlisted
	}
	if r.Size > core.MaxRecordBytes {
		return nil, core.ErrTooLarge
	}
	t := &d.tables()[r.table]
	columns := d.columnsOf(t)
	names := make([]string, len(columns))
	values, into := make([]any, len(columns)), make([]any, len(columns))
	for i, c := range columns {
		names[i], into[i] = "+"+quoted(c), &values[i]
	}
	query := fmt.Sprintf("SELECT %s FROM %s WHERE rowid = ? AND %s = ?", strings.Join(names, ", "), quoted(t.Name), quoted(t.Key))
	found, err := d.row(ctx, query, []any{r.id, r.key}, into...)
	switch {
	case err != nil:
		return nil, reason(err)
	case !found:
		return nil, ErrNoRow
	}
	return encodeRow(t, columns, values)
}

// encodeRow returns the record of a row.
func encodeRow(t *core.Table, columns []string, values []any) ([]byte, error) {
	columns, values = unpack(t, columns, values)
	b := appendText([]byte(`{"table":`), t.Name)
	b = append(b, `,"row":{`...)
	for i, c := range columns {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendText(b, c), ':')
		var err error
		if b, err = appendValue(b, t, c, values[i]); err != nil {
			return nil, err
		}
	}
	if b = append(b, "}}"...); len(b) > core.MaxRecordBytes {
		return nil, core.ErrTooLarge
	}
	return b, nil
}

// unpack moves what packed columns have to the columns whose JSON it is.
func unpack(t *core.Table, columns []string, values []any) ([]string, []any) {
	for column, packed := range t.Packed {
		at, from := slices.Index(columns, column), slices.Index(columns, packed)
		if from < 0 {
			continue
		}
		if blob, ok := values[from].([]byte); ok && values[at] == nil {
			if decoded := t.Decode[packed](blob); decoded != nil {
				values[at] = decoded
			}
		}
		columns, values = slices.Delete(columns, from, from+1), slices.Delete(values, from, from+1)
	}
	return columns, values
}

// appendValue appends the value of a column as JSON: a blob that has no JSON in base64.
func appendValue(b []byte, t *core.Table, column string, value any) ([]byte, error) {
	var content []byte
	switch v := value.(type) {
	case nil:
		return append(b, "null"...), nil
	case int64:
		return strconv.AppendInt(b, v, 10), nil
	case float64:
		number, err := json.Marshal(v)
		return append(b, number...), err
	case string:
		content = []byte(v)
	case []byte:
		content = v
	}
	if decode := t.Decode[column]; decode != nil {
		if decoded := decode(content); decoded != nil {
			return append(b, decoded...), nil
		}
		return append(b, "null"...), nil
	}
	hasJSON := slices.Contains(t.JSON, column)
	isJSON := hasJSON && jsontext.Value(content).IsValid(lenient.Options)
	_, isText := value.(string)
	switch {
	case isJSON && t.Selects():
		return appendWithout(b, t, content)
	case isJSON:
		return append(b, bytes.TrimSpace(content)...), nil
	case hasJSON && t.Selects(): // what is left out cannot be found in it
		return append(b, "null"...), nil
	case isText:
		return appendText(b, string(content)), nil
	default:
		return appendText(b, base64.StdEncoding.EncodeToString(content)), nil
	}
}

// appendText appends a text in JSON.
func appendText(b []byte, text string) []byte {
	b, _ = jsontext.AppendQuote(b, strings.ToValidUTF8(text, "\uFFFD")) // fails for invalid UTF-8 alone
	return b
}

// appendWithout appends JSON without the members that a table omits.
func appendWithout(b []byte, t *core.Table, value []byte) ([]byte, error) {
	var out bytes.Buffer
	dec, enc := jsontext.NewDecoder(bytes.NewReader(value), lenient.Options), jsontext.NewEncoder(&out, lenient.Options)
	for {
		token, err := dec.ReadToken()
		if errors.Is(err, io.EOF) {
			return append(b, bytes.TrimSpace(out.Bytes())...), nil
		}
		if err != nil {
			return nil, err
		}
		if kind, n := dec.StackIndex(dec.StackDepth()); kind == '{' && n%2 == 1 && token.Kind() == '"' && t.Omits(token.String(), dec.StackDepth()) {
			if err := dec.SkipValue(); err != nil {
				return nil, err
			}
			continue
		}
		if err := enc.WriteToken(token); err != nil {
			return nil, err
		}
	}
}
