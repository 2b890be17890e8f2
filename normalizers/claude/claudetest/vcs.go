package claudetest

import (
	"net/url"

	"tributary/envelopes"
	"tributary/normalizers/normalizerstest"
)

// vcs reads the state of version control: the branch of a record, and the last pull request with its repository.
func vcs() func(session string, l normalizerstest.Line) envelopes.VCS {
	known := make(map[string]envelopes.VCS)
	return func(session string, l normalizerstest.Line) envelopes.VCS {
		v, r := known[session], normalizerstest.Parse(l.Data)
		if branch := normalizerstest.Member[string](r, "gitBranch"); branch != "" {
			v.Branch = normalizerstest.StatedBranch(branch)
		}
		pull, err := url.Parse(normalizerstest.Member[string](r, "prUrl"))
		if normalizerstest.Member[string](r, "type") == "pr-link" && err == nil && pull.Host != "" {
			if name := normalizerstest.Member[string](r, "prRepository"); name != "" {
				v.Repository = normalizerstest.StatedRepository("https://" + pull.Host + "/" + name)
			}
			pull.User, pull.RawQuery, pull.Fragment = nil, "", ""
			v.PullRequest = pull.String()
		}
		known[session] = v
		return v
	}
}
