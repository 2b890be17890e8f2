// Package drift sums up what of the logs of agents the normalizers do not know: how far the agents have gone on since
// their logs were checked last.
//
// Start with [Counter.Count]. The invariant: a log can state any number of versions and types, and what is remembered of
// them is bounded.
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
	Checked string    `json:"last_checked"`   // the newest version of the agent that was checked
	Newer   []string  `json:"newer_versions"` // of the log, oldest first
	Unknown []Unknown `json:"unknown"`

	counts map[normalizers.Drift]int
	newer  map[string]bool
	last   string // version of the last record
}

// Unknown is how often a log of a version has something that is not known.
type Unknown struct {
	Version string           `json:"version"`
	Kind    core.UnknownKind `json:"kind"`
	Name    string           `json:"name"`
	Count   int              `json:"count"`
}

// maxNewer limits the newer versions that are remembered.
const maxNewer = 32

// Counter counts the drift of the agents of a log.
type Counter struct {
	Agents map[envelopes.Source]*Agent
	labels normalizers.DriftLabels
}

// NewCounter returns a counter of nothing.
func NewCounter() *Counter { return &Counter{Agents: map[envelopes.Source]*Agent{}} }

// Agent returns the drift of an agent, which is then one of the log.
func (c *Counter) Agent(source envelopes.Source) *Agent {
	a := c.Agents[source]
	if a == nil {
		a = &Agent{counts: map[normalizers.Drift]int{}, newer: map[string]bool{}}
		if v := normalizers.VendorOf(source); v != nil {
			a.Checked = v.Checked
		}
		c.Agents[source] = a
	}
	return a
}

// Count counts what a record of a version of an agent shows that is not known, and the version.
func (c *Counter) Count(source envelopes.Source, version string, found []core.Unknown) {
	a := c.Agent(source)
	if version != a.last {
		a.last = version
		if v := normalizers.VendorOf(source); v != nil && v.IsNewer(version) && len(a.newer) < maxNewer {
			a.newer[version] = true
		}
	}
	for _, u := range found {
		a.counts[c.labels.Of(source, version, u.Kind, u.Name)] += u.Count
	}
}

// Settle sets what the agent states, in order: by version, kind and name.
func (a *Agent) Settle() {
	a.Newer = append([]string{}, slices.SortedFunc(maps.Keys(a.newer), compareVersions)...)
	a.Unknown = make([]Unknown, 0, len(a.counts))
	for is, n := range a.counts {
		a.Unknown = append(a.Unknown, Unknown{is.Version, is.Kind, is.Name, n})
	}
	slices.SortFunc(a.Unknown, func(a, b Unknown) int {
		return cmp.Or(compareVersions(a.Version, b.Version), strings.Compare(string(a.Kind), string(b.Kind)), strings.Compare(a.Name, b.Name))
	})
}

// Total is how many items are not known.
func (a *Agent) Total() int {
	total := 0
	for _, n := range a.counts {
		total += n
	}
	return total
}

// Newest is the newest version of the log that is newer than the last one that was checked; empty if none is.
func (a *Agent) Newest() string {
	if len(a.newer) == 0 {
		return ""
	}
	return slices.MaxFunc(slices.Collect(maps.Keys(a.newer)), compareVersions)
}

// compareVersions orders versions; texts that are no versions, and versions that differ in their suffix alone, by text.
func compareVersions(a, b string) int {
	return cmp.Or(core.CompareVersions(a, b), strings.Compare(a, b))
}
