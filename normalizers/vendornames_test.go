package normalizers_test

import (
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// vendorNameAllowed are the files outside the vendors' folders that name a vendor for good, each
// with the names and the reason. A path may be a pattern.
var vendorNameAllowed = []struct{ file, names, reason string }{
	{"normalizers/vendors.go", "*", "the table of vendors"},
	{"envelopes/agentevent.go", "*", "the enum of sources"},
	{"normalizers/unsupported.go", "qwen", "its runs print another log than it keeps"},
	{"cmd/internal/printer/lines.go", "acp", "the protocol, a form of output"},
	{"envelopes/schema/schema.go", "acp", "the protocol, a form of output"},
	{"pipeline/genai/model.go", "claude codex gemini grok", "families of models"},
	{"normalizers/core/vendor.go", "vscode", "the folder of an editor on a server"},
	{"normalizers/core/profile.go", "opencode", "the name of a shape of tool_metadata"},
	{"pipeline/streams/settings.go", "opencode", "the name of a shape of tool_metadata"},
	{"cmd/tributary/config.go", "opencode", "TRIBUTARY_TOOL_METADATA, the name of a shape"},
	{"pipeline/export/row.go", "claude", "the member of metadata that has the version in its streams"},
	{"pipeline/pipelinetest/workload.go", "claude", "writes records of one vendor for tests"},
	{"pipeline/pipelinetest/log.go", "codex", "writes logs with and without record ids for tests"},
}

// commonNames are names of vendors that are words of the field too: they count as the vendor's
// name only as a whole string literal, as the constant of package envelopes, or as the pattern in
// a comment.
var commonNames = map[string]*regexp.Regexp{
	"cursor": regexp.MustCompile(`[a-z,;:(] Cursor\b|^// Cursor$`), // not at the start of a sentence
	"acp":    nil,                                                  // comments may name the protocol
	"amp":    regexp.MustCompile(`\bAmp\b`),
	"cline":  regexp.MustCompile(`\bCline\b`),
	"droid":  regexp.MustCompile(`\bDroid\b`),
	"goose":  regexp.MustCompile(`\bGoose\b`),
	"otel":   nil, // packages of OpenTelemetry have the name
	"kilo":   regexp.MustCompile(`\bKilo\b`),
	"pi":     regexp.MustCompile(`\bPi\b`),
	"roo":    regexp.MustCompile(`\bRoo\b`),
	"vibe":   regexp.MustCompile(`\bVibe\b`),
}

// TestVendorNames checks that the name of a vendor stands in the vendor's folder, in the table of
// vendors and in the enum of sources only, so that a new vendor changes nothing else.
func TestVendorNames(t *testing.T) {
	t.Parallel()
	rooms := make(map[string]bool)
	for _, s := range suites {
		rooms[s.Room] = true
	}
	used := make(map[int]bool)
	for _, file := range sourceFiles(t, rooms) {
		found := vendorNames(t, file, rooms)
		for _, name := range slices.Sorted(maps.Keys(found)) {
			i := slices.IndexFunc(vendorNameAllowed, func(a struct{ file, names, reason string }) bool {
				ok, err := path.Match(a.file, file)
				return err == nil && ok && (a.names == "*" || slices.Contains(strings.Fields(a.names), name))
			})
			switch {
			case i >= 0:
				used[i] = true
			default:
				t.Errorf("%s names the vendor %q: %s", file, name, strings.Join(found[name], ", "))
			}
		}
	}
	for i, a := range vendorNameAllowed {
		isVendor := a.names == "*" || slices.ContainsFunc(strings.Fields(a.names), func(name string) bool { return rooms[name] })
		if isVendor && !used[i] {
			t.Errorf("%s names none of %s: remove it from vendorNameAllowed", a.file, a.names)
		}
	}
}

// TestVendorNamesAreFound shows each form in which a name is found, and what is none.
func TestVendorNamesAreFound(t *testing.T) {
	t.Parallel()
	rooms := map[string]bool{"claude": true, "cursor": true, "acp": true}
	for source, want := range map[string]string{
		"// of Claude's SDK":                 "claude",
		"var claudeCode int":                 "claude",
		"var _ = envelopes.ClaudeCode":       "claude",
		"var _ = `~/.claude/projects`":       "claude",
		`import "tributary/normalizers/acp"`: "",
		"var _ = envelopes.ACP":              "acp",
		`var _ = "acp"`:                      "acp",
		"// as ACP sends them":               "",
		"var _ = envelopes.Cursor":           "cursor",
		`var _ = "cursor"`:                   "cursor",
		"// records of Cursor":               "cursor",
		"// Cursor":                          "cursor",
		"// Cursor moves on. A cursor":       "",
		"var cursor = rows.Cursor":           "",
	} {
		found := namesIn([]byte("package p\n"+source), false, rooms)
		if got := strings.Join(slices.Sorted(maps.Keys(found)), " "); got != want {
			t.Errorf("%s names %q, want %q", source, got, want)
		}
	}
	if found := namesIn([]byte("package envelopes\nvar _ = Cursor"), true, rooms); found["cursor"] == nil {
		t.Error("the constant is not found in its package")
	}
}

// sourceFiles returns the Go files of the module that are no tests and in no vendor's folder.
func sourceFiles(t *testing.T, rooms map[string]bool) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir("..", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		file := strings.TrimPrefix(filepath.ToSlash(name), "../")
		if d.IsDir() {
			base := path.Base(file)
			if strings.HasPrefix(base, ".") && base != ".." || base == "testdata" || path.Dir(file) == "normalizers" && rooms[base] {
				return filepath.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(file, ".go") && !strings.HasSuffix(file, "_test.go") {
			out = append(out, file)
		}
		return nil
	})
	if err != nil || len(out) < 50 {
		t.Fatalf("%d files, %v", len(out), err)
	}
	return out
}

// vendorNames returns the vendors that a file names, each with the places.
func vendorNames(t *testing.T, file string, rooms map[string]bool) map[string][]string {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(file)))
	if err != nil {
		t.Fatal(err)
	}
	return namesIn(source, path.Dir(file) == "envelopes", rooms)
}

// namesIn returns the vendors that a Go source names, each with the places. ofEnum says that the
// source is of the package of the constants.
func namesIn(source []byte, ofEnum bool, rooms map[string]bool) map[string][]string {
	found := make(map[string][]string)
	files := token.NewFileSet()
	file := files.AddFile("", -1, len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, scanner.ScanComments)
	var before [2]string // the two tokens before
	for {
		pos, kind, text := s.Scan()
		if kind == token.EOF {
			return found
		}
		for name := range rooms {
			if isVendorName(name, kind, text, ofEnum || before == [2]string{"envelopes", "."}) {
				found[name] = append(found[name], fmt.Sprintf("line %d: %s", files.Position(pos).Line, strings.ReplaceAll(text, "\n", " ")))
			}
		}
		if kind != token.IDENT && text == "" {
			text = kind.String()
		}
		before = [2]string{before[1], text}
	}
}

// isVendorName reports whether a token of a Go source names a vendor.
func isVendorName(name string, kind token.Token, text string, isEnum bool) bool {
	comment, common := commonNames[name]
	switch {
	case !common:
		return strings.Contains(strings.ToLower(text), name)
	case kind == token.STRING:
		return len(text) > 2 && text[1:len(text)-1] == name
	case kind == token.IDENT:
		return isEnum && text != name && strings.EqualFold(text, name)
	default:
		return kind == token.COMMENT && comment != nil && comment.MatchString(text)
	}
}
