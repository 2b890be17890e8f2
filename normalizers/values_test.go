package normalizers_test

import (
	"strings"
	"testing"

	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/normalizers/normalizerstest"
)

// A record of more values than a worker has memory for is a dead letter with that reason, for every
// vendor; one at the limit is read.
func TestTooManyValuesAreADeadLetter(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("reads a hundred megabytes")
	}
	// Each comma, each string and each bracket counts.
	numbers := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat("1,", n), ",") + "]" }
	cases := []struct {
		name string
		data []byte // normalizers do not change it
		want string
	}{
		{"at the limit", []byte(numbers(core.MaxValues)), ""},
		{"beyond it", []byte(numbers(core.MaxValues + 1)), "too_many_values"},
		{"commas and brackets in a string", []byte(`["\"` + strings.Repeat("{[,", core.MaxValues) + `"]`), ""},
		{"strings", []byte("[" + strings.TrimSuffix(strings.Repeat(`"",`, core.MaxValues/2+1), ",") + "]"), "too_many_values"},
		{"objects that JSON is not strict about", []byte("[\"\xff\"," + strings.TrimSuffix(strings.Repeat(`{},`, core.MaxValues/2), ",") + "]"), "too_many_values"},
	}
	for _, s := range suites {
		t.Run("source="+string(s.Source), func(t *testing.T) {
			t.Parallel()
			for _, c := range cases {
				st := normalizerstest.Fold(normalizers.Normalize, normalizerstest.Single(s, c.data))[0]
				if reason, _ := core.Reason(st.Err); reason != c.want {
					t.Errorf("%s: reason %q (%v), want %q", c.name, reason, st.Err, c.want)
				}
			}
		})
	}
}
