package terminal

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestCutKeepsWordsAndGraphemes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text  string
		Width int
		want  string
	}{
		"it fits":                      {"to be or not", 12, "to be or not"},
		"between words":                {"to be or not", 11, "to be or…"},
		"after a word":                 {"to be or not", 6, "to be…"},
		"one long word":                {"antidisestablishmentarianism", 10, "antidises…"},
		"a long word behind a word":    {"see https://example.com/a/very/long/path", 36, "see https://example.com/a/very/long…"},
		"wide characters":              {"日本語の文字", 8, "日本語…"},
		"a grapheme of several runes":  {"ab👩‍👩‍👧‍👦👩‍👩‍👧‍👦", 5, "ab👩‍👩‍👧‍👦…"},
		"a letter with an accent":      {"cafe\u0301ss", 5, "cafe\u0301…"},
		"styled":                       {"\x1b[1mto be\x1b[0m or not", 8, "\x1b[1mto be\x1b[0m…"},
		"nothing fits":                 {"to be", 1, "…"},
		"a space where the line ends":  {"to be or not", 9, "to be or…"},
		"no space behind the last one": {"a bcd", 4, "a…"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := Cut(c.text, c.Width); got != c.want {
				t.Errorf("cut(%q, %d) = %q, want %q", c.text, c.Width, got, c.want)
			}
		})
	}
}

func TestCutFitsItsWidth(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := OneLine(rapid.String().Draw(t, "text"))
		width := rapid.IntRange(1, 40).Draw(t, "width")
		got := Cut(text, width)
		if n := WidthOf(got); n > width || !utf8.ValidString(got) {
			t.Fatalf("%q has the width %d, not %d", got, n, width)
		}
		if head, was := strings.CutSuffix(got, "…"); got != text && (!was || !strings.HasPrefix(text, head)) {
			t.Fatalf("%q is not the beginning of %q", got, text)
		}
	})
}

func TestCutPathKeepsTheLastElements(t *testing.T) {
	t.Parallel()
	for width, want := range map[int]string{20: "/home/ada/src/ledger", 19: "…/ada/src/ledger", 13: "…/src/ledger", 8: "…/ledger", 7: "ledger", 5: "ledg…"} {
		if got := CutPath("/home/ada/src/ledger", width); got != want {
			t.Errorf("width %d: %q, want %q", width, got, want)
		}
	}
}

// TestCutAroundKeepsTheMatch has a match within a word anywhere in a line, and one of the whole line.
func TestCutAroundKeepsTheMatch(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(rapid.StringMatching(`[a-z]{1,14}`), 1, 30).Draw(t, "words")
		i := rapid.IntRange(0, len(words)-1).Draw(t, "place")
		words[i] = rapid.StringMatching(`[a-z]{0,12}`).Draw(t, "before") + "NEEDLE" + rapid.StringMatching(`[a-z]{0,12}`).Draw(t, "behind")
		line, width := strings.Join(words, " "), rapid.IntRange(12, 60).Draw(t, "width")
		got := CutAround(line, regexp.MustCompile("NEEDLE"), width)
		if !strings.Contains(got, "NEEDLE") || WidthOf(got) > width {
			t.Fatalf("%q in the width %d is %q", line, width, got)
		}
	})
	if got := CutAround("many words many words", regexp.MustCompile(".*"), 12); got != "many words…" {
		t.Errorf("a match of the whole line: %q", got)
	}
}

func TestWrapKeepsEveryWord(t *testing.T) {
	t.Parallel()
	got := Wrap("set OTEL_EXPORTER_PROMETHEUS_HOST or https://example.com/a/path/that/is/longer/than/a/line", 34, 4)
	want := []string{"set OTEL_EXPORTER_PROMETHEUS_HOST", "    or https://example.com/a/path/", "    that/is/longer/than/a/line"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	rapid.Check(t, func(t *rapid.T) {
		text := OneLine(rapid.String().Draw(t, "text"))
		width, hang := rapid.IntRange(16, 60).Draw(t, "width"), rapid.IntRange(0, 80).Draw(t, "hang")
		lines := Wrap(text, width, hang)
		for _, line := range lines {
			if n := WidthOf(line); n > width {
				t.Fatalf("%q has the width %d, not %d", line, n, width)
			}
		}
		if got := strings.Join(strings.Fields(strings.Join(lines, "")), ""); got != strings.Join(strings.Fields(text), "") {
			t.Fatalf("%q is not %q", lines, text)
		}
	})
}
