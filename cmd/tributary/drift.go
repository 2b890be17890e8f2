package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
)

// drift is what a log shows of how far an agent has gone on since its logs were checked last.
type drift struct {
	Checked string    `json:"last_checked"`   // the newest version of the agent that was checked
	Newer   []string  `json:"newer_versions"` // of the log, oldest first
	Unknown []unknown `json:"unknown"`

	counts map[normalizers.Drift]int
	newer  map[string]bool
	last   string // version of the last record
}

// unknown is how often a log of a version has something that is not known.
type unknown struct {
	Version string           `json:"version"`
	Kind    core.UnknownKind `json:"kind"`
	Name    string           `json:"name"`
	Count   int              `json:"count"`
}

// maxNewer limits the newer versions that a report names: a log can state any number.
const maxNewer = 32

// driftOf returns the drift of a source.
func (p *report) driftOf(source envelopes.Source) *drift {
	d := p.Drift[source]
	if d == nil {
		d = &drift{counts: map[normalizers.Drift]int{}, newer: map[string]bool{}}
		if v := normalizers.VendorOf(source); v != nil {
			d.Checked = v.Checked
		}
		p.Drift[source] = d
	}
	return d
}

// countDrift counts what a record shows that is not known, and the version of its agent. The
// session has stated the version with the record, or before.
func (p *report) countDrift(s *core.Session, found []core.Unknown) {
	d := p.driftOf(s.Source())
	version := normalizers.VersionOf(s)
	if version != d.last {
		d.last = version
		if v := normalizers.VendorOf(s.Source()); v != nil && v.IsNewer(version) && len(d.newer) < maxNewer {
			d.newer[version] = true
		}
	}
	for _, u := range found {
		d.counts[p.labels.Of(s.Source(), version, u.Kind, u.Name)] += u.Count
	}
}

// settle sets what the report states of the drift, in order: by version, kind and name.
func (d *drift) settle() {
	d.Newer = append([]string{}, slices.SortedFunc(maps.Keys(d.newer), compareVersions)...)
	d.Unknown = make([]unknown, 0, len(d.counts))
	for is, n := range d.counts {
		d.Unknown = append(d.Unknown, unknown{is.Version, is.Kind, is.Name, n})
	}
	slices.SortFunc(d.Unknown, func(a, b unknown) int {
		return cmp.Or(compareVersions(a.Version, b.Version), strings.Compare(string(a.Kind), string(b.Kind)), strings.Compare(a.Name, b.Name))
	})
}

// compareVersions orders versions; texts that are no versions, and versions that differ in their suffix alone, by text.
func compareVersions(a, b string) int {
	return cmp.Or(core.CompareVersions(a, b), strings.Compare(a, b))
}

// sayDrift prints a line for each agent of whose log something is not known, or whose version
// is newer than the one that was checked. Those of a list have the name of their file.
func (f fileReports) sayDrift(w io.Writer, list bool) {
	for _, p := range f {
		name := ""
		if list {
			name = p.File + ": "
		}
		p.sayDrift(w, name)
	}
}

// sayDrift prints the lines of one report behind a name.
func (p *report) sayDrift(w io.Writer, name string) {
	for _, source := range slices.Sorted(maps.Keys(p.Drift)) {
		d := p.Drift[source]
		total := 0
		for _, n := range d.counts {
			total += n
		}
		var said []string
		if total > 0 {
			said = append(said, terminal.Plural(total, "item")+" of unknown types, which --report FILE lists")
		}
		if len(d.newer) > 0 {
			newest := slices.MaxFunc(slices.Collect(maps.Keys(d.newer)), compareVersions)
			said = append(said, "version "+newest+" is newer than "+d.Checked+", the last one that was checked")
		}
		if len(said) > 0 {
			fmt.Fprintf(w, "%s%s: %s\n", name, source, strings.Join(said, "; "))
		}
	}
}
