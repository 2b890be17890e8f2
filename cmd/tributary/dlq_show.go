package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/letters"
	"tributary/cmd/internal/terminal"
	"tributary/pipeline/events"
)

func dlqShowCommand(a *app) *cobra.Command {
	var raw bool
	var output string
	filter := &letterFilter{status: allLetters}
	cmd := &cobra.Command{
		Use:   "show [flags] SEQUENCE",
		Short: "Show a dead letter and its bytes",
		Long: `Show one dead letter: its reason, the origin of its record, its headers, and the
beginning of its bytes in a form that is safe on a terminal. --raw writes all of
the bytes unchanged, and nothing else.`,
		Example: `  tributary dlq show 4711
  tributary dlq show --raw 4711 | tributary normalize --source SOURCE -`,
		Args: oneArg("SEQUENCE, as dlq ls shows it"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output, "pretty", "json"); err != nil {
				return err
			}
			return filter.selectLetters(cmd, a, args, func(ctx context.Context, s *letterSelection) error {
				for l, err := range s.letters(ctx) {
					if err != nil {
						return err
					}
					if raw {
						return s.writeRaw(ctx, &l)
					}
					return s.show(ctx, &l, output)
				}
				return s.missed()
			})
		},
	}
	cmd.Flags().BoolVar(&raw, "raw", false, "write the bytes unchanged, and nothing else")
	cmd.Flags().StringVarP(&output, "output", "o", "pretty", "pretty or json, which has the bytes in base64")
	a.serverFlag(cmd)
	return cmd
}

// writeRaw writes the bytes of a dead letter unchanged.
func (s *letterSelection) writeRaw(ctx context.Context, l *events.DeadLetter) error {
	data, err := l.LoadRecord(ctx, s.js)
	if err == nil {
		_, err = s.stdout.Write(data)
	}
	return err
}

// show prints a dead letter, and its bytes if they still exist.
func (s *letterSelection) show(ctx context.Context, l *events.DeadLetter, output string) error {
	data, err := l.LoadRecord(ctx, s.js)
	gone := errors.Is(err, events.ErrRecordGone)
	switch {
	case err != nil && !gone:
		return err
	case output != "json":
		return printLetter(s.app, l, data, gone)
	case gone:
		return terminal.WriteJSON(s.stdout, toJSON(l, nil))
	default:
		return terminal.WriteJSON(s.stdout, toJSON(l, &data))
	}
}

// maxShown limits the printed bytes of a record.
const maxShown = 4 << 10

// printLetter prints a dead letter for people.
func printLetter(a *app, l *events.DeadLetter, data []byte, gone bool) error {
	p := a.printer()
	var b bytes.Buffer
	fields := terminal.NewTable("", "")
	for _, f := range letters.Fields(l, gone) {
		if value := terminal.OneLine(f.Value); value != "" {
			fields.Add(p.Style(terminal.Faint, f.Name), value)
		}
	}
	if err := fields.Write(&b, terminal.Uncut); err != nil {
		return err
	}
	shown := data[:min(len(data), maxShown)]
	if len(shown) > 0 {
		fmt.Fprintf(&b, "\n%s\n", strings.TrimRight(terminal.Printable(string(shown)), "\n"))
	}
	if more := len(data) - len(shown); more > 0 {
		fmt.Fprintf(&b, "%s\n", p.Style(terminal.Faint, fmt.Sprintf("... %s more: dlq show --raw %d writes all", terminal.Size(int64(more)), l.Sequence)))
	}
	_, err := a.stdout.Write(b.Bytes())
	return err
}
