package core

import (
	_ "embed" // of linguist
	"path"
	"strings"
	"sync"

	"tributary/normalizers/lenient"
)

// usualLanguages are the languages of ambiguous extensions for which agents nearly always edit one language.
var usualLanguages = map[string]string{
	".asm":        "assembly",
	".bas":        "visual basic 6.0",
	".cfg":        "ini",
	".cl":         "common lisp",
	".cs":         "c#",
	".cue":        "cue",
	".d":          "d",
	".es":         "javascript",
	".ex":         "elixir",
	".f":          "fortran",
	".for":        "fortran",
	".frag":       "glsl",
	".fs":         "f#",
	".gd":         "gdscript",
	".h":          "c",
	".hh":         "c++",
	".html":       "html",
	".jq":         "jq",
	".json":       "json",
	".lean":       "lean",
	".lisp":       "common lisp",
	".m":          "objective-c",
	".m4":         "m4",
	".md":         "markdown",
	".ml":         "ocaml",
	".mm":         "objective-c++",
	".nu":         "nushell",
	".odin":       "odin",
	".php":        "php",
	".pkl":        "pkl",
	".pl":         "perl",
	".plist":      "xml property list",
	".pm":         "perl",
	".pp":         "puppet",
	".properties": "java properties",
	".qs":         "q#",
	".r":          "r",
	".re":         "reason",
	".res":        "rescript",
	".rs":         "rust",
	".s":          "assembly",
	".sc":         "scala",
	".scm":        "scheme",
	".sol":        "solidity",
	".spec":       "rpm spec",
	".sql":        "sql",
	".star":       "starlark",
	".t":          "perl",
	".tpl":        "smarty",
	".ts":         "typescript",
	".tsp":        "typespec",
	".tsx":        "tsx",
	".txt":        "text",
	".typ":        "typst",
	".v":          "verilog",
	".vhost":      "apacheconf",
	".yaml":       "yaml",
	".yml":        "yaml",
}

// linguist has the languages of file names and extensions known to GitHub's Linguist, one per line:
// "name<TAB>language". The name of an extension begins with '.'; the language is empty if several share the
// extension. A file name that begins with '.' has the prefix "file:". TestLanguagesAreThoseOfLinguist generates it.
//
//go:embed languages.tsv
var linguist string

// languageByName parses linguist on first use.
var languageByName = sync.OnceValue(func() map[string]string {
	languages := make(map[string]string, strings.Count(linguist, "\n"))
	for line := range strings.Lines(linguist) {
		name, language, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		languages[name] = language
	}
	return languages
})

// languageOf returns the language of a file by its name, in lower case; nil if the name does not decide.
func languageOf(file string) *string {
	name := path.Base(strings.ReplaceAll(file, `\`, "/"))
	if language, ok := usualLanguages[strings.ToLower(path.Ext(name))]; ok {
		return &language
	}
	if language := languageByName()[fileKey(name)]; language != "" {
		return &language
	}
	// The longest extension counts: .blade.php before .php.
	name = strings.ToLower(name)
	for i := range len(name) {
		if name[i] != '.' {
			continue
		}
		if language, ok := languageByName()[name[i:]]; ok {
			return lenient.Text(language).Ptr()
		}
	}
	return nil
}

// fileKey returns the key of a whole file name in linguist, distinct from that of an extension.
func fileKey(name string) string {
	if strings.HasPrefix(name, ".") {
		return "file:" + name
	}
	return name
}
