package main

import (
	"strings"
	"testing"

	"tributary/cmd/internal/terminal"
	"tributary/pipeline/sessions"
)

// TestShortIDsAreUnique has ids that begin alike, one that is the beginning of another, one that is short, and one twice.
func TestShortIDsAreUnique(t *testing.T) {
	t.Parallel()
	ids := []string{
		"019cd1f0-7c1e-7b52-9a41-3f0d5e8c2b17", "019cd1f0-7c1f-7b52-9a41-3f0d5e8c2b17", "6a1f2c9e-3b5d-4e70-9c84-1d2f6b8a7e53",
		"session-2026-03-09", "session-2026-03-09-b", "session-2026-03-1", "s", "日本語のセッション一", "日本語のセッション二", "twice-twice", "twice-twice", "\x1b[31mred-and-long",
	}
	list := make([]sessionView, len(ids))
	for i, id := range ids {
		list[i].Summary = sessions.Summary{Session: id}
	}
	short, whole := shortIDs(list, nil, 80), shortIDs(list, nil, terminal.Uncut)
	for i, id := range short {
		if whole[i] != terminal.OneLine(ids[i]) || !strings.HasPrefix(whole[i], id) {
			t.Errorf("%q is shown as %q and as %q", ids[i], whole[i], id)
		}
		for j, other := range whole {
			if other != whole[i] && id != whole[i] && strings.HasPrefix(other, id) {
				t.Errorf("%q is the beginning of %q and of %q", id, whole[i], whole[j])
			}
		}
	}
	if short[2] != "6a1f2c9e" || short[0] != "019cd1f0-7c1e" || short[6] != "s" {
		t.Errorf("short ids %q", short)
	}
	if short := shortIDs(list[2:3], []string{ids[2], "6a1f2c9e-3c"}, 80); short[0] != "6a1f2c9e-3b" {
		t.Errorf("beside another session: short ids %q", short)
	}
}
