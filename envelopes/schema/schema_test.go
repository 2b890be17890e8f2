package schema

import (
	"os"
	"path/filepath"
	"testing"
)

func TestCompileLoadsNoOtherDocument(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "schema.json")
	if err := os.WriteFile(file, []byte(`{"type":"object"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, document := range []string{
		`{"$ref":"` + file + `"}`, `{"$ref":"file://` + file + `"}`, `{"$ref":"agtrace.event.v1.json"}`,
		`{"$ref":"https://example.com/schema"}`, `{"type":"nonsense"}`, `{`,
	} {
		if _, err := Compile([]byte(document)); err == nil {
			t.Errorf("%s compiles", document)
		}
	}
}
