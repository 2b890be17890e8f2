// Package moment reads the times that people write: dates, times and durations before now.
package moment

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Parse parses a time, a date in zone, or a duration before now. The empty text is the zero time. The error says what
// to write instead.
func Parse(value string, now time.Time, zone *time.Location) (time.Time, error) {
	if value == "" {
		return time.Time{}, nil
	}
	if ago, ok := Duration(value); ok {
		return now.Add(-ago), nil
	}
	if t, err := time.Parse(time.RFC3339, value); err == nil {
		return t, nil
	}
	for _, layout := range []string{time.DateOnly, time.DateTime, "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02T15:04"} {
		if t, err := time.ParseInLocation(layout, value, zone); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q: write a duration such as 24h or 7d, a date such as 2026-03-09, or a time such as 2026-03-09T14:00:00Z", value)
}

// Duration parses a duration of 0 or more, which may begin with weeks and with days of 24 hours: 2w, 7d, 1d12h.
func Duration(value string) (sum time.Duration, ok bool) {
	rest := value
	for _, unit := range []struct {
		name   string
		length time.Duration
	}{{"w", 7 * 24 * time.Hour}, {"d", 24 * time.Hour}} {
		number, after, found := strings.Cut(rest, unit.name)
		if !found {
			continue
		}
		n, err := strconv.ParseUint(number, 10, 63)
		if err != nil || n > uint64((math.MaxInt64-sum)/unit.length) {
			return 0, false
		}
		sum += time.Duration(n) * unit.length
		rest = after
	}
	if rest == "" && value != "" {
		return sum, true
	}
	d, err := time.ParseDuration(rest)
	return sum + d, err == nil && d >= 0 && d <= math.MaxInt64-sum
}
