package main

import (
	"fmt"
	"strings"
	"testing"
)

// The initialization of packages is paid by every start of the program: tables that few
// commands need are made by those. It is measured by what it allocates, which no load of the
// machine changes, in the program
// of the tests.
func TestPackagesAreInitializedCheaply(t *testing.T) {
	t.Parallel()
	const (
		mostOfPackage = 256 << 10
		mostOfAll     = 5 << 20
	)
	cmd := shell(t.Context(), t, t.TempDir(), "", "tributary version")
	cmd.Env = append(cmd.Env, "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	allowed := map[string]int{ // what their commands need has no lighter library
		"github.com/santhosh-tekuri/jsonschema/v6": 2 << 20, // the schemas of schemas
		"github.com/minio/minio-go/v7/pkg/s3utils": 512 << 10,
		"tributary/pipeline/redact":                512 << 10, // its patterns
		"github.com/yuin/goldmark/extension":       512 << 10, // its patterns of links in Markdown
	}
	packages, all := 0, 0
	for line := range strings.Lines(string(out)) {
		var name string
		var at, took float64
		var bytes, count int
		if _, err := fmt.Sscanf(line, "init %s @%f ms, %f ms clock, %d bytes, %d allocs", &name, &at, &took, &bytes, &count); err != nil {
			continue
		}
		if name == "pgregory.net/rapid" { // of the tests
			continue
		}
		packages++
		if all += bytes; bytes > max(mostOfPackage, allowed[name]) {
			t.Errorf("package %s allocates %d bytes when the program starts: the limit is %d", name, bytes, mostOfPackage)
		}
	}
	if packages < 50 {
		t.Fatalf("%d packages are traced:\n%.500s", packages, out)
	}
	if all > mostOfAll {
		t.Errorf("the %d packages allocate %d bytes when the program starts: the limit is %d", packages, all, mostOfAll)
	}
}
