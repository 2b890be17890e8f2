package codextest

import (
	"tributary/envelopes"
	"tributary/normalizers/normalizerstest"
)

// vcs reads the state of version control: of the last session_meta or header that is no copy.
func vcs() func(session string, l normalizerstest.Line) envelopes.VCS {
	type rollout struct {
		copies codexCopy
		is     envelopes.VCS
	}
	known := make(map[string]*rollout)
	return func(session string, l normalizerstest.Line) envelopes.VCS {
		if known[session] == nil {
			known[session] = new(rollout)
		}
		f, r := known[session], codexRawOf(l)
		str := func(names ...string) string { return normalizerstest.Member[string](r.item, names...) }
		states := r.Kind == "session_meta" || r.Kind == "" && r.of == "" && str("role") == "" && str("id") != ""
		if copied := f.copies.follow(r); !copied && states && normalizerstest.Member[map[string]any](r.item, "git") != nil {
			f.is = envelopes.VCS{
				Repository: normalizerstest.StatedRepository(str("git", "repository_url")), Branch: normalizerstest.StatedBranch(str("git", "branch")),
				Commit: normalizerstest.StatedCommit(str("git", "commit_hash")),
			}
		}
		return f.is
	}
}
