package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
	"tributary/pipeline/claims"
	"tributary/pipeline/events"
	"tributary/pipeline/streams"
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

// show prints a dead letter with its bytes, if they still exist.
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

// maxShown limits the bytes of a record that are shown.
const maxShown = 4 << 10

// printLetter prints a dead letter for people.
func printLetter(a *app, l *events.DeadLetter, data []byte, gone bool) error {
	p := a.printer()
	var b bytes.Buffer
	fields := terminal.NewTable("", "")
	for _, f := range letterFields(l, gone) {
		if value := terminal.OneLine(f.value); value != "" {
			fields.Add(p.Style(terminal.Faint, f.name), value)
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

// letterField is a line of the description of a dead letter.
type letterField struct{ name, value string }

// letterFields describes a dead letter.
func letterFields(l *events.DeadLetter, gone bool) []letterField {
	fields := []letterField{
		{"record", fmt.Sprintf("%d of stream %s, first seen %s", l.Sequence, l.Stream, terminal.DateTime(l.FirstSeen))},
		{"status", string(l.Standing)},
		{"reason", l.Reason},
		{"error", l.Error},
		{"agent", string(l.Source)},
		{"session", l.Session},
		{"sender", senderText(l.Edge)},
	}
	if l.Requeued != 0 {
		fields = append(fields, letterField{"requeued", fmt.Sprintf("it repeats record %d, the dead letter before it", l.Requeued)})
	}
	fields = append(fields,
		letterField{"generation", fmt.Sprintf("%s, partition %d, revision %d of the normalizers", l.Generation, l.Partition, l.Revision)},
		letterField{"dead letter", fmt.Sprintf("message %d of stream %s, stored %s", l.Position, l.EventsStream(), terminal.DateTime(l.Stored))},
		letterField{"position", letterPosition(l)})
	for _, name := range slices.Sorted(maps.Keys(l.Header)) {
		fields = append(fields, letterField{"header", name + ": " + strings.Join(l.Header[name], ", ")})
	}
	where := "in the dead letter"
	switch {
	case gone && l.Claim != (claims.Claim{}):
		where = "gone: the bucket " + streams.ClaimsBucket + " does not have their object any more"
	case l.Claim != (claims.Claim{}):
		where = "in an object of the bucket " + streams.ClaimsBucket
	case gone:
		where = "gone: they did not fit into the dead letter, and the raw stream does not have them any more"
	case !l.Whole:
		where = "in the raw stream only, because they did not fit into the dead letter"
	}
	return append(fields, letterField{"bytes", terminal.Size(l.RecordSize()) + ", " + where})
}

// letterPosition is the position of the record in its file; empty if it has none.
func letterPosition(l *events.DeadLetter) string {
	file := l.Header.Get(envelopes.HeaderFile)
	if file == "" {
		return ""
	}
	if offset, _, err := envelopes.ParsePosition(l.Header.Get(envelopes.HeaderPosition)); err == nil {
		return fmt.Sprintf("byte %s of file %s", terminal.Thousands(offset), file)
	}
	return "file " + file
}
