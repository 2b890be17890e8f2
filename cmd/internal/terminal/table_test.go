package terminal

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTableFitsItsWidth has a table at widths that cut its text, and that leave out columns.
func TestTableFitsItsWidth(t *testing.T) {
	t.Parallel()
	table := &Table{
		Columns: []Column{{Head: "NAME", Text: true}, {Head: "SIZE", Right: true, Priority: 2}, {Head: "KIND", Priority: 1}},
		Rows:    [][]string{{"a name of many words", "7", "file"}, {"日本語", "1,234", ""}},
		Foot:    []string{"all", "1,241", ""},
		Style:   func(line string) string { return "*" + line },
	}
	for width, want := range map[int]string{
		80: "*NAME                   SIZE  KIND\na name of many words      7  file\n日本語                1,234\n*all                   1,241\n",
		27: "*NAME             SIZE  KIND\na name of man…      7  file\n日本語          1,234\n*all             1,241\n",
		20: "*NAME            SIZE\na name of ma…      7\n日本語         1,234\n*all            1,241\n",
		12: "*NAME\na name of m…\n日本語\n*all\n",
	} {
		var out bytes.Buffer
		if err := table.Write(&out, width); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("width %d (-want +got):\n%s", width, diff)
		}
	}
	if len(table.Columns) != 3 || len(table.Rows[0]) != 3 {
		t.Errorf("the table has changed: %v", table)
	}
}

// TestPathsKeepTheirLastElements has a table that is too narrow for its paths.
func TestPathsKeepTheirLastElements(t *testing.T) {
	t.Parallel()
	table := &Table{Columns: []Column{{Head: "REPO", Text: true, Path: true}, {Head: "SIZE", Right: true}}}
	table.Add("github.com/acme/shop", "7")
	table.Add("a-name-without-slashes", "8")
	var out bytes.Buffer
	if err := table.Write(&out, 18); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("REPO          SIZE\n…/acme/shop      7\na-name-with…     8\n", out.String()); diff != "" {
		t.Error(diff)
	}
}

// TestTableOfNamesAndValuesHasNoHeading has a list of names and values, and none.
func TestTableOfNamesAndValuesHasNoHeading(t *testing.T) {
	t.Parallel()
	table := NewTable("", "")
	for i, want := range []string{"", "size  7\n", "size      7\nmessages\n"} {
		var out bytes.Buffer
		if err := table.Write(&out, 80); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); got != want {
			t.Errorf("%d rows: %q, want %q", i, got, want)
		}
		table.Add([][]string{{"size", "7"}, {"messages", ""}, {}}[i]...)
	}
}

// TestLinesHaveTheWidthsOfTheirColumns has a value that is wider than its column, and a line that is cut.
func TestLinesHaveTheWidthsOfTheirColumns(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	lines := NewLines(&out, 24, strings.ToLower, Column{Head: "N", Width: 4, Right: true}, Column{Head: "KIND", Width: 6}, Column{Head: "TEXT"})
	for _, row := range [][]string{{"7", "file", "short"}, {"12345", "a long kind", "more"}, {"8", "", "words to be cut"}} {
		if err := lines.Add(row...); err != nil {
			t.Fatal(err)
		}
	}
	want := "   n  kind    text\n   7  file    short\n12345  a long kind  more\n   8          words to…\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A column that wraps goes on below itself, and the others stay where they are.
func TestColumnsThatWrapGoOnInFurtherLines(t *testing.T) {
	t.Parallel()
	table := &Table{Columns: []Column{{Head: "NAME"}, {Head: "SETTINGS", Wrap: true}, {Head: "PART"}}}
	table.Add("v1", "metadata=opencode mode=binary raw=carried", "all")
	table.Add("b", "none", "all")
	for width, want := range map[int]string{
		80: `NAME  SETTINGS                                   PART
v1    metadata=opencode mode=binary raw=carried  all
b     none                                       all
`,
		42: `NAME  SETTINGS                        PART
v1    metadata=opencode mode=binary   all
      raw=carried
b     none                            all
`,
	} {
		var b strings.Builder
		if err := table.Write(&b, width); err != nil {
			t.Fatal(err)
		}
		if b.String() != want {
			t.Errorf("width %d:\n%s\nwant\n%s", width, b.String(), want)
		}
	}
}
