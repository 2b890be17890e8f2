package main

import "github.com/clipperhouse/displaywidth"

// terminalWidth measures text as a terminal shows it: wide characters count twice, colors not.
var terminalWidth = displaywidth.Options{ControlSequences: true}

// cut shortens a line to at most columns, with … at its end.
func cut(line string, columns int) string { return terminalWidth.TruncateString(line, columns, "…") }
