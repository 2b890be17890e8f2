package core

import (
	"flag"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-enry/go-enry/v2"
	"github.com/go-enry/go-enry/v2/data"
	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite languages.tsv from the tables of go-enry")

// TestLanguagesAreThoseOfLinguist holds languages.tsv to go-enry, the Go form of Linguist, which
// the program itself does not contain: its tables take 70 ms and 16 MB at every start.
func TestLanguagesAreThoseOfLinguist(t *testing.T) {
	t.Parallel()
	languages := make(map[string]string)
	for name, list := range data.LanguagesByFilename {
		if len(list) == 1 {
			languages[fileKey(name)] = strings.ToLower(list[0])
		}
	}
	for extension, list := range data.LanguagesByExtension {
		languages[extension] = ""
		if len(list) == 1 {
			languages[extension] = strings.ToLower(list[0])
		}
	}
	var want strings.Builder
	for _, name := range slices.Sorted(maps.Keys(languages)) {
		want.WriteString(name + "\t" + languages[name] + "\n")
	}
	if *update {
		if err := os.WriteFile("languages.tsv", []byte(want.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want.String(), linguist); diff != "" {
		t.Errorf("languages.tsv differs from go-enry; go test ./normalizers/core -update writes it (-want +got):\n%s", diff)
	}
}

// TestLanguageOfEveryNameIsThatOfLinguist asks for every file name and extension that Linguist
// knows, alone and behind others.
func TestLanguageOfEveryNameIsThatOfLinguist(t *testing.T) {
	t.Parallel()
	names := slices.Collect(maps.Keys(data.LanguagesByFilename))
	for extension := range data.LanguagesByExtension {
		names = append(names, extension, "a"+extension, "a.b"+extension, "A"+strings.ToUpper(extension), extension+".unknown", "/x.y/a"+extension)
	}
	asked := 0
	for _, name := range names {
		base := name[strings.LastIndexByte(name, '/')+1:]
		if _, usual := usualLanguages[strings.ToLower(base[max(strings.LastIndexByte(base, '.'), 0):])]; usual {
			continue
		}
		var want *string
		for _, list := range [][]string{enry.GetLanguagesByFilename(base, nil, nil), enry.GetLanguagesByExtension(base, nil, nil)} {
			if len(list) == 1 && want == nil {
				want = new(strings.ToLower(list[0]))
			}
		}
		asked++
		if diff := cmp.Diff(want, languageOf(name)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", name, diff)
		}
	}
	if asked < 1000 {
		t.Errorf("only %d names are asked", asked)
	}
}
