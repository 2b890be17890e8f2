package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/pipeline/ship"
)

func (a *app) normalizeCommand() *cobra.Command {
	var source, session, reportFile, as string
	var cloudEvents bool
	cmd := &cobra.Command{
		Use:   "normalize [flags] FILE|-",
		Short: "Turn one log into events, without a broker",
		Long: `Read one log and print its events: one AgentEventV1 in JSON per line, byte for
byte the data that the stage publishes when the same file is shipped.

With --as entries they are shown as the lines of a conversation (NormalizedEntry): a tool
is one entry, told when it is called and again with its result; keep the last line of each
index. With --as acp they are messages of the Agent Communication Protocol: one of the role
user per prompt, one of the role agent/<name> for all that the agent says and does until
the next one, printed when it is complete.

A file that ends in .zst or .gz is unpacked. The agent is told from the content
unless --source names it. The exit code is 3 when some records could not be read.`,
		Example: `  tributary normalize ~/.claude/projects/-home-me-app/4f6c.jsonl
  claude -p --output-format stream-json --verbose "hi" | tributary normalize -
  tributary normalize --report report.json session.jsonl >events.jsonl
  tributary normalize --as entries session.jsonl | jq -r .content`,
		Args: oneArg("FILE, or - for standard input"),
		RunE: func(cmd *cobra.Command, args []string) error {
			file := normalizers.File{Session: session}
			var err error
			if file.Source, err = parseSource(source); err != nil {
				return err
			}
			form, err := parseForm(as)
			if err != nil {
				return err
			}
			if cloudEvents && form != asEvents {
				return usageError{fmt.Errorf("--cloudevents are events: leave out --as %s", form)}
			}
			in, err := a.openLog(args[0], &file)
			if err != nil {
				return err
			}
			defer in.Close()
			var report io.WriteCloser
			if reportFile != "" { // before the work: a wrong name is told at once
				if report, err = os.Create(reportFile); err != nil {
					return fmt.Errorf("report: %w", err)
				}
				defer report.Close()
			}

			f := &filter{
				framer:   normalizers.NewFramer(file),
				sessions: map[sessionKey]*normalizers.Session{},
				profile:  a.config.ToolMetadata,
				out:      bufio.NewWriterSize(jsonWriter(a.stdout), 64<<10),
				report:   newReport(),
			}
			f.lines = newLineWriter(f.out, form)
			if cloudEvents {
				f.generation = a.config.Generation
			}
			if err := f.run(cmd.Context(), in); err != nil {
				return fmt.Errorf("normalize %s: %w", args[0], err)
			}
			if report != nil {
				if err := f.report.write(report); err != nil {
					return err
				}
			}
			return f.report.verdict(a.stderr)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&source, "source", "", "the agent that wrote the log: "+sourceNames())
	flags.StringVar(&session, "session", "", "session of every record, instead of what the log says")
	flags.BoolVar(&cloudEvents, "cloudevents", false, "print structured CloudEvents")
	flags.StringVar(&reportFile, "report", "", "write what became of the records to this file, as JSON")
	asFlag(cmd, &as)
	completeSources(cmd)
	return cmd
}

// openLog opens a log and fills in what its name and its file say. What is packed is
// unpacked.
func (a *app) openLog(path string, file *normalizers.File) (io.ReadCloser, error) {
	if path == "-" {
		file.Name, file.Path, file.Modified = "stdin", "stdin", time.Unix(0, 0).UTC()
		return io.NopCloser(a.stdin), nil
	}
	in, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := in.Stat()
	if err == nil && info.IsDir() {
		err = usageError{fmt.Errorf("%s is a folder: name a file, or ship the folder", path)}
	}
	if err != nil {
		in.Close()
		return nil, err
	}
	name := normalizers.Unpacked(filepath.Base(path))
	file.Name, file.Path, file.Modified = name, name, info.ModTime()
	if abs, err := filepath.Abs(path); err == nil {
		file.Folder = filepath.Base(filepath.Dir(abs))
	}
	unpacked, err := normalizers.Unpack(path, in)
	if err != nil {
		in.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return struct {
		io.Reader
		io.Closer
	}{unpacked, in}, nil
}

// errUnknownSource ends a command that cannot tell whose log it was given.
var errUnknownSource = errors.New("cannot tell the agent from the content: pass --source")

// sessionKey names a session.
type sessionKey struct {
	source envelopes.Source
	id     string
}

// filter folds one log. Each session of it has its own state; records keep the order of
// the file.
type filter struct {
	framer     *normalizers.Framer
	sessions   map[sessionKey]*normalizers.Session
	profile    normalizers.Profile
	generation string // of the CloudEvents; empty for plain events
	out        *bufio.Writer
	lines      *lineWriter // onto out
	report     *report

	records uint64 // records so far, the sequence of the last one
	line    []byte // buffer of the CloudEvent that is printed
}

// run reads in to its end and folds what it holds. What has come of a piece is printed
// before the next one is waited for, so that a filter in a pipe keeps up. It ends with ctx
// even while it waits for input.
func (f *filter) run(ctx context.Context, in io.Reader) error {
	pieces := ship.Chunks(ctx, in)
	for {
		var p ship.Chunk
		select {
		case p = <-pieces:
		case <-ctx.Done():
			return ctx.Err()
		}
		if p.Err != nil && !errors.Is(p.Err, io.EOF) {
			return p.Err
		}
		_, _ = f.framer.Write(p.Data) // never fails
		if p.Err != nil {
			f.framer.Close()
		}
		err := f.fold()
		if err == nil && p.Err != nil {
			err = f.lines.end()
		}
		if err := errors.Join(err, f.out.Flush()); err != nil || p.Err != nil {
			return err
		}
	}
}

// fold takes the records that are ready. The sequence of a record is its number in the
// file, not its line, for a line can hold several: an event names its record by it.
func (f *filter) fold() error {
	for {
		framed, ok := f.framer.Next()
		if !ok {
			return nil
		}
		if framed.Record.Source == "" {
			return usageError{errUnknownSource}
		}
		r := framed.Record
		if !r.Origin.End {
			f.records++
			r.Sequence = f.records
		}
		if framed.Err != nil {
			if err := f.report.deadLetter(framed.Line, framed.Err); err != nil {
				return err
			}
			continue
		}
		key := sessionKey{r.Source, r.Session}
		session := f.sessions[key]
		if session == nil {
			session = normalizers.NewSession(r.Source, r.Session)
			session.UseProfile(f.profile)
			f.sessions[key] = session
		}
		result, err := normalizers.Normalize(session, r)
		if err != nil {
			if err := f.report.deadLetter(framed.Line, err); err != nil {
				return err
			}
			continue
		}
		f.report.count(r, result)
		for i := range result.Events {
			if err := f.print(&result.Events[i]); err != nil {
				return err
			}
		}
	}
}

// print writes what comes of one event, each on one line.
func (f *filter) print(e *normalizers.Emitted) error {
	if f.generation == "" {
		return f.lines.event(&e.Event)
	}
	var err error
	_, f.line, err = envelopes.EncodeEvent(&e.Event, envelopes.Provenance{Generation: f.generation, Partition: -1}, envelopes.Structured)
	if err != nil {
		return err
	}
	f.line = append(f.line, '\n')
	_, err = f.out.Write(f.line)
	return err
}

// report says what became of the records of a log. At any time Records is the sum of
// RecordsWithEvents, all of Skipped, and the dead letters: a record is in exactly one of
// them, and moves when an event comes out of it later.
type report struct {
	Records           int                            `json:"records"`
	RecordsWithEvents int                            `json:"records_with_events"`
	Events            int                            `json:"events"`
	Skipped           map[normalizers.SkipReason]int `json:"skipped"`
	DeadLetters       []deadLetter                   `json:"dead_letters"`

	waiting map[uint64]normalizers.SkipReason // skipped records whose events may still come
	oldest  []uint64                          // the keys of waiting, oldest first
}

// deadLetter is a record that could not be read.
type deadLetter struct {
	Line   int    `json:"line"`
	Reason string `json:"reason"`
}

// maxWaiting is how many skipped records are remembered for their events: far more than
// the state of a session can hold back.
const maxWaiting = 1 << 16

func newReport() *report {
	return &report{
		Skipped:     map[normalizers.SkipReason]int{},
		DeadLetters: []deadLetter{},
		waiting:     map[uint64]normalizers.SkipReason{},
	}
}

// deadLetter counts a record that failed with err, which is returned when it is no fault
// of the record.
func (p *report) deadLetter(line int, err error) error {
	reason, permanent := normalizers.Reason(err)
	if !permanent {
		return err
	}
	p.Records++
	p.DeadLetters = append(p.DeadLetters, deadLetter{line, reason})
	return nil
}

// count takes in what became of a record, and of the earlier records whose events came
// with it.
func (p *report) count(r normalizers.Record, result normalizers.Result) {
	p.Events += len(result.Events)
	own := false
	for i := range result.Events {
		sequence := result.Events[i].Sequence
		if !r.Origin.End && sequence == r.Sequence {
			own = true
		} else if reason, ok := p.waiting[sequence]; ok {
			delete(p.waiting, sequence)
			if p.Skipped[reason]--; p.Skipped[reason] == 0 {
				delete(p.Skipped, reason)
			}
			p.RecordsWithEvents++
		}
	}
	if r.Origin.End {
		return
	}
	p.Records++
	if own {
		p.RecordsWithEvents++
		return
	}
	reason := result.Skip
	if reason == "" { // all of its events are of earlier records: its own come later, or never
		reason = normalizers.SkipHeld
	}
	p.Skipped[reason]++
	if reason != normalizers.SkipHeld && reason != normalizers.SkipProgress {
		return
	}
	p.waiting[r.Sequence] = reason
	p.oldest = append(p.oldest, r.Sequence)
	if len(p.oldest) > maxWaiting {
		delete(p.waiting, p.oldest[0])
		p.oldest = p.oldest[1:]
	}
}

// write writes the report as JSON.
func (p *report) write(w io.WriteCloser) error {
	text, err := json.Marshal(p, json.Deterministic(true), jsontext.WithIndent("  "))
	if err == nil {
		_, err = w.Write(append(text, '\n'))
	}
	return errors.Join(err, w.Close())
}

// verdict tells about the dead letters, if there are any.
func (p *report) verdict(w io.Writer) error {
	if len(p.DeadLetters) == 0 {
		return nil
	}
	const shown = 5
	for _, d := range p.DeadLetters[:min(shown, len(p.DeadLetters))] {
		fmt.Fprintf(w, "line %d: %s\n", d.Line, d.Reason)
	}
	if more := len(p.DeadLetters) - shown; more > 0 {
		fmt.Fprintf(w, "and %d more: --report FILE lists them all\n", more)
	}
	return partlyError(fmt.Sprintf("%s of %s could not be read", thousands(int64(len(p.DeadLetters))), plural(p.Records, "record")))
}

// parseSource reads the value of --source.
func parseSource(name string) (envelopes.Source, error) {
	source := envelopes.Source(name)
	if name != "" && !slices.Contains(envelopes.Sources, source) {
		return "", usageError{fmt.Errorf("--source %q: write one of %s", name, sourceNames())}
	}
	return source, nil
}

func sourceNames() string {
	names := make([]string, len(envelopes.Sources))
	for i, s := range envelopes.Sources {
		names[i] = string(s)
	}
	return strings.Join(names, ", ")
}

// completeSources makes the shell complete the value of --source.
func completeSources(cmd *cobra.Command) {
	names := strings.Split(sourceNames(), ", ")
	// The only error is a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("source", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
}
