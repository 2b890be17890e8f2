package core

import (
	"strings"
	"time"

	"tributary/normalizers/lenient"
)

// ParseTime converts a vendor's RFC 3339 time to the form of an event: UTC with Z, in the vendor's precision up to
// the nanosecond. It returns false for anything else.
func ParseTime(v string) (string, bool) {
	t, ok := momentOf(v)
	if !ok {
		return "", false
	}
	if isEventTime(v) {
		return v, true
	}
	layout := "2006-01-02T15:04:05"
	_, fraction, _ := strings.Cut(v, ".")
	if digits := len(fraction) - len(strings.TrimLeft(fraction, "0123456789")); digits > 0 {
		layout += ".000000000"[:1+min(digits, 9)]
	}
	return t.Format(layout + "Z"), true
}

// momentOf is [ParseTime] with a time as its result, in UTC.
func momentOf(v string) (time.Time, bool) {
	if len(v) < len("2006-01-02T15:04:05Z") || len(v) > 64 {
		return time.Time{}, false
	}
	t, err := time.Parse(time.RFC3339Nano, v)
	if err != nil {
		return time.Time{}, false
	}
	t = t.UTC()
	return t, t.Year() >= 0 && t.Year() <= 9999
}

// isEventTime reports whether a valid time is already in the form of an event.
func isEventTime(v string) bool {
	const seconds = len("2006-01-02T15:04:05")
	fraction, isUTC := strings.CutSuffix(v[seconds:], "Z")
	return isUTC && (fraction == "" || fraction[0] == '.' && len(fraction) <= len(".000000000"))
}

// formatTime formats a time in the form of an event.
func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// TimeOfMillis formats milliseconds since 1970 in the form of an event.
func TimeOfMillis(n lenient.Number) (string, bool) {
	t, ok := MomentOfMillis(n)
	if !ok {
		return "", false
	}
	return t.Format("2006-01-02T15:04:05.000Z"), true
}

// MomentOfMillis is [TimeOfMillis] with a time as its result; zero for an invalid number.
func MomentOfMillis(n lenient.Number) (time.Time, bool) {
	const year10000 = 253_402_300_800_000
	if !n.OK || n.Value <= 0 || n.Value >= year10000 {
		return time.Time{}, false
	}
	return time.UnixMilli(int64(n.Value)).UTC(), true
}
