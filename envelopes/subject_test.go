package envelopes

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestTokenOfAnyIDIsOneToken(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"0199a213-81c0_X":        "0199a213-81c0_X",
		strings.Repeat("a", 64):  strings.Repeat("a", 64),
		strings.Repeat("a", 65):  "~" + strings.Repeat("YWFh", 21) + "YWE",
		strings.Repeat("a", 120): "~" + strings.Repeat("YWFh", 40),
		strings.Repeat("a", 121): "~~e9615320128cc7a3d6078e9af05603188e5ccbf0d07d8b735d3df5e8e0c1281f",
		"a.b":                    "~YS5i",
		"*":                      "~Kg",
		">":                      "~Pg",
		"call_x\nfc_y":           "~Y2FsbF94CmZjX3k",
		"é":                      "~w6k",
		"~":                      "~fg",
		"~YS5i":                  "~fllTNWk",
	} {
		if got := Token(id); got != want {
			t.Errorf("Token(%q) = %s, want %s", id, got, want)
		}
	}
}

func TestParseTokenRejectsTokensOfNoID(t *testing.T) {
	t.Parallel()
	for name, token := range map[string]string{
		"empty":                      "",
		"the empty id":               "~",
		"wildcard":                   "*",
		"all":                        ">",
		"dot":                        "a.b",
		"space":                      "a b",
		"long plain":                 strings.Repeat("a", 65),
		"plain id encoded":           "~YWJj",
		"padding":                    "~Kg==",
		"bits after the end":         "~Kh",
		"line break":                 "~K\ng",
		"standard alphabet":          "~w7/Dvw",
		"invalid UTF-8":              "~_w",
		"id that needs a digest":     "~" + strings.Repeat("YWFh", 41),
		"digest too short":           "~~abc",
		"digest in upper case":       "~~" + strings.Repeat("A", 64),
		"digest with something else": "~~" + strings.Repeat("g", 64),
	} {
		if id, _, err := ParseToken(token); !errors.Is(err, errInvalidSubject) {
			t.Errorf("%s: ParseToken(%q) = %q, %v", name, token, id, err)
		}
	}
}

func TestAnyIDSurvivesItsToken(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		id := anyID().Draw(t, "id")
		token := Token(id)
		if strings.ContainsAny(token, ".*> \t\r\n") || token == "" || len(token) > 161 {
			t.Fatalf("%q is not a token of a subject", token)
		}
		got, whole, err := ParseToken(token)
		if err != nil || whole && got != id || whole != (len(id) <= 120) {
			t.Fatalf("ParseToken(%q) = %q, %v, %v", token, got, whole, err)
		}
		if got, err := ResolveToken(token, id); err != nil || got != id {
			t.Fatalf("ResolveToken(%q) = %q, %v", token, got, err)
		}
	})
}

func TestDifferentIDsHaveDifferentTokens(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		// An id that looks like the token of another is the most likely to collide.
		a := anyID().Draw(t, "a")
		b := rapid.OneOf(anyID(), rapid.Just(Token(a)), rapid.Just("~"+a), rapid.Just("~~"+a)).Draw(t, "b")
		if (Token(a) == Token(b)) != (a == b) {
			t.Fatalf("%q and %q: %s and %s", a, b, Token(a), Token(b))
		}
	})
}

func TestStatedIDMustMatchItsToken(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("session ", 20)
	for name, test := range map[string]struct {
		token, stated, want string
	}{
		"whole, nothing stated":   {"abc", "", "abc"},
		"whole, the same stated":  {Token("a.b"), "a.b", "a.b"},
		"whole, another stated":   {"abc", "abd", ""},
		"digest, nothing stated":  {Token(long), "", ""},
		"digest, its id stated":   {Token(long), long, long},
		"digest, another stated":  {Token(long), long + "x", ""},
		"digest, itself stated":   {Token(long), Token(long), ""},
		"no token, its id stated": {"a.b", "a.b", ""},
	} {
		got, err := ResolveToken(test.token, test.stated)
		if got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if err != nil && !errors.Is(err, errInvalidSubject) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSubjectsHaveTheirForm(t *testing.T) {
	t.Parallel()
	e := plainToolResult()
	e.SessionID = "a.b"
	for got, want := range map[string]string{
		RawSubject(Codex, "a.b"):                             "raw.codex.~YS5i",
		EventSubject("v1", &e):                               "events.v1.codex.~YS5i.tool_result",
		EventFilter("v1", "", "", ""):                        "events.v1.*.*.*",
		EventFilter("v1", Codex, "a.b", ToolCall):            "events.v1.codex.~YS5i.tool_call",
		EventFilter("v1", "", "s", ""):                       "events.v1.*.s.*",
		DeadLetterSubject("v1", 3, Codex, "a.b"):             "deadletters.v1.3.codex.~YS5i",
		DeadLetterSubject("v1", 0, UnknownSource, "raw.*.x"): "deadletters.v1.0.unknown.~cmF3LioueA",
		DeadLetterFilter("v1", "", ""):                       "deadletters.v1.*.*.*",
		DeadLetterFilter("v1", Codex, "s"):                   "deadletters.v1.*.codex.s",
		StateSubject("v1", 15, ACP, "run 1"):                 "states.v1.15.acp.~cnVuIDE",
		CheckpointSubject("v1", 15):                          "checkpoints.v1.15",
		StateFilter("v1_2", 3):                               "states.v1_2.3.*.*",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if diff := cmp.Diff([]string{"raw.5.*.*"}, RawFilters(5)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"raw.0.*.*", "raw.*.*"}, RawFilters(0)); diff != "" {
		t.Error(diff)
	}
}

// The archive of a session never changes, and the sessions of a partition are in all of its archives.
func TestSessionsAreSpreadOverTheArchives(t *testing.T) {
	t.Parallel()
	archive, session := ArchiveOf(StateSubject("v1_2", 3, ACP, "run 1"))
	if archive != "archives.v1_2.3.2589" || session != "acp.~cnVuIDE" {
		t.Errorf("archive %s, session %s", archive, session)
	}
	used := make(map[string]bool)
	for i := range 1 << 19 {
		id := "session-" + strconv.Itoa(i)
		if Partition(Codex, id, 16) != 5 {
			continue
		}
		archive, _ := ArchiveOf(StateSubject("v1", 5, Codex, id))
		used[archive] = true
	}
	if len(used) < archives*99/100 {
		t.Errorf("the sessions of a partition are in %d of %d archives", len(used), archives)
	}
}

// matches reports whether a subject matches a filter, by the rules of the server.
func matches(filter, subject string) bool {
	f, s := strings.Split(filter, "."), strings.Split(subject, ".")
	if len(f) != len(s) {
		return false
	}
	for i := range f {
		if f[i] != "*" && f[i] != s[i] {
			return false
		}
	}
	return true
}

func TestSubjectsParseToTheirParts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e := anyEvent().Draw(t, "event")
		g := anyProvenance().Draw(t, "provenance").Generation
		partition := rapid.IntRange(0, 1023).Draw(t, "partition")
		token := Token(e.SessionID)

		type parse func(string) (Address, error)
		for subject, test := range map[string]struct {
			parse parse
			want  Address
		}{
			strings.Replace(RawSubject(e.Source, e.SessionID), "raw.", "raw.7.", 1): {ParseRawSubject, Address{Partition: 7, Source: e.Source, Token: token}},
			EventSubject(g, &e): {ParseEventSubject, Address{Generation: g, Source: e.Source, Token: token, EventType: e.EventType}},
			DeadLetterSubject(g, partition, e.Source, e.SessionID): {ParseDeadLetterSubject, Address{Generation: g, Partition: partition, Source: e.Source, Token: token}},
			CheckpointSubject(g, partition):                        {ParseCheckpointSubject, Address{Generation: g, Partition: partition}},
		} {
			got, err := test.parse(subject)
			if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
				t.Fatalf("%s: %v\n%s", subject, err, diff)
			}
			for _, other := range []parse{ParseRawSubject, ParseEventSubject, ParseDeadLetterSubject, ParseCheckpointSubject} {
				if a, err := other(subject); err == nil && a != test.want {
					t.Fatalf("%s is read as %+v", subject, a)
				}
			}
		}

		subject := EventSubject(g, &e)
		for _, filter := range []string{
			EventFilter(g, "", "", ""), EventFilter(g, e.Source, "", ""), EventFilter(g, "", e.SessionID, ""),
			EventFilter(g, "", "", e.EventType), EventFilter(g, e.Source, e.SessionID, e.EventType), GenerationSubjects(g)[0],
		} {
			if !matches(filter, subject) {
				t.Fatalf("%s does not select %s", filter, subject)
			}
		}
		if other := anyID().Draw(t, "other"); other != e.SessionID && matches(EventFilter(g, "", other, ""), subject) {
			t.Fatalf("the filter for %q selects %q", other, e.SessionID)
		}
	})
}

func TestParseRejectsSubjectsOfNoRecord(t *testing.T) {
	t.Parallel()
	for _, subject := range []string{
		"", "raw", "raw.", "raw.0", "raw.0.codex", "raw.0.codex.", "raw.0.codex.s.x", "raw.codex.s", "raw.x.*", "raw.*.>",
		"raw.00.codex.s", "raw.+1.codex.s", "raw.-1.codex.s", "raw.9223372036854775808.codex.s", "raw.0.*.s", "raw.0.codex.*",
		"raw.0.co dex.s", "raw.0.codex.~YWJj", "Raw.0.codex.s", "events.0.codex.s",
	} {
		if a, err := ParseRawSubject(subject); !errors.Is(err, errInvalidSubject) || a != (Address{}) {
			t.Errorf("%q: %+v, %v", subject, a, err)
		}
	}
	for _, subject := range []string{
		"events.v1.codex.s", "events.v1.codex.s.log.x", "events.V1.codex.s.log", "events.current.codex.s.log",
		"events..codex.s.log", "events.v1.codex.s.", "events.v1.codex.s.*",
	} {
		if a, err := ParseEventSubject(subject); !errors.Is(err, errInvalidSubject) {
			t.Errorf("%q: %+v, %v", subject, a, err)
		}
	}
	if _, err := ParseRawSubject("raw.0.future_tool.s"); err != nil {
		t.Errorf("an unknown source is valid in a subject: %v", err)
	}
}

func TestCheckGenerationAcceptsShortPlainNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"v1": true, "2026-01-fix": true, "-": true, strings.Repeat("g", 32): true,
		"": false, "current": false, "V1": false, "v.1": false, "v_1": false, "*": false, strings.Repeat("g", 33): false,
	} {
		if err := CheckGeneration(name); (err == nil) != want || err != nil && !errors.Is(err, errInvalidSubject) {
			t.Errorf("%q: %v", name, err)
		}
	}
}
