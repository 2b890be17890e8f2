package opencodetest

import (
	"tributary/envelopes"
	"tributary/normalizers/normalizerstest"
)

// vcs reads the state of version control: the branch that the server stated last.
func vcs() func(session string, l normalizerstest.Line) envelopes.VCS {
	known := make(map[string]envelopes.VCS)
	return func(session string, l normalizerstest.Line) envelopes.VCS {
		v := normalizerstest.Parse(l.Data)
		if p := object(v, "payload"); p != nil {
			v = p
		}
		if branch := str(v, "properties", "branch"); str(v, "type") == "vcs.branch.updated" && branch != "" {
			known[session] = envelopes.VCS{Branch: normalizerstest.StatedBranch(branch)}
		}
		return known[session]
	}
}
