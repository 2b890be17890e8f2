package normalizerstest

import (
	"net/url"
	"regexp"
	"strings"

	"tributary/envelopes"
)

// checkVCS: each event has the state of version control that its session stated last. A pending event may have the
// state before the current record.
func checkVCS(p *Problems, s Suite, lines []Line, steps []Step) {
	stated := func(string, Line) envelopes.VCS { return envelopes.VCS{} }
	if s.VCS != nil {
		stated = s.VCS()
	}
	now := make(map[string]envelopes.VCS)
	for i, st := range steps {
		session := st.Record.Session
		before := now[session]
		if i < len(lines) && !lines[i].Bad {
			now[session] = stated(session, lines[i])
		}
		for _, e := range st.Result.Events {
			got := Value(e.Event.VCS)
			if pending := e.Sequence != st.Record.Sequence; got != now[session] && !(pending && got == before) {
				p.Errorf("record %d: vcs of an event is %+v, want %+v", st.Record.Sequence, got, now[session])
			}
		}
	}
}

// LastVCS returns the [Suite.VCS] of an agent whose records state it. read changes the state of the session of a record
// to what the record states.
func LastVCS(read func(record any, v *envelopes.VCS)) func() func(session string, l Line) envelopes.VCS {
	return func() func(string, Line) envelopes.VCS {
		known := make(map[string]*envelopes.VCS)
		return func(session string, l Line) envelopes.VCS {
			if known[session] == nil {
				known[session] = &envelopes.VCS{}
			}
			read(Parse(l.Data), known[session])
			return *known[session]
		}
	}
}

// wordsOnly matches a name without white space.
var wordsOnly = regexp.MustCompile(`^[^\s\x00-\x1f\x7f]+$`)

// StatedBranch returns a branch that a record states; empty for a detached head.
func StatedBranch(name string) string {
	if name == "HEAD" || !wordsOnly.MatchString(name) {
		return ""
	}
	return name
}

// StatedCommit returns a commit that a record states.
func StatedCommit(id string) string {
	return regexp.MustCompile(`^[0-9a-f]{7,64}$`).FindString(strings.ToLower(id))
}

// StatedRepository returns a remote that a record states as host and path.
func StatedRepository(remote string) string {
	if !wordsOnly.MatchString(remote) || strings.HasPrefix(remote, "/") {
		return ""
	}
	if !strings.Contains(remote, "://") {
		remote = "ssh://" + strings.Replace(remote, ":", "/", 1)
	}
	u, err := url.Parse(remote)
	path := ""
	if err == nil {
		path = strings.TrimSuffix(strings.Trim(u.EscapedPath(), "/"), ".git")
	}
	if path == "" || u.Hostname() == "" || u.Scheme == "file" {
		return ""
	}
	return strings.ToLower(u.Hostname()) + "/" + path
}
