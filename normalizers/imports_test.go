package normalizers_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestImportsNoNetwork: no package of this folder, nor anything below it, can reach a network.
func TestImportsNoNetwork(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := strings.Fields(string(out))
	for _, want := range []string{"tributary/normalizers", "tributary/normalizers/core", "tributary/envelopes"} {
		if !slices.Contains(packages, want) {
			t.Errorf("%s is not among the %d packages that are listed", want, len(packages))
		}
	}
	for _, name := range []string{"net", "net/http", "github.com/nats-io/nats.go"} {
		if slices.Contains(packages, name) {
			t.Errorf("a package of normalizers imports %s, itself or by another one: go list -deps ./normalizers/... lists them", name)
		}
	}
}
