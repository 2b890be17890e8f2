package main

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/terminal"
)

// fitHelp fits the help of a command and of its subcommands to the terminal.
func (a *app) fitHelp(root *cobra.Command) {
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		var text bytes.Buffer
		cmd.SetOut(&text)
		help(cmd, args)
		cmd.SetOut(a.stdout)
		fmt.Fprint(a.stdout, fitted(text.String(), terminal.TableWidth(a.stdout)))
	})
}

// lastColumn matches everything before the last column of a line.
var lastColumn = regexp.MustCompile(`^ *\S.* {2,}`)

// fitted breaks the lines of a help that are longer than width. It fills paragraphs, and continues the last column of
// a table in its place. A command line stays whole, so that it can be copied.
func fitted(text string, width int) string {
	var out, paragraph []string
	fill := func() {
		for _, line := range paragraph {
			if terminal.WidthOf(line) > width {
				paragraph = terminal.Wrap(strings.Join(paragraph, " "), width, 0)
				break
			}
		}
		out, paragraph = append(out, paragraph...), nil
	}
	for line := range strings.SplitSeq(text, "\n") {
		if line != "" && line[0] != ' ' {
			paragraph = append(paragraph, line)
			continue
		}
		fill()
		if hang := len(lastColumn.FindString(line)); hang > 0 {
			out = append(out, terminal.Wrap(line, width, hang)...)
		} else {
			out = append(out, line)
		}
	}
	fill()
	return strings.Join(out, "\n")
}
