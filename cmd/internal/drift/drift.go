// Package drift counts what the normalizers do not know in the logs of agents: it shows how far the agents have
// changed since their logs were last checked.
//
// Start with [Counter.Count]. The invariant: the memory is bounded, although a log can state any number of versions
// and types.
package drift

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
)

// Agent is the drift of an agent.
type Agent struct {
	Checked string    `json:"last_checked"`   // the newest checked version of the agent
	Newer   []string  `json:"newer_versions"` // of the log, oldest first
	Unknown []Unknown `json:"unknown"`

	counts map[normalizers.Drift]*tally
	newer  map[string]*tally // by version
	last   string            // version of the last record
	isNew  *tally            // of last, nil if it is not newer
}

// Unknown is how often the logs of a version have an unknown item.
type Unknown struct {
	Version string           `json:"version"`
	Kind    core.UnknownKind `json:"kind"`
	Name    string           `json:"name"`
	Count   int              `json:"count"`
	Example Place            `json:"-"` // of the first one
}

// Place is where a record is.
type Place struct {
	File string
	Line int // 0 in a database
}

// tally is how often an item was found, and where first.
type tally struct {
	count int
	first Place
}

// maxNewer limits the newer versions in memory.
const maxNewer = 32

// Counter counts the drift of the agents of a log.
type Counter struct {
	Agents map[envelopes.Source]*Agent
	Place  Place // of the record that is counted next
	labels normalizers.DriftLabels
}

// NewCounter returns an empty counter.
func NewCounter() *Counter { return &Counter{Agents: map[envelopes.Source]*Agent{}} }

// Agent returns the drift of an agent, and adds the agent if it is new.
func (c *Counter) Agent(source envelopes.Source) *Agent {
	a := c.Agents[source]
	if a == nil {
		a = &Agent{counts: map[normalizers.Drift]*tally{}, newer: map[string]*tally{}}
		if v := normalizers.VendorOf(source); v != nil {
			a.Checked = v.Checked
		}
		c.Agents[source] = a
	}
	return a
}

// Count counts the version of a record and the unknown items that were found in it.
func (c *Counter) Count(source envelopes.Source, version string, found []core.Unknown) {
	a := c.Agent(source)
	if version != a.last {
		a.last, a.isNew = version, a.newer[version]
		if v := normalizers.VendorOf(source); a.isNew == nil && v != nil && v.IsNewer(version) && len(a.newer) < maxNewer {
			a.isNew = &tally{first: c.Place}
			a.newer[version] = a.isNew
		}
	}
	if a.isNew != nil {
		a.isNew.count++
	}
	for _, u := range found {
		label := c.labels.Of(source, version, u.Kind, u.Name)
		is := a.counts[label]
		if is == nil {
			is = &tally{first: c.Place}
			a.counts[label] = is
		}
		is.count += u.Count
	}
}

// Settle sorts the lists of the agent: by version, kind and name.
func (a *Agent) Settle() {
	a.Newer = append([]string{}, slices.SortedFunc(maps.Keys(a.newer), compareVersions)...)
	a.Unknown = make([]Unknown, 0, len(a.counts))
	for is, n := range a.counts {
		a.Unknown = append(a.Unknown, Unknown{is.Version, is.Kind, is.Name, n.count, n.first})
	}
	slices.SortFunc(a.Unknown, func(a, b Unknown) int {
		return cmp.Or(compareVersions(a.Version, b.Version), strings.Compare(string(a.Kind), string(b.Kind)), strings.Compare(a.Name, b.Name))
	})
}

// NewerVersion is the kind of an item that stands for a version of the agent that is newer than the last checked one.
const NewerVersion core.UnknownKind = "newer_version"

// Items returns the newer versions, each with its records, and what is unknown, by version. Settle comes before.
func (a *Agent) Items() []Unknown {
	var items []Unknown
	for _, v := range a.Newer {
		items = append(items, Unknown{v, NewerVersion, v, a.newer[v].count, a.newer[v].first})
	}
	items = append(items, a.Unknown...)
	slices.SortStableFunc(items, func(a, b Unknown) int { return compareVersions(a.Version, b.Version) })
	return items
}

// Total returns the number of unknown items.
func (a *Agent) Total() int {
	total := 0
	for _, n := range a.counts {
		total += n.count
	}
	return total
}

// Newest returns the newest version of the log if it is newer than the last checked one, else "".
func (a *Agent) Newest() string {
	if len(a.newer) == 0 {
		return ""
	}
	return slices.MaxFunc(slices.Collect(maps.Keys(a.newer)), compareVersions)
}

// compareVersions orders versions. It orders by text what is no version, and versions that differ only in their
// suffix.
func compareVersions(a, b string) int {
	return cmp.Or(core.CompareVersions(a, b), strings.Compare(a, b))
}
