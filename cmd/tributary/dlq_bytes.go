package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"tributary/envelopes"
	"tributary/pipeline"
)

func (a *app) dlqShowCommand() *cobra.Command {
	var raw bool
	var output string
	filter := &letterFilter{status: allLetters}
	cmd := &cobra.Command{
		Use:   "show [flags] SEQUENCE",
		Short: "Show a dead letter and its bytes",
		Long: `Show one dead letter: why it is one, where its record comes from, its headers, and
the beginning of its bytes in a form that is safe on a terminal. --raw writes all
of the bytes as they are, and nothing else.`,
		Example: `  tributary dlq show 4711
  tributary dlq show --raw 4711 | tributary normalize --source codex -`,
		Args: oneArg("SEQUENCE, as dlq ls shows it"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "pretty" && output != "json" {
				return usageError{fmt.Errorf("-o %q: write pretty or json", output)}
			}
			return a.withLetters(cmd, filter, args, func(ctx context.Context, js jetstream.JetStream, q pipeline.DeadLettersQuery) error {
				for l, err := range a.eachLetter(ctx, js, q) {
					if err != nil {
						return err
					}
					data, err := l.Load(ctx, js)
					gone := errors.Is(err, pipeline.ErrRecordGone)
					switch {
					case err != nil && (raw || !gone):
						return err
					case raw:
						_, err = a.stdout.Write(data)
						return err
					case output == "json" && gone:
						return writeJSON(jsonWriter(a.stdout), describeLetter(&l, nil))
					case output == "json":
						return writeJSON(jsonWriter(a.stdout), describeLetter(&l, &data))
					default:
						return a.showLetter(&l, data, gone)
					}
				}
				return missing(q.Sequences).err(a)
			})
		},
	}
	cmd.Flags().BoolVar(&raw, "raw", false, "write the bytes unchanged, and nothing else")
	cmd.Flags().StringVarP(&output, "output", "o", "pretty", "pretty or json, which has the bytes in base64")
	a.serverFlag(cmd)
	return cmd
}

// maxShown is how much of a record is shown.
const maxShown = 4 << 10

// showLetter prints a dead letter for a person.
func (a *app) showLetter(l *pipeline.DeadLetter, data []byte, gone bool) error {
	p := a.newPrinter()
	var b bytes.Buffer
	line := func(name, value string) {
		if value = oneLine(value); value != "" {
			fmt.Fprintf(&b, "%s %s\n", p.style(faint, fmt.Sprintf("%-11s", name)), value)
		}
	}
	line("record", fmt.Sprintf("%d of stream %s, first seen %s", l.Sequence, l.Stream, moment(l.FirstSeen)))
	line("status", string(l.Standing))
	line("reason", l.Reason)
	line("error", l.Error)
	line("agent", string(l.Source))
	line("session", l.Session)
	if l.Requeued != 0 {
		line("requeued", fmt.Sprintf("it repeats record %d, the dead letter before it", l.Requeued))
	}
	line("generation", fmt.Sprintf("%s, partition %d, revision %d of the normalizers", l.Generation, l.Partition, l.Revision))
	line("dead letter", fmt.Sprintf("message %d of stream %s, stored %s", l.Position, pipeline.EventsStream(l.Generation), moment(l.Stored)))
	if file := l.Header.Get(envelopes.HeaderFile); file != "" {
		place := "file " + file
		if at, _, err := envelopes.ParsePosition(l.Header.Get(envelopes.HeaderPosition)); err == nil {
			place = fmt.Sprintf("byte %s of %s", thousands(at), place)
		}
		line("stood at", place)
	}
	for _, name := range slices.Sorted(maps.Keys(l.Header)) {
		line("header", name+": "+strings.Join(l.Header[name], ", "))
	}
	where := "in the dead letter"
	switch {
	case gone:
		where = "gone: they did not fit the dead letter, and the raw stream has let them go"
	case !l.Whole:
		where = "in the raw stream only, for they did not fit the dead letter"
	}
	line("bytes", size(int64(l.Size))+", "+where)
	shown := data[:min(len(data), maxShown)]
	if len(shown) > 0 {
		fmt.Fprintf(&b, "\n%s\n", strings.TrimRight(printable(string(shown)), "\n"))
	}
	if more := len(data) - len(shown); more > 0 {
		fmt.Fprintf(&b, "%s\n", p.style(faint, fmt.Sprintf("... %s more: dlq show --raw %d has them all", size(int64(more)), l.Sequence)))
	}
	_, err := a.stdout.Write(b.Bytes())
	return err
}

func (a *app) dlqExportCommand() *cobra.Command {
	var filter *letterFilter
	var dir string
	cmd := &cobra.Command{
		Use:   "export [flags] [SEQUENCE...]",
		Short: "Write dead letters with their bytes",
		Long: `Write dead letters to standard output, one JSON object per line, with the exact
bytes in base64 as data. With --dir the bytes go to files instead, one for each
session, named <agent>.<session>.jsonl, with one record after the other on lines of
their own: what tributary normalize reads.

The exit code is 3 when the bytes of some are gone.`,
		Example: `  tributary dlq export >dead.ndjson
  tributary dlq export 4711 | jq -r .data | base64 -d
  tributary dlq export --dir dead && tributary normalize --source codex dead/codex.019cd1f0.jsonl`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withLetters(cmd, filter, args, func(ctx context.Context, js jetstream.JetStream, q pipeline.DeadLettersQuery) error {
				write := func(l *pipeline.DeadLetter, data *[]byte) error {
					return writeJSON(jsonWriter(a.stdout), describeLetter(l, data))
				}
				if dir != "" {
					if err := os.MkdirAll(dir, 0o700); err != nil {
						return err
					}
					write = letterFiles{dir: dir, begun: make(map[string]bool)}.add
				}
				n, gone := 0, 0
				missing := missing(slices.Clone(q.Sequences))
				for l, err := range a.eachLetter(ctx, js, q) {
					if err != nil {
						return err
					}
					n++
					missing.found(&l)
					data, err := l.Load(ctx, js)
					has := &data
					if errors.Is(err, pipeline.ErrRecordGone) {
						gone++
						has, err = nil, nil
					}
					if err == nil {
						err = write(&l, has)
					}
					if err != nil {
						return err
					}
				}
				fmt.Fprintf(a.stderr, "exported %s\n", plural(n-gone, "dead letter"))
				if gone > 0 {
					return partlyError(fmt.Sprintf("the bytes of %s are gone", plural(gone, "dead letter")))
				}
				return missing.err(a)
			})
		},
	}
	filter = a.letterFlags(cmd, "open")
	cmd.Flags().StringVar(&dir, "dir", "", "write the bytes to files in this folder instead")
	return cmd
}

// letterFiles are the files that dead letters are exported to, one for each session.
type letterFiles struct {
	dir   string
	begun map[string]bool
}

// add appends the bytes of a dead letter to the file of its session. It never adds to a
// file that was there before.
func (f letterFiles) add(l *pipeline.DeadLetter, data *[]byte) error {
	if data == nil {
		return nil
	}
	session := l.Session
	if session == "" {
		session = strconv.FormatUint(l.Sequence, 10)
	}
	// The tokens of subjects are safe as names of files.
	name := filepath.Join(f.dir, envelopes.Token(string(l.Source))+"."+envelopes.Token(session)+".jsonl")
	flags := os.O_WRONLY | os.O_APPEND
	if !f.begun[name] {
		flags |= os.O_CREATE | os.O_EXCL
	}
	file, err := os.OpenFile(name, flags, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("export: %s is there already: name a new folder", name)
	}
	if err != nil {
		return err
	}
	f.begun[name] = true
	line := *data
	if !bytes.HasSuffix(line, []byte("\n")) {
		line = append(line, '\n')
	}
	_, err = file.Write(line)
	return errors.Join(err, file.Close())
}
