package main

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/terminal"
)

// fitHelp makes the help of a command and of those below it fit the terminal.
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

// lastColumn matches a line of several columns up to the last of them.
var lastColumn = regexp.MustCompile(`^ *\S.* {2,}`)

// fitted breaks the lines of a help that are longer than width. Paragraphs are filled; what stands in a column goes on there. A
// command line stays whole, so that it can be copied.
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
