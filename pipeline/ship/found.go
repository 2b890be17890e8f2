package ship

import (
	"tributary/envelopes"
	"tributary/normalizers"
)

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

// Log is a log on this machine.
type Log struct {
	Path string
	File normalizers.File // what is known of it without its content
}

// Logs returns the logs that a Ship with this configuration would read, in the order of their paths, and the files and
// folders that it cannot read. The error names the paths of the configuration that do not exist.
func Logs(c Config) ([]Log, []Refusal, error) {
	f, err := find(c)
	var logs []Log
	for _, l := range f.logs {
		logs = append(logs, Log{l.path, normalizers.File{Source: l.source, Assumed: !l.forced}})
	}
	return logs, f.failed, err
}
