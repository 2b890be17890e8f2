package copilottest

import (
	"tributary/envelopes"
	"tributary/normalizers/normalizerstest"
)

// vcs reads the state of version control: the last context in a start, a resumption or a change of the session.
func vcs() func(session string, l normalizerstest.Line) envelopes.VCS {
	known := make(map[string]envelopes.VCS)
	return func(session string, l normalizerstest.Line) envelopes.VCS {
		r := normalizerstest.Parse(l.Data)
		context := normalizerstest.Member[map[string]any](r, "data", "context")
		switch normalizerstest.Member[string](r, "type") {
		case "session.context_changed":
			context = normalizerstest.Member[map[string]any](r, "data")
			if context == nil {
				context = map[string]any{}
			}
		case "session.start", "session.resume":
		default:
			context = nil
		}
		if context == nil {
			return known[session]
		}
		str := func(name string) string { return normalizerstest.Member[string](context, name) }
		v := envelopes.VCS{Branch: normalizerstest.StatedBranch(str("branch")), Commit: normalizerstest.StatedCommit(str("headCommit"))}
		if host, name := str("repositoryHost"), str("repository"); host != "" && name != "" {
			v.Repository = normalizerstest.StatedRepository("https://" + host + "/" + name)
		} else if normalizerstest.StatedRepository(name) != "" {
			v.Repository = name
		}
		known[session] = v
		return v
	}
}
