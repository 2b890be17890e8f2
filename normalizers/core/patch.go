package core

import (
	"strings"

	"tributary/envelopes"
)

// patchHeaders are the headers of the apply_patch format and their operations.
var patchHeaders = []struct {
	prefix string
	op     envelopes.FileOp
}{
	{"*** Add File: ", envelopes.OpCreate},
	{"*** Update File: ", envelopes.OpModify},
	{"*** Delete File: ", envelopes.OpDelete},
	{"*** Move to: ", envelopes.OpMove},
}

// PatchFiles returns the files of an apply_patch envelope in the order of their headers; nil if s has none.
func PatchFiles(s string) []envelopes.File {
	_, body, ok := strings.Cut(s, "*** Begin Patch")
	if !ok {
		return nil
	}
	var files []envelopes.File
	for line := range strings.Lines(body) {
		line = strings.TrimRight(line, "\r\n")
		if strings.HasPrefix(line, "*** End Patch") {
			break
		}
		for _, h := range patchHeaders {
			if path, ok := strings.CutPrefix(line, h.prefix); ok {
				files = append(files, envelopes.File{Path: strings.TrimSpace(path), Op: h.op})
			}
		}
	}
	return files
}
