package normalizers

import (
	"sync"

	"tributary/envelopes"
	"tributary/normalizers/core"
)

// Bounds of the labels that [DriftLabels] gives out, for each source.
const (
	maxDriftVersions = 32  // versions, whatever a log states as one
	maxDriftNames    = 32  // names of a kind
	maxDriftSeries   = 256 // labels
)

// UnknownVersion is the version in a [Drift] where the log states none, or what is no version.
const UnknownVersion = "unknown"

// Drift is what of the logs of an agent is not known: the label of a count.
type Drift struct {
	Source  envelopes.Source
	Version string // of the agent; [UnknownVersion], or core.NameOther beyond the bounds
	Kind    core.UnknownKind
	Name    string // core.NameOther beyond the bounds
}

// DriftLabels bounds the labels under which drift is counted: versions and names come from logs,
// and a log can state any number of them. The first ones of a source keep their names, the rest
// are counted together. The zero value is ready to use; it is safe for concurrent use.
type DriftLabels struct {
	mu      sync.Mutex
	sources map[envelopes.Source]*driftSource
}

// driftSource are the labels of one source.
type driftSource struct {
	versions map[string]bool
	names    map[core.UnknownKind]map[string]bool
	series   map[Drift]bool
}

// Of returns the label of something that is unknown, in a log of a version of an agent. The
// source is one of the table of vendors.
func (l *DriftLabels) Of(source envelopes.Source, version string, kind core.UnknownKind, name string) Drift {
	if !core.IsVersion(version) {
		version = UnknownVersion
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sources[source]
	if s == nil {
		if l.sources == nil {
			l.sources = make(map[envelopes.Source]*driftSource)
		}
		s = &driftSource{versions: map[string]bool{}, names: map[core.UnknownKind]map[string]bool{}, series: map[Drift]bool{}}
		l.sources[source] = s
	}
	if s.names[kind] == nil {
		s.names[kind] = make(map[string]bool)
	}
	d := Drift{
		Source: source, Kind: kind,
		Version: oneOf(s.versions, version, maxDriftVersions),
		Name:    oneOf(s.names[kind], name, maxDriftNames),
	}
	if !s.series[d] && len(s.series) >= maxDriftSeries {
		d.Version, d.Name = core.NameOther, core.NameOther // one for each kind
		return d
	}
	s.series[d] = true
	return d
}

// oneOf returns a name that a set has, or has room for; else that of all others.
func oneOf(set map[string]bool, name string, limit int) string {
	if set[name] || name == core.NameOther {
		return name
	}
	if len(set) >= limit {
		return core.NameOther
	}
	set[name] = true
	return name
}

// VersionOf returns the version of the agent that a session has stated last; empty where none is
// known.
func VersionOf(s *core.Session) string {
	if v := VendorOf(s.Source()); v != nil && v.Version != nil {
		return v.Version(s)
	}
	return ""
}
