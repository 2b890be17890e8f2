package worker

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
)

// Drifted is a version of an agent whose records have what no rule reads, or that is newer than the last checked one.
type Drifted struct {
	Source  envelopes.Source `json:"source"`
	Version string           `json:"version"`
	Newer   bool             `json:"newer"` // than the last checked one
	Items   int64            `json:"items"` // that no rule reads
}

// newerVersion is the kind of what [drifts] counts beside the kinds of [core.UnknownKinds]: records of a newer version.
const newerVersion core.UnknownKind = "newer_version"

// drifts has the drift of the records that were stored. The zero value is ready to use.
type drifts struct {
	mu    sync.Mutex
	found map[driftedAgent]*Drifted
}

type driftedAgent struct {
	source  envelopes.Source
	version string
}

// add adds something unknown, or a record of a newer version. The labels are bounded, and so is the memory.
func (d *drifts) add(is normalizers.Drift, n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := driftedAgent{is.Source, is.Version}
	of := d.found[key]
	if of == nil {
		if d.found == nil {
			d.found = make(map[driftedAgent]*Drifted)
		}
		of = &Drifted{Source: is.Source, Version: is.Version}
		d.found[key] = of
	}
	if is.Kind == newerVersion {
		of.Newer = true
	} else {
		of.Items += n
	}
}

// Drift returns what of the records that this stage has stored no rule reads, by agent and version.
func (s *Stage) Drift() []Drifted {
	d := &s.telemetry.drifts
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []Drifted
	for _, of := range d.found {
		list = append(list, *of)
	}
	slices.SortFunc(list, func(a, b Drifted) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), core.CompareVersions(a.Version, b.Version), strings.Compare(a.Version, b.Version))
	})
	return list
}

// countVersion counts a record if the version of its agent is newer than the last checked one.
func (c *chunk) countVersion(r received, s *liveSession) {
	if version := normalizers.VersionOf(s.state); version != s.version {
		v := normalizers.VendorOf(r.Source)
		s.version, s.newer = version, v != nil && v.IsNewer(version)
	}
	if s.newer {
		c.count(countUnknown, r, 1, s.version, string(newerVersion))
	}
}
