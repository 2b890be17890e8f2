package opencodetest

import (
	"tributary/envelopes"
	"tributary/normalizers/normalizerstest"
)

// vcs reads the state of version control: the branch that the server stated last.
func vcs(v any, is *envelopes.VCS) {
	if p := object(v, "payload"); p != nil {
		v = p
	}
	if branch := str(v, "properties", "branch"); str(v, "type") == "vcs.branch.updated" && branch != "" {
		is.Branch = normalizerstest.StatedBranch(branch)
	}
}
