package envelopes

import (
	"errors"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestHeaderValuesArePercentEncoded(t *testing.T) {
	t.Parallel()
	// The first is the example of the NATS binding, section 3.1.3.2.
	for s, want := range map[string]string{
		"Euro € 😀":    "Euro%20%E2%82%AC%20%F0%9F%98%80",
		"":            "",
		"plain-1_~!#": "plain-1_~!#",
		"100%":        "100%25",
		"say \"x\"":   "say%20%22x%22",
		"a\r\nb\x00":  "a%0D%0Ab%00",
	} {
		if got := EncodeHeaderValue(s); got != want {
			t.Errorf("EncodeHeaderValue(%q) = %s, want %s", s, got, want)
		}
	}
	// Values of other writers.
	for value, want := range map[string]string{
		"Euro € 😀":              "Euro € 😀",
		"%e2%82%ac%41":          "€A",
		`"quoted \"x\" \\ %41"`: `quoted "x" \ A`,
		" trimmed\t":            "trimmed",
		"100%":                  "100%",
		"%zz%4":                 "%zz%4",
		"%2541":                 "%41",
		`"`:                     `"`,
		`""`:                    "",
		`"a\"`:                  `a\`,
	} {
		if got, err := DecodeHeaderValue(value); err != nil || got != want {
			t.Errorf("DecodeHeaderValue(%q) = %q, %v, want %q", value, got, err, want)
		}
	}
	for _, value := range []string{"%C0%A0", "%FF", "\xff", "%ED%A0%80"} {
		if got, err := DecodeHeaderValue(value); !errors.Is(err, errInvalidHeader) {
			t.Errorf("DecodeHeaderValue(%q) = %q, %v", value, got, err)
		}
	}
}

func TestAnyStringSurvivesAHeaderValue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.String(), anyID()).Draw(t, "s")
		value := EncodeHeaderValue(s)
		for _, c := range []byte(value) {
			if c < '!' || c > '~' || c == '"' {
				t.Fatalf("%q is not a valid header value", value)
			}
		}
		if got, err := DecodeHeaderValue(value); err != nil || got != s {
			t.Fatalf("%q comes back as %q, %v", s, got, err)
		}
	})
}

func TestPositionSurvivesItsHeader(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		offset := rapid.Int64Range(0, math.MaxInt64).Draw(t, "offset")
		previous := rapid.Int64Range(-1, math.MaxInt64).Draw(t, "previous")
		o, p, err := ParsePosition(FormatPosition(offset, previous))
		if err != nil || o != offset || p != previous {
			t.Fatalf("%d %d: %v", o, p, err)
		}
	})
	if got := FormatPosition(2048, -1); got != "2048 -1" {
		t.Error(got)
	}
	for _, value := range []string{"", "1", "1 ", " 1 2", "1  2", "-1 -1", "1 -2", "01 2", "1 +2", "1 2 3", "a b", "9223372036854775808 0"} {
		if _, _, err := ParsePosition(value); !errors.Is(err, errInvalidHeader) {
			t.Errorf("%q: %v", value, err)
		}
	}
}

func TestTimeSurvivesItsHeader(t *testing.T) {
	t.Parallel()
	at := time.Date(2025, 11, 26, 13, 51, 28, 93_000_001, time.FixedZone("", 3600))
	value := FormatTime(at)
	if value != "2025-11-26T12:51:28.093000001Z" {
		t.Error(value)
	}
	if got, err := ParseTime(value); err != nil || !got.Equal(at) || got.Location() != time.UTC {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := ParseTime("yesterday"); !errors.Is(err, errInvalidHeader) {
		t.Error(err)
	}
}
