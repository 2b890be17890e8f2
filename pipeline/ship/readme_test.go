package ship_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tributary/pipeline/ship"
)

func TestReadmeHasARowForEveryFileAndState(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "\n## File map\n")
	fileMap, _, _ := strings.Cut(text, "\n## ")
	for _, file := range files {
		if !strings.HasSuffix(file, "_test.go") && !strings.Contains(fileMap, "`"+file+"`") {
			t.Errorf("the file map lacks %s", file)
		}
	}
	_, text, _ = strings.Cut(string(page), "\n## Offset states\n")
	states, _, _ := strings.Cut(text, "\n## ")
	for _, state := range ship.StateNames {
		if !strings.Contains(states, "\n| "+state+" |") {
			t.Errorf("the table of offset states lacks %s", state)
		}
	}
}
