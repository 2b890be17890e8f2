package conversation

import (
	"regexp"
	"strings"
)

// plainLine is a line of a Markdown text without marks.
type plainLine struct {
	text   string
	hang   int  // spaces before its continuation lines
	exact  bool // code or a row of a table: never wrapped
	strong bool // a heading
}

var (
	markdownFence   = regexp.MustCompile("^\\s*(```+|~~~+)")
	markdownHeading = regexp.MustCompile(`^#{1,6}\s+`)
	markdownRule    = regexp.MustCompile(`^\s*([-*_])(\s*[-*_]){2,}\s*$`)
	markdownBullet  = regexp.MustCompile(`^(\s*)[*+-]\s+`)
	markdownNumber  = regexp.MustCompile(`^\s*\d+[.)]\s+`)
	markdownLink    = regexp.MustCompile(`!?\[([^\[\]]*)\]\(<?([^()\s<>]+)>?(?:\s+"[^"]*")?\)`)
	markdownStrong  = regexp.MustCompile(`(\*\*|__)(\S|\S.*?\S)(\*\*|__)`)
	markdownEm      = regexp.MustCompile(`(^|[\s(])([*_])(\S|\S[^*_]*\S)([*_])($|[\s.,:;!?)])`)
	markdownCode    = regexp.MustCompile("(`+)([^`]|[^`].*?[^`])(`+)")
)

// plainLines returns the lines of a Markdown text without marks. Code keeps its lines, indented.
func plainLines(markdown string) []plainLine {
	var lines []plainLine
	fence := ""
	for line := range strings.SplitSeq(strings.Trim(markdown, "\n"), "\n") {
		mark := ""
		if m := markdownFence.FindStringSubmatch(line); m != nil {
			mark = m[1]
		}
		switch {
		case fence != "" && strings.HasPrefix(mark, fence):
			fence = ""
		case fence != "":
			lines = append(lines, plainLine{text: "    " + line, exact: true})
		case mark != "":
			fence = mark
		case markdownRule.MatchString(line):
		case strings.HasPrefix(strings.TrimSpace(line), "|"):
			lines = append(lines, plainLine{text: line, exact: true})
		default:
			lines = append(lines, proseLine(line))
		}
	}
	return lines
}

// proseLine returns a line of prose without its marks.
func proseLine(line string) plainLine {
	line = strings.TrimRight(line, " ")
	strong := false
	if m := markdownHeading.FindString(line); m != "" {
		line, strong = line[len(m):], true
	}
	line = markdownBullet.ReplaceAllString(line, "$1- ")
	hang := len(line) - len(strings.TrimLeft(line, " "))
	if m := markdownBullet.FindString(line) + markdownNumber.FindString(line); m != "" {
		hang = len(m)
	}
	return plainLine{text: withoutMarks(line), hang: min(hang, 16), strong: strong}
}

// withoutMarks removes the marks within a line, except in code.
func withoutMarks(line string) string {
	var b strings.Builder
	for {
		m := markdownCode.FindStringSubmatchIndex(line)
		if m == nil {
			b.WriteString(withoutEmphasis(line))
			return b.String()
		}
		b.WriteString(withoutEmphasis(line[:m[0]]))
		b.WriteString(line[m[4]:m[5]])
		line = line[m[1]:]
	}
}

// withoutEmphasis removes links and emphasis from a text without code.
func withoutEmphasis(text string) string {
	text = markdownLink.ReplaceAllStringFunc(text, func(link string) string {
		m := markdownLink.FindStringSubmatch(link)
		if m[1] == "" || m[1] == m[2] {
			return m[2]
		}
		return m[1] + " (" + m[2] + ")"
	})
	text = markdownStrong.ReplaceAllString(text, "$2")
	return markdownEm.ReplaceAllString(text, "$1$3$5")
}
