package core

import (
	"path"
	"strings"

	"github.com/go-enry/go-enry/v2"
)

// usualLanguages are the languages of extensions that several share, of which one is
// what agents nearly always edit.
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

// languageOf is the language of a file by its name, in lower case; nil when the name
// does not decide.
func languageOf(file string) *string {
	name := path.Base(strings.ReplaceAll(file, `\`, "/"))
	if lang, ok := usualLanguages[strings.ToLower(path.Ext(name))]; ok {
		return &lang
	}
	for _, langs := range [][]string{enry.GetLanguagesByFilename(name, nil, nil), enry.GetLanguagesByExtension(name, nil, nil)} {
		if len(langs) == 1 {
			return new(strings.ToLower(langs[0]))
		}
	}
	return nil
}
