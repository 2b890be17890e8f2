package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// thousands writes a number with a comma between thousands.
func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	first := len(s) - len(strings.TrimPrefix(s, "-")) // of the digits
	for i := len(s) - 3; i > first; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// plural is "1 event" or "2 events".
func plural(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return thousands(int64(n)) + " " + noun
}

// size writes a number of bytes in the unit that suits it.
func size(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	default:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	}
}

// rough writes a duration to the second, a long one to the minute.
func rough(d time.Duration) string {
	if d < 10*time.Minute {
		return d.Round(time.Second).String()
	}
	return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
}

// dateTime writes a time in the local time zone.
func dateTime(t time.Time) string { return t.Local().Format(time.DateTime) }

// numbers writes sorted numbers as ranges: 0-3 7.
func numbers(list []int) string {
	if len(list) == 0 {
		return "none"
	}
	var parts []string
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && list[j+1] == list[j]+1 {
			j++
		}
		if j == i {
			parts = append(parts, strconv.Itoa(list[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", list[i], list[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, " ")
}
