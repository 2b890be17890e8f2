package main

import (
	"regexp"

	"github.com/clipperhouse/displaywidth"
)

// terminalWidth measures text as a terminal shows it: wide characters count twice, colors not.
var terminalWidth = displaywidth.Options{ControlSequences: true}

// colors are the control sequences that lines are styled with.
var colors = regexp.MustCompile("\x1b\\[[0-9;]*m")
