package main

import (
	"testing"
	"time"
)

// TestTimesOfFlags covers what every flag of a time takes.
func TestTimesOfFlags(t *testing.T) {
	t.Parallel()
	zone := time.FixedZone("", 3600)
	now := time.Date(2026, 3, 20, 12, 0, 0, 0, zone)
	for value, want := range map[string]time.Time{
		"":                     {},
		"0":                    now,
		"90m":                  now.Add(-90 * time.Minute),
		"7d":                   now.AddDate(0, 0, -7),
		"2w":                   now.AddDate(0, 0, -14),
		"1w2d3h":               now.AddDate(0, 0, -9).Add(-3 * time.Hour),
		"2026-03-09":           time.Date(2026, 3, 9, 0, 0, 0, 0, zone),
		"2026-03-09T14:00:00Z": time.Date(2026, 3, 9, 14, 0, 0, 0, time.UTC),
	} {
		if got, err := parseTimeIn("since", value, now, zone); err != nil || !got.Equal(want) {
			t.Errorf("%q is %v, %v, want %v", value, got, err, want)
		}
	}
	for _, value := range []string{"d", "-7d", "7d-1h", "1d1w", "1.5d", "15251w", "106751d2562048h", "18446744073709551617d", "yesterday", "7 d"} {
		if got, err := parseTimeIn("since", value, now, zone); err == nil {
			t.Errorf("%q is %v, want an error", value, got)
		}
	}
}
