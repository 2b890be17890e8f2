package search

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode"
	"unicode/utf16"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"tributary/envelopes"
	"tributary/pipeline/events"
	"tributary/pipeline/filters"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"one two":             {"one", "two"},
		`one "two  three"`:    {"one", "two three"},
		`"open phrase`:        {"open phrase"},
		`a"b c"d`:             {"a", "b c", "d"},
		"\t tab\nline\u00a0x": {"tab", "line", "x"},
	} {
		terms, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		all := make([]string, len(want))
		for i, w := range want {
			all[i] = expressionOf(w)
		}
		if diff := cmp.Diff(strings.Join(all, "|"), terms.any.String()); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
	for text, want := range map[string]error{
		"": ErrNoTerms, ` "" `: ErrNoTerms, strings.Repeat("a ", MaxTerms+1): ErrTooLong, strings.Repeat("a", MaxBytes+1): ErrTooLong,
	} {
		if _, err := Parse(text); !errors.Is(err, want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// alphabet has what JSON escapes, must escape or may spell in two ways, and letters with one case, two or three.
var alphabet = []rune("aBkKsS1.ééÉßſKİı日本\"\\\\//<>&'\n\t  \u00a0\u2028\U0001F600\x1b\x7f")

func draw(r *rand.Rand, length int) string {
	text := make([]rune, length)
	for i := range text {
		text[i] = alphabet[r.IntN(len(alphabet))]
	}
	return string(text)
}

// quote spells a text as JSON of any vendor: what need not be escaped may be.
func quote(r *rand.Rand, text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range text {
		switch {
		case c == '/' && r.IntN(2) == 0:
			b.WriteString(`\/`)
		case c == '"' || c == '\\':
			b.WriteString(`\` + string(c))
		case c < ' ' || r.IntN(4) == 0:
			for _, unit := range utf16.Encode([]rune{c}) {
				fmt.Fprintf(&b, `\u%04x`, unit)
			}
		default:
			b.WriteRune(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// matches is the plain form of what a term means.
func matches(term, text []rune) bool {
	for i := range text {
		if matchesAt(term, text[i:]) {
			return true
		}
	}
	return false
}

func matchesAt(term, text []rune) bool {
	switch {
	case len(term) == 0:
		return true
	case len(text) == 0:
		return false
	case unicode.IsSpace(term[0]):
		return unicode.IsSpace(text[0]) && (matchesAt(term[1:], text[1:]) || matchesAt(term, text[1:]))
	case term[0] < 0x80:
		return text[0] < 0x80 && unicode.ToLower(term[0]) == unicode.ToLower(text[0]) && matchesAt(term[1:], text[1:])
	}
	same := term[0] == text[0]
	for c := unicode.SimpleFold(term[0]); c != term[0]; c = unicode.SimpleFold(c) {
		same = same || c == text[0]
	}
	return same && matchesAt(term[1:], text[1:])
}

// An event is a hit exactly if decoding it shows every term, however its JSON is spelled, and its bytes are never passed
// over then. A filter leaves out no event whose bytes may match.
func TestNoSpellingHidesAHit(t *testing.T) {
	t.Parallel()
	const rounds = 40_000
	r := rand.New(rand.NewPCG(1, 2))
	hits, passed, filtered := 0, 0, 0
	var f filters.Filter
	for range rounds {
		text := draw(r, r.IntN(16))
		word := draw(r, 1+r.IntN(3))
		if whole := []rune(text); len(whole) > 0 && r.IntN(2) == 0 {
			from := r.IntN(len(whole))
			word = string(whole[from : from+1+r.IntN(len(whole)-from)])
		}
		if r.IntN(2) == 0 {
			word = strings.ToUpper(word)
		}
		if word = strings.Join(strings.Fields(word), " "); word == "" {
			continue
		}
		terms, err := newTerms([]string{word})
		if err != nil {
			t.Fatal(err)
		}
		e := drawEvent(r, text)
		data, err := e.AppendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		outline, err := envelopes.DecodeOutline(data)
		if err != nil {
			t.Fatal(err)
		}
		want := matches([]rune(word), []rune(text))
		s := Search{Terms: terms}
		got := s.hitOf(&events.Event{AgentEventV1: outline}, data) != nil
		may := terms.mayMatch(data)
		f = filters.Filter{}
		f.Add(data)
		lacks := terms.lackedBy(&f)
		if got != want || want && !may || may && lacks {
			t.Fatalf("%q in %q: %v, want %v; its bytes may match: %v; its filter lacks it: %v\n%s", word, text, got, want, may, lacks, data)
		}
		if lacks {
			filtered++
		}
		if want {
			hits++
		}
		if may {
			passed++
		}
	}
	if hits < rounds/20 || passed > rounds*9/10 || filtered < rounds/100 {
		t.Errorf("%d hits, %d of %d events are decoded, and filters leave out %d: the test draws too few of one kind", hits, passed, rounds, filtered)
	}
}

// drawEvent returns an event with a text in one of the places that are searched.
func drawEvent(r *rand.Rand, text string) *envelopes.AgentEventV1 {
	e := &envelopes.AgentEventV1{
		SchemaVersion: envelopes.SchemaVersion, Source: envelopes.ClaudeCode, SessionID: "#", EventID: "#", TS: "#",
		EventType: envelopes.UserMessage, Raw: jsontext.Value(`{"nothing":["is searched here"]}`),
	}
	switch r.IntN(5) {
	case 0:
		e.Text = &text
	case 1:
		e.EventType, e.Text = envelopes.ToolCall, new(`{"x":`+quote(r, text)+`}`)
	case 2:
		e.EventType, e.ToolInput = envelopes.ToolResult, jsontext.Value(`{"x":[`+quote(r, text)+`]}`)
	case 3:
		e.EventType, e.ToolMetadata = envelopes.ToolResult, jsontext.Value(`{"x":{"y":`+quote(r, text)+`}}`)
	default:
		e.EventType, e.ToolOutput = envelopes.ToolResult, &envelopes.ToolOutput{Stderr: &text}
	}
	return e
}

func TestSnippetsShowTheMatch(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("word ", 1000)
	for name, c := range map[string]struct{ terms, text, want string }{
		"short":       {"Two", "one two three", "one [two] three"},
		"long":        {"needle", long + "a Needle here " + long, "…" + strings.Repeat("word ", 11) + "a [Needle] here" + strings.Repeat(" word", 34) + "…"},
		"several":     {"a b", "b x a x B", "[b] x [a] x [B]"},
		"phrase":      {`"a b"`, "x a \n b y", "x [a b] y"},
		"escapes":     {"red", "\x1b[31mred\x1b[0m \u202egreen\x00", "[red] �green�"},
		"markup":      {"alert", `<script>alert("x")</script>`, `<script>[alert]("x")</script>`},
		"one word":    {"x", strings.Repeat("y", 300) + "x" + strings.Repeat("z", 300), "…" + strings.Repeat("y", 60) + "[x]" + strings.Repeat("z", 177) + "…"},
		"a long term": {strings.Repeat("q", 200), strings.Repeat("q", 200), "[" + strings.Repeat("q", 119) + "…]"},
	} {
		terms, err := Parse(c.terms)
		if err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		snippet, _ := terms.snippet(InText, c.text, terms.any.FindStringIndex(c.text))
		for _, p := range snippet.Parts {
			if p.Marked {
				got.WriteString("[" + p.Text + "]")
			} else {
				got.WriteString(p.Text)
			}
		}
		if diff := cmp.Diff(c.want, got.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestNeedlesAreFoundInEitherCase compares with a search of the text in lower case.
func TestNeedlesAreFoundInEitherCase(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	draw := func(letters string, length int) []byte {
		text := make([]byte, length)
		for i := range text {
			text[i] = letters[r.IntN(len(letters))]
		}
		return text
	}
	found := 0
	for range 40_000 {
		text := draw("abAB@`[{zZ\xe1\xc1", r.IntN(24))
		lower := make([]byte, len(text))
		for i, b := range text {
			if lower[i] = b; 'A' <= b && b <= 'Z' {
				lower[i] += 'a' - 'A'
			}
		}
		needles := needlesOf(string(draw("abAB@`[{zZ", 1+r.IntN(4))))
		got, want := needles[0].index(text), bytes.Index(lower, needles[0].lower)
		if got != want {
			t.Fatalf("%q is at %d in %q, not at %d", needles[0].lower, want, text, got)
		}
		if want >= 0 {
			found++
		}
	}
	if found < 1000 {
		t.Errorf("only %d needles were there to find", found)
	}
}
