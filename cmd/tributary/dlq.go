package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/pipeline"
)

func (a *app) dlqCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dlq",
		Short: "Look at the records that could not be read, and give them back",
		Long: `A record that cannot be read becomes a dead letter of its generation: its bytes,
its headers and why. Nothing else waits for it. Look at dead letters with ls and
show; when a newer tributary can read them, requeue appends their events to their
sessions, once, however often it is done.

Dead letters are named by the sequence of their record in the raw stream.`,
		Example: `  tributary dlq ls --group                       what is wrong, and how often
  tributary dlq ls --reason panic --since 24h
  tributary dlq show 4711                        one of them, with its bytes
  tributary dlq requeue --reason panic           after the fix
  tributary dlq purge --status settled           those that were read since, or are dead letters anew`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.dlqListCommand(), a.dlqShowCommand(), a.dlqRequeueCommand(), a.dlqExportCommand(), a.dlqPurgeCommand())
	return cmd
}

// letterFilter is the flags that select dead letters.
type letterFilter struct {
	source, session, reason, status string
	since, until                    string
	partitions                      []int
}

// allLetters is the value of --status that selects every dead letter.
const allLetters = "all"

// letterFlags adds the flags that select dead letters; status is the default of --status.
func (a *app) letterFlags(cmd *cobra.Command, status string) *letterFilter {
	f := &letterFilter{}
	flags := cmd.Flags()
	flags.StringVar(&f.source, "source", "", "only of this agent: "+sourceNames()+", or what stands in its place")
	flags.StringVar(&f.session, "session", "", "only of this session: its whole id")
	flags.StringVar(&f.reason, "reason", "", "only for this reason: malformed, panic, ...; ls --group lists them")
	flags.StringVar(&f.since, "since", "", "only those since: a duration, date or time")
	flags.StringVar(&f.until, "until", "", "only those before: a duration, date or time")
	flags.IntSliceVar(&f.partitions, "partition", nil, "only of these partitions")
	flags.StringVar(&f.status, "status", status, "open: not read yet; settled: requeued since, and read or a dead letter anew; forgotten: nobody knows; or all")
	a.serverFlag(cmd)
	completeSources(cmd)
	// The only error is a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("status", cobra.FixedCompletions(letterStatuses, cobra.ShellCompDirectiveNoFileComp))
	return f
}

var letterStatuses = []string{string(normalizers.StandingOpen), string(normalizers.StandingSettled), string(normalizers.StandingForgotten), allLetters}

// query is what the flags and the arguments select.
func (f *letterFilter) query(args []string, now time.Time) (pipeline.DeadLettersQuery, error) {
	q := pipeline.DeadLettersQuery{
		Source: envelopes.Source(f.source), Session: f.session, Reason: f.reason, Partitions: f.partitions,
	}
	if !slices.Contains(letterStatuses, f.status) {
		return q, usageError{fmt.Errorf("--status %q: write one of %s", f.status, strings.Join(letterStatuses, ", "))}
	}
	if f.status != allLetters {
		q.Standing = normalizers.Standing(f.status)
	}
	var err error
	if q.Since, err = parseSince(f.since, now); err != nil {
		return q, err
	}
	if q.Until, err = parseSince(f.until, now); err != nil {
		return q, usageError{fmt.Errorf("--until %q: write what --since takes", f.until)}
	}
	for _, arg := range args {
		n, err := strconv.ParseUint(arg, 10, 64)
		if err != nil || n == 0 {
			return q, usageError{fmt.Errorf("%q is no sequence: write the number that dlq ls shows", arg)}
		}
		q.Sequences = append(q.Sequences, n)
	}
	return q, nil
}

// selects reports whether the flags or the arguments select anything in particular.
func (f *letterFilter) selects(cmd *cobra.Command, args []string) bool {
	for _, name := range []string{"source", "session", "reason", "since", "until", "partition", "status"} {
		if cmd.Flags().Changed(name) {
			return true
		}
	}
	return len(args) > 0
}

// withLetters connects to the broker and hands over what the flags and arguments select.
// Whoever names sequences means those, whatever their status.
func (a *app) withLetters(cmd *cobra.Command, f *letterFilter, args []string, work func(context.Context, jetstream.JetStream, pipeline.DeadLettersQuery) error) error {
	if len(args) > 0 && !cmd.Flags().Changed("status") {
		f.status = allLetters
	}
	q, err := f.query(args, time.Now())
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	js, err := a.jetStream(ctx)
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	return a.noStream(work(ctx, js, q))
}

// eachLetter iterates over dead letters. A message among them that is none is told to the
// user and passed over.
func (a *app) eachLetter(ctx context.Context, js jetstream.JetStream, q pipeline.DeadLettersQuery) iter.Seq2[pipeline.DeadLetter, error] {
	return func(yield func(pipeline.DeadLetter, error) bool) {
		for l, err := range pipeline.DeadLetters(ctx, js, a.config.Generation, q) {
			if errors.Is(err, pipeline.ErrDeadLetter) {
				fmt.Fprintf(a.stderr, "passed over: %v\n", err)
				continue
			}
			if !yield(l, err) {
				return
			}
		}
	}
}

func (a *app) dlqListCommand() *cobra.Command {
	var filter *letterFilter
	var output string
	var group bool
	cmd := &cobra.Command{
		Use:   "ls [flags] [SEQUENCE...]",
		Short: "List dead letters",
		Long: `List dead letters in the order in which they came: those whose records have not
been read since, unless --status says otherwise. With --group how many there are
by reason and agent. With -o json one object per line.`,
		Example: `  tributary dlq ls
  tributary dlq ls --group --status all
  tributary dlq ls --reason malformed --since 1h -o json | jq -r .error`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "pretty" && output != "json" {
				return usageError{fmt.Errorf("-o %q: write pretty or json", output)}
			}
			return a.withLetters(cmd, filter, args, func(ctx context.Context, js jetstream.JetStream, q pipeline.DeadLettersQuery) error {
				list := a.newLetterList(output == "json")
				groups := make(map[letterGroup]*letterCount)
				n, missing := 0, missing(slices.Clone(q.Sequences))
				for l, err := range a.eachLetter(ctx, js, q) {
					if err != nil {
						return err
					}
					n++
					missing.found(&l)
					if group {
						countLetter(groups, &l)
					} else if err := list.letter(&l); err != nil {
						return err
					}
				}
				if group {
					if err := list.groups(groups); err != nil {
						return err
					}
				}
				if output != "json" {
					a.countLetters(n, filter.status)
				}
				return missing.err(a)
			})
		},
	}
	filter = a.letterFlags(cmd, string(normalizers.StandingOpen))
	cmd.Flags().BoolVar(&group, "group", false, "count them by reason and agent")
	cmd.Flags().StringVarP(&output, "output", "o", "pretty", "pretty or json")
	return cmd
}

// countLetters says how many dead letters there are.
func (a *app) countLetters(n int, status string) {
	kind := "dead letter"
	if status != allLetters {
		kind = status + " dead letter"
	}
	if n == 0 {
		fmt.Fprintf(a.stderr, "no %s in generation %s\n", kind, a.config.Generation)
		return
	}
	fmt.Fprintln(a.stderr, plural(n, kind))
}

// letterGroup is what dead letters are counted by.
type letterGroup struct {
	reason string
	source envelopes.Source
}

// letterCount is the dead letters of a group.
type letterCount struct {
	Reason  string           `json:"reason"`
	Source  envelopes.Source `json:"source"`
	Records int              `json:"records"`
	Bytes   int              `json:"bytes"`
	First   time.Time        `json:"first"` // when the first of them became one
	Last    time.Time        `json:"last"`
	Example uint64           `json:"example"` // sequence of the newest
}

func countLetter(groups map[letterGroup]*letterCount, l *pipeline.DeadLetter) {
	key := letterGroup{l.Reason, l.Source}
	c := groups[key]
	if c == nil {
		c = &letterCount{Reason: l.Reason, Source: l.Source, First: l.Stored}
		groups[key] = c
	}
	c.Records++
	c.Bytes += l.Size
	c.Last, c.Example = l.Stored, l.Sequence
}

// letterList shows dead letters, line by line.
type letterList struct {
	*printer
	json   io.Writer // nil for a table
	headed bool
}

func (a *app) newLetterList(asJSON bool) *letterList {
	t := &letterList{printer: a.newPrinter()}
	if !isTerminal(a.stdout) {
		t.width = math.MaxInt // for grep
	}
	if asJSON {
		t.json = jsonWriter(a.stdout)
	}
	return t
}

// line prints a line of the table, under its heading.
func (t *letterList) line(heading, line string) error {
	if !t.headed {
		t.headed = true
		if _, err := fmt.Fprintln(t.w, t.fit(t.style(bold, heading))); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(t.w, t.fit(strings.TrimRight(line, " ")))
	return err
}

// moment is a time of a table.
func moment(t time.Time) string { return t.Local().Format(time.DateTime) }

// letter shows a dead letter.
func (t *letterList) letter(l *pipeline.DeadLetter) error {
	if t.json != nil {
		return writeJSON(t.json, describeLetter(l, nil))
	}
	const columns = "%9s  %-9s  %-19s  %-11s  %-15s  %10s  %-36s  %s"
	return t.line(fmt.Sprintf(columns, "SEQUENCE", "STATUS", "SINCE", "AGENT", "REASON", "SIZE", "SESSION", "ERROR"),
		fmt.Sprintf(columns, strconv.FormatUint(l.Sequence, 10), l.Standing, moment(l.Stored), oneLine(string(l.Source)),
			oneLine(l.Reason), size(int64(l.Size)), oneLine(l.Session), oneLine(l.Error)))
}

// groups shows counts, the largest first.
func (t *letterList) groups(groups map[letterGroup]*letterCount) error {
	list := slices.SortedFunc(maps.Values(groups), func(a, b *letterCount) int {
		return cmp.Or(b.Records-a.Records, strings.Compare(a.Reason, b.Reason), strings.Compare(string(a.Source), string(b.Source)))
	})
	const columns = "%9s  %-15s  %-11s  %10s  %-19s  %-19s  %s"
	for _, c := range list {
		if t.json != nil {
			if err := writeJSON(t.json, c); err != nil {
				return err
			}
			continue
		}
		if err := t.line(fmt.Sprintf(columns, "RECORDS", "REASON", "AGENT", "SIZE", "FIRST", "LAST", "EXAMPLE"),
			fmt.Sprintf(columns, thousands(int64(c.Records)), oneLine(c.Reason), oneLine(string(c.Source)), size(int64(c.Bytes)),
				moment(c.First), moment(c.Last), strconv.FormatUint(c.Example, 10))); err != nil {
			return err
		}
	}
	return nil
}

// letterJSON is a dead letter as JSON.
type letterJSON struct {
	Sequence   uint64               `json:"sequence"`
	Status     normalizers.Standing `json:"status"`
	Source     envelopes.Source     `json:"source"`
	Session    string               `json:"session"`
	Reason     string               `json:"reason"`
	Error      string               `json:"error"`
	Stream     string               `json:"stream"`
	FirstSeen  time.Time            `json:"first_seen"`
	Generation string               `json:"generation"`
	Partition  int                  `json:"partition"`
	Position   uint64               `json:"position"`
	Stored     time.Time            `json:"stored"`
	Normalizer int                  `json:"normalizer"`
	Requeued   uint64               `json:"requeued,omitzero"`
	Size       int                  `json:"size"`
	InRaw      bool                 `json:"only_in_raw,omitzero"`
	Headers    map[string][]string  `json:"headers"`
	Data       *[]byte              `json:"data,omitzero"`
}

// describeLetter is l with its bytes, where data is not nil.
func describeLetter(l *pipeline.DeadLetter, data *[]byte) letterJSON {
	return letterJSON{
		Sequence: l.Sequence, Status: l.Standing, Source: l.Source, Session: l.Session, Reason: l.Reason, Error: l.Error,
		Stream: l.Stream, FirstSeen: l.FirstSeen, Generation: l.Generation, Partition: l.Partition, Position: l.Position,
		Stored: l.Stored, Normalizer: l.Revision, Requeued: l.Requeued, Size: l.Size, InRaw: !l.Whole, Headers: l.Header, Data: data,
	}
}

// writeJSON writes v on one line. Bytes that are not UTF-8, which a header can hold,
// become U+FFFD.
func writeJSON(w io.Writer, v any) error {
	line, err := json.Marshal(v, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if err == nil {
		_, err = w.Write(append(line, '\n'))
	}
	return err
}

func (a *app) dlqRequeueCommand() *cobra.Command {
	var filter *letterFilter
	var all, dryRun bool
	cmd := &cobra.Command{
		Use:   "requeue [flags] [SEQUENCE...]",
		Short: "Give dead letters back to be read again",
		Long: `Publish the records of dead letters to the raw stream again. A worker appends
their events to their sessions; one that cannot be read this time either is a new
dead letter, which names the one before it.

It may be interrupted and repeated: a record yields its events once, however often
it is requeued. The exit code is 3 when some could not be requeued.`,
		Example: `  tributary dlq requeue 4711 4712
  tributary dlq requeue --reason panic --dry-run
  tributary dlq requeue --all`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !all && !filter.selects(cmd, args) {
				return usageError{errors.New("name sequences or a filter, or pass --all")}
			}
			return a.withLetters(cmd, filter, args, func(ctx context.Context, js jetstream.JetStream, q pipeline.DeadLettersQuery) error {
				report := requeueReport{a: a, counts: make(map[pipeline.Requeued]int), missing: slices.Clone(q.Sequences)}
				letters := a.eachLetter(ctx, js, q)
				if !dryRun {
					err := pipeline.Requeue(ctx, js, letters, report.add)
					return cmp.Or(err, report.close("requeued"))
				}
				for l, err := range letters {
					if err != nil {
						return err
					}
					report.add(l, l.Requeueable())
				}
				return report.close("would requeue")
			})
		},
	}
	filter = a.letterFlags(cmd, allLetters)
	cmd.Flags().BoolVar(&all, "all", false, "all dead letters of the generation")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would be requeued, and change nothing")
	return cmd
}

// requeueReport tells what becomes of dead letters that are requeued.
type requeueReport struct {
	a       *app
	counts  map[pipeline.Requeued]int
	missing missing
}

// requeueRefusals says why a dead letter is not requeued, and what helps.
var requeueRefusals = map[pipeline.Requeued]string{
	pipeline.RequeuedForgotten: "its session does not know any more whether it was read: replay into a new generation",
	pipeline.RequeuedNowhere:   "its subject names no session: dlq export has the bytes, ship them as a file",
	pipeline.RequeuedGone:      "its bytes did not fit the dead letter, and the raw stream has let them go",
	pipeline.RequeuedTooLarge:  "with its headers it does not fit a message of the broker any more: raise max_payload",
}

func (r *requeueReport) add(l pipeline.DeadLetter, is pipeline.Requeued) {
	const shown = 5 // of each kind
	r.counts[is]++
	r.missing.found(&l)
	if !is.Done() && r.counts[is] <= shown {
		fmt.Fprintf(r.a.stderr, "%d: %s\n", l.Sequence, requeueRefusals[is])
	}
}

// close says what was done; done is the word for it.
func (r *requeueReport) close(done string) error {
	refused := 0
	for is, n := range r.counts {
		if !is.Done() {
			refused += n
		}
	}
	text := done + " " + plural(r.counts[pipeline.RequeuedNow], "dead letter")
	if n := r.counts[pipeline.RequeuedBefore]; n > 0 {
		text += fmt.Sprintf(", %s on the way already", thousands(int64(n)))
	}
	if n := r.counts[pipeline.RequeuedSettled]; n > 0 {
		text += fmt.Sprintf(", %s settled before", thousands(int64(n)))
	}
	fmt.Fprintln(r.a.stderr, text)
	if refused > 0 {
		return partlyError(plural(refused, "dead letter") + " cannot be requeued")
	}
	return r.missing.err(r.a)
}

// missing are the sequences that were named and have not been found.
type missing []uint64

func (m *missing) found(l *pipeline.DeadLetter) {
	*m = slices.DeleteFunc(*m, func(n uint64) bool { return n == l.Sequence })
}

// err is nil when all have been found.
func (m missing) err(a *app) error {
	if len(m) == 0 {
		return nil
	}
	return fmt.Errorf("no such dead letter in generation %s: %d: dlq ls --status all lists what there is", a.config.Generation, m[0])
}

func (a *app) dlqPurgeCommand() *cobra.Command {
	var filter *letterFilter
	var all, yes, dryRun bool
	cmd := &cobra.Command{
		Use:   "purge [flags] [SEQUENCE...]",
		Short: "Remove dead letters",
		Long: `Remove dead letters for good, settled ones too unless --status says otherwise.
Events, and what the workers remember, stay as they are; so do the records, for as
long as the raw stream keeps them. What was requeued before is read all the same.

It asks before it removes anything.`,
		Example: `  tributary dlq purge --status settled
  tributary dlq purge --reason malformed --until 720h --yes
  tributary dlq purge 4711`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !all && !filter.selects(cmd, args) {
				return usageError{errors.New("name sequences or a filter, or pass --all")}
			}
			if in, ok := a.stdin.(*os.File); !yes && !dryRun && (!ok || !term.IsTerminal(int(in.Fd()))) {
				return usageError{errors.New("purge asks on a terminal: elsewhere pass --yes")}
			}
			return a.withLetters(cmd, filter, args, func(ctx context.Context, js jetstream.JetStream, q pipeline.DeadLettersQuery) error {
				missing := missing(slices.Clone(q.Sequences))
				if !yes || dryRun {
					n := 0
					for l, err := range a.eachLetter(ctx, js, q) {
						if err != nil {
							return err
						}
						n, q.Through = n+1, l.Position // what comes later was not asked about
					}
					if dryRun {
						fmt.Fprintf(a.stderr, "would remove %s\n", plural(n, "dead letter"))
						return nil
					}
					if n > 0 && !a.confirm(ctx, fmt.Sprintf("Remove %s of generation %s for good?", plural(n, "dead letter"), a.config.Generation)) {
						fmt.Fprintln(a.stderr, "nothing was removed")
						return nil
					}
				}
				counts := make(map[normalizers.Standing]int)
				err := pipeline.PurgeDeadLetters(ctx, js, a.eachLetter(ctx, js, q), func(l pipeline.DeadLetter) {
					counts[l.Standing]++
					missing.found(&l)
				})
				n := 0
				for _, c := range counts {
					n += c
				}
				text := "removed " + plural(n, "dead letter")
				if open := counts[normalizers.StandingOpen]; open < n {
					text += fmt.Sprintf(", %s of them open", thousands(int64(open)))
				}
				fmt.Fprintln(a.stderr, text)
				return cmp.Or(err, missing.err(a))
			})
		},
	}
	filter = a.letterFlags(cmd, allLetters)
	cmd.Flags().BoolVar(&all, "all", false, "all dead letters of the generation")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say how many would be removed, and change nothing")
	return cmd
}

// confirm asks the user, and reports whether the answer is yes. An interrupt is none.
func (a *app) confirm(ctx context.Context, question string) bool {
	fmt.Fprint(a.stderr, question+" [y/N] ")
	answer := make(chan string, 1)
	go func() { // ends with the process where nobody answers
		line, _ := bufio.NewReader(a.stdin).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case s := <-answer:
		return s == "y" || s == "yes"
	case <-ctx.Done():
		fmt.Fprintln(a.stderr)
		return false
	}
}
