package main

import (
	"slices"
	"strconv"
	"testing"
)

// TestLastRowsKeepPinnedSessions has lists whose first sessions are pinned.
func TestLastRowsKeepPinnedSessions(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		sessions, pinned, rows int
		want                   []string
	}{
		{3, 1, 0, []string{"0", "1", "2"}},
		{3, 1, 3, []string{"0", "1", "2"}},
		{5, 0, 3, []string{"2", "3", "4"}},
		{5, 2, 3, []string{"0", "1", "4"}},
		{5, 4, 3, []string{"0", "1", "2"}},
		{5, 5, 3, []string{"0", "1", "2"}},
	} {
		list := make([]sessionView, test.sessions)
		for i := range list {
			list[i].Session, list[i].Pinned = strconv.Itoa(i), i < test.pinned
		}
		var got []string
		for _, v := range lastRows(list, test.rows) {
			got = append(got, v.Session)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%d rows of %d sessions with %d pinned ones: %v, want %v", test.rows, test.sessions, test.pinned, got, test.want)
		}
	}
}
