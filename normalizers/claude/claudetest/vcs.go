package claudetest

import (
	"net/url"

	"tributary/envelopes"
	"tributary/normalizers/normalizerstest"
)

// vcs reads the state of version control: the branch of a record, and the last pull request with its repository.
func vcs(r any, v *envelopes.VCS) {
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
}
