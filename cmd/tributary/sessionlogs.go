package main

import (
	"strings"

	"github.com/spf13/pflag"

	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/ship"
)

// sessionLogs are the flags for the folders in which agents that print plain text create logs
// that are named after their sessions: a flag for each such agent.
type sessionLogs []sessionLog

type sessionLog struct {
	vendor *core.Vendor
	dir    *string // value of the flag
}

// addFlags adds the flags of the vendors that print plain text.
func (l *sessionLogs) addFlags(flags *pflag.FlagSet) {
	for _, v := range normalizers.Vendors() {
		if text := v.Framing.PrintedText; text != nil {
			dir := flags.String(text.Flag, "", "with -: folder in which "+v.Name+" creates a log that is named after the session")
			*l = append(*l, sessionLog{v, dir})
		}
	}
}

// names lists the flags.
func (l sessionLogs) names() string {
	names := make([]string, len(l))
	for i, log := range l {
		names[i] = "--" + log.vendor.Framing.PrintedText.Flag
	}
	return strings.Join(names, " or ")
}

// discovery returns how the session of the input is found; nil if no flag is given.
func (l sessionLogs) discovery() *ship.Discovery {
	for _, log := range l {
		if *log.dir != "" {
			return &ship.Discovery{Source: log.vendor.Source, Dir: *log.dir}
		}
	}
	return nil
}
