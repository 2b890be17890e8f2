package main

import (
	"runtime/debug"
	"testing"
)

func TestVersionNamesModuleCommitAndDate(t *testing.T) {
	t.Parallel()
	vcs := []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef0123456789abcdef01234567"}, {Key: "vcs.time", Value: "2026-03-09T09:00:00Z"}, {Key: "vcs.modified", Value: "false"}}
	changed := append([]debug.BuildSetting{{Key: "vcs.modified", Value: "true"}}, vcs[:2]...)
	for name, c := range map[string]struct {
		info              *debug.BuildInfo
		version, describe string
	}{
		"a release":       {&debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: vcs}, "v1.2.3", "v1.2.3, commit 0123456789ab, 2026-03-09T09:00:00Z"},
		"go install":      {&debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}, "v1.2.3", "v1.2.3"},
		"a changed clone": {&debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: changed}, "devel-0123456789ab", "devel-0123456789ab, commit 0123456789ab and changes, 2026-03-09T09:00:00Z"},
		"no commit":       {&debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, "devel", "devel"},
		"no information":  {nil, "devel", "devel"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := buildOf(c.info)
			if b.version() != c.version || b.String() != c.describe {
				t.Errorf("%q and %q, want %q and %q", b.version(), b, c.version, c.describe)
			}
		})
	}
}
