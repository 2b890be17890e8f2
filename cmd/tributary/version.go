package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"tributary/normalizers"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), versionLine())
			return err
		},
	}
}

// versionLine names the version of the program, of the normalizers and of Go.
func versionLine() string {
	info, _ := debug.ReadBuildInfo()
	return fmt.Sprintf("tributary %s, normalizers revision %d, %s %s/%s", buildOf(info), normalizers.Revision, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// version is the version of the module, else its commit.
func version() string {
	info, _ := debug.ReadBuildInfo()
	return buildOf(info).version()
}

// build is what the program was built from. Unknown fields are empty.
type build struct {
	module string // version of the module
	commit string
	date   string // of the commit, RFC 3339
	dirty  bool   // files were changed since the commit
}

// buildOf reads the build information, which may be nil.
func buildOf(info *debug.BuildInfo) build {
	var b build
	if info == nil {
		return b
	}
	if v := info.Main.Version; v != "(devel)" {
		b.module = v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.commit = s.Value
		case "vcs.time":
			b.date = s.Value
		case "vcs.modified":
			b.dirty = s.Value == "true"
		}
	}
	return b
}

// version is the version of the module, else the commit.
func (b build) version() string {
	commit := ""
	if b.commit != "" {
		commit = "devel-" + b.commit[:min(len(b.commit), 12)]
	}
	return cmp.Or(b.module, commit, "devel")
}

// String returns the version, the commit and its date, as far as known.
func (b build) String() string {
	parts := []string{b.version()}
	if b.commit != "" {
		text := "commit " + b.commit[:min(len(b.commit), 12)]
		if b.dirty {
			text += " and changes"
		}
		parts = append(parts, text)
	}
	if b.date != "" {
		parts = append(parts, b.date)
	}
	return strings.Join(parts, ", ")
}
