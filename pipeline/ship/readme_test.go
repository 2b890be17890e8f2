package ship_test

import (
	"os"
	"strings"
	"testing"

	"tributary/pipeline/ship"
)

func TestReadmeHasEveryState(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "\n## Offset states\n")
	states, _, _ := strings.Cut(text, "\n## ")
	for _, state := range ship.StateNames {
		if !strings.Contains(states, "\n- **"+state+"**:") {
			t.Errorf("the offset states lack %s", state)
		}
	}
}
