package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/events"
)

func dlqExportCommand(a *app) *cobra.Command {
	var filter *letterFilter
	var dir string
	cmd := &cobra.Command{
		Use:   "export [flags] [SEQUENCE...]",
		Short: "Write dead letters with their bytes",
		Long: `Write dead letters to standard output, one JSON object per line, with the exact bytes in
base64 as data. With --dir write only the bytes, to one file for each session, named
SOURCE.SESSION.jsonl, where each record begins a line: the input of tributary normalize.

The exit code is 3 if the bytes of some are gone.`,
		Example: `  tributary dlq export >dead.ndjson
  tributary dlq export 4711 | jq -r .data | base64 -d
  tributary dlq export --dir dead && tributary normalize --source SOURCE dead/SOURCE.SESSION.jsonl`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return filter.selectLetters(cmd, a, args, func(ctx context.Context, s *letterSelection) error {
				write := func(l *events.DeadLetter, data *[]byte) error {
					return terminal.WriteJSON(a.stdout, toJSON(l, data))
				}
				if dir != "" {
					if err := os.MkdirAll(dir, 0o700); err != nil {
						return err
					}
					write = letterFiles{dir: dir, created: make(map[string]bool)}.add
				}
				return s.export(ctx, write)
			})
		},
	}
	filter = letterFlags(cmd, a, string(core.StandingOpen))
	cmd.Flags().StringVar(&dir, "dir", "", "write the bytes to files in this folder instead")
	return cmd
}

// export passes each dead letter to write with its bytes; data is nil if they are gone.
func (s *letterSelection) export(ctx context.Context, write func(l *events.DeadLetter, data *[]byte) error) error {
	n, gone := 0, 0
	for l, err := range s.letters(ctx) {
		if err != nil {
			return err
		}
		n++
		s.missing.found(&l)
		content, err := l.LoadRecord(ctx, s.js)
		data := &content
		if errors.Is(err, events.ErrRecordGone) {
			gone++
			data, err = nil, nil
		}
		if err != nil {
			return err
		}
		if err := write(&l, data); err != nil {
			return err
		}
	}
	fmt.Fprintf(s.stderr, "exported %s\n", terminal.Plural(n-gone, "dead letter"))
	if gone > 0 {
		return partlyError(fmt.Sprintf("the bytes of %s do not exist any more", terminal.Plural(gone, "dead letter")))
	}
	return s.missed()
}

// letterFiles are the files of exported dead letters, one for each session.
type letterFiles struct {
	dir     string
	created map[string]bool
}

// add appends the bytes of a dead letter to the file of its session. It refuses a file that existed before.
func (f letterFiles) add(l *events.DeadLetter, data *[]byte) error {
	if data == nil {
		return nil
	}
	session := l.Session
	if session == "" {
		session = strconv.FormatUint(l.Sequence, 10)
	}
	// Tokens of subjects are safe as file names.
	name := filepath.Join(f.dir, envelopes.Token(string(l.Source))+"."+envelopes.Token(session)+".jsonl")
	flags := os.O_WRONLY | os.O_APPEND
	if !f.created[name] {
		flags |= os.O_CREATE | os.O_EXCL
	}
	file, err := os.OpenFile(name, flags, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("export: %s exists: name a new folder", name)
	}
	if err != nil {
		return err
	}
	f.created[name] = true
	line := *data
	if !bytes.HasSuffix(line, []byte("\n")) {
		line = append(line, '\n')
	}
	_, err = file.Write(line)
	return errors.Join(err, file.Close())
}
