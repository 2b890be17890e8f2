package normalizers

import (
	"strings"
	"sync"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// Bounds of the labels made by [DriftLabels], for each source.
const (
	maxDriftVersions = 32  // versions as stated in logs
	maxDriftNames    = 32  // names of a kind
	maxDriftSeries   = 256 // labels
)

// UnknownVersion is the version in a [Drift] if the log states none, or an invalid one.
const UnknownVersion = "unknown"

// Drift is the metric label for something unknown in the logs of an agent.
type Drift struct {
	Source  envelopes.Source
	Version string // of the agent; [UnknownVersion], or core.NameOther beyond the bounds
	Kind    core.UnknownKind
	Name    string // core.NameOther beyond the bounds
}

// DriftLabels bounds the labels under which drift is counted: versions and names come from logs, which can state any
// number of them. The first ones of a source keep their names; the others are counted together. The zero value is
// ready to use; it is safe for concurrent use.
type DriftLabels struct {
	mu      sync.Mutex
	sources map[envelopes.Source]*driftSource
}

// driftSource has the labels of one source.
type driftSource struct {
	versions map[string]bool
	names    map[core.UnknownKind]map[string]bool
	series   map[Drift]bool
}

// Of returns the label for something unknown in a log of a version of an agent. source must be in the table of
// vendors.
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
		d.Version, d.Name = core.NameOther, core.NameOther // one series for each kind
		return d
	}
	s.series[d] = true
	return d
}

// oneOf returns a name if the set has it or has room for it; otherwise core.NameOther.
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

// VersionOf returns the version of the agent that a session stated last; empty if unknown.
func VersionOf(s *core.Session) string {
	if v := VendorOf(s.Source()); v != nil && v.Version != nil {
		return v.Version(s)
	}
	return ""
}

// NormalizeWatched is [Normalize]. Its result also has the members of the record that no rule reads, as unknown of
// the kind [core.UnknownField], except those that the vendor's row has as ignored. It takes longer, and calls wait for
// each other.
func NormalizeWatched(s *core.Session, r core.Record) (res core.Result, err error) {
	fields := lenient.Unread(r.Data, func() { res, err = Normalize(s, r) })
	if err != nil {
		return res, err
	}
	for _, f := range fields {
		if !ignored()[r.Source][f.Path] {
			res.Unknown = append(res.Unknown, core.Unknown{Kind: core.UnknownField, Name: f.Path, Count: f.Count})
		}
	}
	return res, nil
}

// ignored returns the paths that each vendor's row has as ignored.
var ignored = sync.OnceValue(func() map[envelopes.Source]map[string]bool {
	all := make(map[envelopes.Source]map[string]bool)
	for _, v := range vendors {
		paths := make(map[string]bool)
		for path := range strings.Lines(v.Ignored()) {
			paths[strings.TrimSpace(path)] = true
		}
		all[v.Source] = paths
	}
	return all
})
