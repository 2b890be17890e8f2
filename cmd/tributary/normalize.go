package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/printer"
	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/events"
	"tributary/pipeline/ship"
	"tributary/pipeline/ship/database"
	"tributary/pipeline/streams"
)

// normalizeFlags are the flags of normalize.
type normalizeFlags struct {
	source, session string
	form            string
	cloudEvents     bool
	report          string
	explain, quiet  bool
}

func normalizeCommand(a *app) *cobra.Command {
	var f normalizeFlags
	cmd := &cobra.Command{
		Use:   "normalize [flags] FILE...|-",
		Short: "Turn logs into events, without a broker",
		Long: `Read logs and print their events, one AgentEventV1 in JSON per line: the same bytes that
a worker publishes when the same file is shipped. Each file is read by itself, and the
events have the order of the arguments. A file that cannot be opened does not stop the
others.

With --as entries the events are printed as the lines of a conversation
(NormalizedEntry). A tool is printed when it is called and again with its result: the
last line of each index counts. With --as acp they are printed as messages of the Agent
Communication Protocol: one of the role user per prompt, and one of the role
agent/<name> for all that the agent does until the next prompt, printed when it is
complete. Such lines also have source and session_id.

A file that ends in .zst or .gz is unpacked; one that ends in .db or .vscdb is read as the
database of an agent, without a lock or a change. The agent is recognized by the content
unless --source names it; a log of an agent without a normalizer is refused, and never
read as another agent's. With --explain a line for each file says how its agent was
recognized, or why it is refused, instead of the events. The exit code is 3 if some
records could not be read.

A line on standard error states how many items of unknown types the log has, which newer
versions of agents write, and whether its version is newer than the last one that was
checked; the report counts the items by version, kind and name. No event depends on
them, and --quiet leaves the line out. Unreadable records are always named.

With --report - the report is printed instead of the events. The report of several
files lists each with its name.`,
		Example: `  tributary normalize session.jsonl
  tributary normalize - <session.jsonl
  tributary normalize --report report.json session.jsonl >events.jsonl
  tributary normalize --report - *.jsonl
  tributary normalize --explain *.jsonl
  tributary normalize --as entries session.jsonl | jq -rs 'group_by(.index) | map(last.content) | .[]'`,
		Args: someArgs("FILE, or - for standard input"),
		RunE: func(cmd *cobra.Command, args []string) error { return normalizeFiles(cmd.Context(), a, args, &f) },
	}
	flags := cmd.Flags()
	sourceFlag(cmd, &f.source, "the agent that wrote the logs")
	flags.StringVar(&f.session, "session", "", "session of every record, instead of the one that the log states")
	flags.BoolVar(&f.cloudEvents, "cloudevents", false, "print structured CloudEvents")
	flags.StringVar(&f.report, "report", "", "write the outcome of the records to this file, as JSON; - prints it instead of the events")
	flags.BoolVar(&f.explain, "explain", false, "say how the agent of each file was recognized, instead of printing events")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "print no notes on unknown types and newer versions")
	formFlag(cmd, &f.form)
	return cmd
}

// normalizeFiles prints the events of logs and writes the report.
func normalizeFiles(ctx context.Context, a *app, paths []string, f *normalizeFlags) error {
	source, as, err := f.parse()
	if err != nil {
		return err
	}
	if f.explain {
		return explainFiles(ctx, a, paths, normalizers.File{Source: source, Session: f.session})
	}
	events, reportFile, err := normalizeOutputs(a, f.report)
	if err != nil {
		return err
	}
	if reportFile != nil {
		defer reportFile.Close()
	}

	relaxGC()
	out := bufio.NewWriterSize(terminal.JSONWriter(events), 64<<10)
	buffer := make([]byte, 64<<10)
	lines := printer.NewLines(out, as, printer.Members{})
	var reports fileReports
	var failed filesError
	for _, path := range paths {
		lines.Reset()
		n := newLogNormalizer(a, out, lines, f.cloudEvents)
		err := normalizeLog(ctx, a, path, normalizers.File{Source: source, Session: f.session}, n, buffer)
		if ctx.Err() != nil || errors.Is(err, syscall.EPIPE) {
			return err
		}
		switch {
		case err != nil && len(paths) == 1:
			return err
		case err != nil: // the others may succeed
			fmt.Fprintf(a.stderr, "tributary: %v\n", err)
			failed = filesError{failed.count + 1, err}
		default:
			reports = append(reports, fileReport{path, n.report})
		}
	}
	if reportFile != nil {
		if err := reports.write(reportFile, len(paths) > 1); err != nil {
			return err
		}
	}
	if !f.quiet {
		reports.printDrift(a.stderr, len(paths) > 1)
	}
	verdict := reports.verdict(a.stderr, len(paths) > 1)
	if failed.count > 0 {
		return failed
	}
	return verdict
}

// parse parses the agent and the form of the flags.
func (f *normalizeFlags) parse() (envelopes.Source, printer.Form, error) {
	source, err := parseSource(f.source)
	if err != nil {
		return "", "", err
	}
	as, err := parseForm(f.form)
	if err != nil {
		return "", "", err
	}
	if f.cloudEvents && as != printer.AsEvents {
		return "", "", usageError{fmt.Errorf("--cloudevents prints events: leave out --as %s", as)}
	}
	if f.explain && f.report != "" {
		return "", "", usageError{errors.New("--explain prints no report: leave out --report")}
	}
	return source, as, nil
}

// normalizeOutputs opens the outputs of the events and the report; report is nil if it has no name. It is called
// before the work, so that a wrong name fails at once.
func normalizeOutputs(a *app, reportName string) (events io.Writer, report io.WriteCloser, err error) {
	switch reportName {
	case "":
		return a.stdout, nil, nil
	case stdio:
		return io.Discard, keptOpen{terminal.JSONWriter(a.stdout)}, nil
	}
	file, err := os.Create(reportName)
	if err != nil {
		return nil, nil, fmt.Errorf("report: %w", err)
	}
	return a.stdout, file, nil
}

// relaxGC lets the heap grow to five times the live data, unless GOGC is set. A log needs only a few MB at a time,
// and collecting garbage that often would take a fifth of the time.
func relaxGC() {
	const usual = 100
	if percent := debug.SetGCPercent(4 * usual); percent != usual {
		debug.SetGCPercent(percent)
	}
}

// normalizeLog prints the events of the log at path. buffer is for reading.
func normalizeLog(ctx context.Context, a *app, path string, file normalizers.File, n *logNormalizer, buffer []byte) error {
	if database.Is(path) {
		return n.readDatabase(ctx, path, file)
	}
	in, err := openLog(a, path, &file)
	if err != nil {
		return err
	}
	defer in.Close()
	n.framer = normalizers.NewFramer(file)
	if in.stored {
		err = n.read(ctx, in, buffer)
	} else {
		err = n.run(ctx, in)
	}
	if err != nil {
		return fmt.Errorf("normalize %s: %w", path, err)
	}
	return nil
}

// keptOpen is a writer whose Close does nothing.
type keptOpen struct{ io.Writer }

func (keptOpen) Close() error { return nil }

// logNormalizer turns one log into events. Each session has its own state. Records are read in the order of the file.
type logNormalizer struct {
	framer     *normalizers.Framer
	sessions   map[events.SessionID]*core.Session
	settings   streams.Settings
	generation string // of the CloudEvents; empty for plain events
	out        *bufio.Writer
	lines      *printer.Lines // writes to out
	report     *report
	normalize  func(*core.Session, core.Record) (core.Result, error)

	records uint64 // how many were read: the sequence of the last one
	line    []byte // buffer of a CloudEvent
}

// newLogNormalizer returns a normalizer that prints to out, as CloudEvents or by lines, which writes to out, too.
func newLogNormalizer(a *app, out *bufio.Writer, lines *printer.Lines, cloudEvents bool) *logNormalizer {
	n := &logNormalizer{
		sessions:  map[events.SessionID]*core.Session{},
		settings:  streams.Settings{ToolMetadata: a.config.ToolMetadata, Raw: a.config.Raw},
		out:       out,
		lines:     lines,
		report:    newReport(),
		normalize: normalizers.Normalize,
	}
	if cloudEvents {
		n.generation = cmp.Or(a.config.Generation, streams.DefaultTopology().Generation)
	}
	return n
}

// read processes a stored log to its end.
func (n *logNormalizer) read(ctx context.Context, in io.Reader, buffer []byte) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		size, err := in.Read(buffer)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		last := err != nil
		if err := errors.Join(n.process(buffer[:size], last), n.out.Flush()); err != nil || last {
			return err
		}
	}
}

// readDatabase prints the events of a database.
func (n *logNormalizer) readDatabase(ctx context.Context, path string, file normalizers.File) error {
	for r, err := range database.Records(ctx, path, file.Source) {
		if err == nil {
			r.Session = cmp.Or(file.Session, r.Session)
			err = n.record(normalizers.Framed{Record: r})
		}
		if err != nil {
			return fmt.Errorf("normalize: %w", err)
		}
	}
	return errors.Join(n.lines.End(), n.out.Flush())
}

// run processes in to its end. It prints the events of each chunk before it waits for the next one, so that a pipe
// has no delay. It returns when ctx ends, even while it waits for input.
func (n *logNormalizer) run(ctx context.Context, in io.Reader) error {
	chunks := ship.Chunks(ctx, in)
	for {
		var chunk ship.Chunk
		select {
		case chunk = <-chunks:
		case <-ctx.Done():
			return ctx.Err()
		}
		if chunk.Err != nil && !errors.Is(chunk.Err, io.EOF) {
			return chunk.Err
		}
		last := chunk.Err != nil
		if err := errors.Join(n.process(chunk.Data, last), n.out.Flush()); err != nil || last {
			return err
		}
	}
}

// process prints the events that become complete with a chunk of the log.
func (n *logNormalizer) process(data []byte, last bool) error {
	_, _ = n.framer.Write(data) // never fails
	if last {
		n.framer.Close()
	}
	for framed, ok := n.framer.Next(); ok; framed, ok = n.framer.Next() {
		if err := n.record(framed); err != nil {
			return err
		}
	}
	if last {
		return n.lines.End()
	}
	return nil
}

// record normalizes a record and prints its events. The sequence of a record is its number in the file; its line
// would not do, because a line can have several records.
func (n *logNormalizer) record(framed normalizers.Framed) error {
	r := framed.Record
	if r.Source == "" {
		return usageError{n.framer.Recognition().Err()}
	}
	if !r.Origin.End {
		n.records++
		r.Sequence = n.records
	}
	if framed.Err != nil {
		return n.report.deadLetter(framed.Line, framed.Err)
	}
	session := n.session(r)
	result, err := n.normalize(session, r)
	if err != nil {
		return n.report.deadLetter(framed.Line, err)
	}
	n.report.drift.Place.Line = framed.Line
	n.report.count(session, r, result)
	for i := range result.Events {
		if err := n.print(&result.Events[i]); err != nil {
			return err
		}
	}
	return nil
}

// session returns the state of the session of a record.
func (n *logNormalizer) session(r core.Record) *core.Session {
	key := events.SessionID{Source: r.Source, Session: r.Session}
	session := n.sessions[key]
	if session == nil {
		session = normalizers.NewSession(r.Source, r.Session)
		n.settings.Apply(session)
		n.sessions[key] = session
	}
	return session
}

// print writes an event in the form that the flags ask for.
func (n *logNormalizer) print(e *core.Emitted) error {
	if n.generation == "" {
		return n.lines.CheckedEvent(&e.Event, e.Checked)
	}
	var err error
	_, n.line, err = envelopes.EncodeEvent(&e.Event, envelopes.Provenance{Generation: n.generation, Partition: -1}, envelopes.Structured)
	if err != nil {
		return err
	}
	n.line = append(n.line, '\n')
	_, err = n.out.Write(n.line)
	return err
}
