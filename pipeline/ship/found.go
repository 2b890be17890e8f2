package ship

import "tributary/envelopes"

// Found returns how many logs of each agent are in folders, packed ones too. Folders that cannot be read, or are
// missing, have none.
func Found(roots []Root) map[envelopes.Source]int {
	found := make(map[envelopes.Source]int)
	f, _ := find(Config{Roots: roots}) // the error names paths, of which there are none
	for _, l := range f.logs {
		found[l.source]++
	}
	return found
}
