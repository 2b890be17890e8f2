package main

import (
	"strings"

	"github.com/spf13/pflag"

	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/ship"
)

// sessionLogs has a flag for each agent that prints plain text: the folder in which the agent creates logs named
// after its sessions.
type sessionLogs []sessionLog

type sessionLog struct {
	vendor *core.Vendor
	dir    *string // value of the flag
}

// addFlags adds the flags of the vendors that print plain text.
func (l *sessionLogs) addFlags(flags *pflag.FlagSet) {
	for _, v := range normalizers.Vendors() {
		if text := v.Framing.PrintedText; text != nil {
			dir := flags.String(text.Flag, "", "with -: folder in which "+v.Name+" creates a log named after the session")
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

// discovery returns how to find the session of the input; nil if no flag is given.
func (l sessionLogs) discovery() *ship.Discovery {
	for _, log := range l {
		if *log.dir != "" {
			return &ship.Discovery{Source: log.vendor.Source, Dir: *log.dir}
		}
	}
	return nil
}
