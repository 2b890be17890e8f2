package copilottest

import (
	"slices"
	"testing"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/normalizerstest"
)

// Session is the session in the texts of tests.
const Session = "550e8400-e29b-41d4-a716-446655440000"

// Steps folds a text as a file of Copilot.
func Steps(text string) []normalizerstest.Step {
	return normalizerstest.Fold(normalizers.Normalize, normalizerstest.Frame(normalizerstest.FileNamed(envelopes.Copilot, "stdin"), []byte(text)))
}

// Golden returns the raw part of one of our own cases.
func Golden(t *testing.T, name string) normalizerstest.Golden {
	t.Helper()
	all := normalizerstest.Goldens(t, Suite)
	i := slices.IndexFunc(all, func(g normalizerstest.Golden) bool { return g.Name == name })
	if i < 0 {
		t.Fatalf("no case %s", name)
	}
	return all[i]
}
