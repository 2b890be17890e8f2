package terminal

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"pgregory.net/rapid"
)

func TestPrintableIsSafeAndReadable(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ in, want string }{
		"plain text stays":                {"naïve 日本語 🎉\n\tok", "naïve 日本語 🎉\n\tok"},
		"colours are dropped":             {"\x1b[1;31mFAIL\x1b[0m \u009b32mok", "FAIL ok"},
		"clipboard sequence shows":        {"\x1b]52;c;ZXZpbA==\x07x", "\ufffd]52;c;ZXZpbA==\ufffdx"},
		"hyperlink shows":                 {"\x1b]8;;http://evil\x1b\\text", "\ufffd]8;;http://evil\ufffd\\text"},
		"cursor movement shows":           {"a\x1b[2J\x1b[Hb", "a\ufffd[2J\ufffd[Hb"},
		"device control shows":            {"\x1bP+q544e\x1b\\", "\ufffdP+q544e\ufffd\\"},
		"C1 controls are marked":          {"\u009d0;t\u009c", "\ufffd0;t\ufffd"},
		"bidirectional controls":          {"user\u202e txt.exe\u2066", "user\ufffd txt.exe\ufffd"},
		"zero-width characters":           {"pass\u200bword\ufeff", "password"},
		"tag characters":                  {"hi\U000e0041\U000e0042", "hi\ufffd\ufffd"},
		"invisible letters":               {"a\u3164b", "a\ufffdb"},
		"bell and backspace":              {"ok\x07\x08\x08no", "ok\ufffd\ufffd\ufffdno"},
		"carriage return cannot go back":  {"10%\r20%\r\ndone", "10%\n20%\ndone"},
		"line separators":                 {"a\u2028b", "a\ufffdb"},
		"invalid UTF-8":                   {"a\xff\x9bb", "a\ufffd\ufffdb"},
		"colour rebuilt by dropped runes": {"\x1b\x1b[0m[31mx", "\ufffd[31mx"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := Printable(tt.in); got != tt.want {
				t.Errorf("printable(%q) = %q, want %q", tt.in, got, tt.want)
			}
		})
	}
}

func TestOneLineCollapsesWhiteSpace(t *testing.T) {
	t.Parallel()
	if got, want := OneLine("  a\r\n\tb\x1b[0m  c "), "a b c"; got != want {
		t.Errorf("oneLine = %q, want %q", got, want)
	}
}

// hostile draws strings of everything that a sanitizer must handle.
var hostile = rapid.Custom(func(t *rapid.T) string {
	pieces := rapid.SliceOf(rapid.OneOf(
		rapid.String(),
		rapid.SampledFrom([]string{"\x1b", "[31m", "\x1b[0m", "\x1b]52;c;x\x07", "\u009b", "\u202e", "\u200b", "\U000e0041", "\xff", "\r\n", "\r", "\t", "\"", "\\"}),
	)).Draw(t, "pieces")
	return strings.Join(pieces, "")
})

// A string that was made safe does not change any more.
func TestPrintableHasNoUnsafeRune(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := hostile.Draw(t, "s")
		out := Printable(s)
		if !utf8.ValidString(out) {
			t.Fatalf("not UTF-8: %q", out)
		}
		for _, r := range out {
			if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) {
				t.Fatalf("unsafe %U in %q", r, out)
			}
		}
		if again := Printable(out); again != out {
			t.Fatalf("printable is not idempotent: %q, then %q", out, again)
		}
		if strings.ContainsAny(OneLine(s), "\n\t") {
			t.Fatalf("oneLine has several lines: %q", OneLine(s))
		}
	})
}

func TestPrintableJSONHasTheSameValue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := strings.ToValidUTF8(hostile.Draw(t, "s"), "")
		in, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		out := printableJSON(string(in))
		if i := strings.IndexFunc(out, isUnsafe); i >= 0 {
			t.Fatalf("unsafe rune at %d of %q", i, out)
		}
		var back string
		if err := json.Unmarshal([]byte(out), &back); err != nil {
			t.Fatalf("%q: %v", out, err)
		}
		if back != s {
			t.Fatalf("%q became %q", s, back)
		}
	})
}
