package core

import (
	"slices"
	"strings"
)

// Database is where an agent keeps its sessions in SQLite databases, and what is read of them. Everything that it does
// not list is never read: such databases hold tokens of accounts, too.
type Database struct {
	Env     string   // variable with the path of the database, absolute or below a folder; empty for none
	Below   string   // path of the database below the folder that Env names, with '/'; empty if Env names the database
	About   string   // description of Env for the table of settings
	Folders []string // folders that may hold databases, below the user's home, with '/'; empty if Logs has them
	// Names are the ends of their names. If the tables fit several agents, the file is one of the agent with the longest
	// end of its name.
	Names []string

	// Later is set if earlier versions of the agent have the database without the tables: it has no rows then.
	Later bool
	// Tables are in the order in which a record may refer to an earlier one: a table comes behind its Parent.
	Tables []Table
}

// Table is the part of a table that is read. Each row is a record: {"table": Name, "row": {column: value}}.
type Table struct {
	Name     string
	Key      string   // column that identifies a row as long as it exists; the first of the record
	Columns  []string // other columns that are read, in the order of the record
	Optional []string // columns that some versions of the agent lack, behind the others
	JSON     []string // columns with JSON in text or a blob, which the record embeds
	Version  string   // column that is likely to change with every change of a row; empty for none

	// Decode returns the JSON of what is read of a blob, by its column; nil for a blob that it cannot read.
	Decode map[string]func(blob []byte) []byte

	// Packed names, by a JSON column, an optional column that has the same JSON in another form where the first is null:
	// Decode reads it, and the record has only the first, so that packing a row does not change its record.
	Packed map[string]string

	// Prefixes are those of the keys that are read; empty for all.
	Prefixes []string
	// Members are the members of the objects in JSON columns that are read; nil for all.
	Members []string
	// Omitted are the names of members that are left out of JSON columns, at any depth. A name may begin with a star,
	// which stands for any beginning.
	Omitted []string

	Parent   string // column with the key of a row of an earlier table, behind which the record belongs; empty for none
	Of       string // that table; empty if it is not read
	InParent bool   // Key identifies a row among those of its parent alone, such as a number in a session
	Order    string // column by which the rows of a parent are sorted; those with equal values by their keys

	// ParentOf returns the key of the parent by the key of a row, of a table that has no column for it. Nil if Parent
	// names the column.
	ParentOf func(key string) string
	// Listed returns the keys of the rows of a parent, in the order of their records, from the first JSON column of the
	// parent. No other rows are read. Those behind the first final keys may still be written: they are read when the
	// database is idle. Nil if all rows are read.
	Listed func(parent string, value []byte) (keys []string, final int)
}

// Selects reports whether Members or Omitted name members of the JSON columns.
func (t *Table) Selects() bool { return t.Members != nil || t.Omitted != nil }

// Omits reports whether a member is left out of the JSON columns. depth is 1 in the object of the column.
func (t *Table) Omits(member string, depth int) bool {
	if depth == 1 && t.Members != nil && !slices.Contains(t.Members, member) {
		return true
	}
	return slices.ContainsFunc(t.Omitted, func(name string) bool {
		end, ok := strings.CutPrefix(name, "*")
		return name == member || ok && strings.HasSuffix(member, end)
	})
}
