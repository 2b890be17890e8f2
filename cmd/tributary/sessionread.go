package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"tributary/cmd/internal/conversation"
	"tributary/cmd/internal/figures"
	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
	"tributary/pipeline/events"
	"tributary/pipeline/sessions"
	"tributary/pipeline/sessions/transcript"
)

// readFlags are the flags of sessions read.
type readFlags struct {
	source, output, turns, grep string
	errors, all, full           bool
	priceFile                   string
	providers                   []string

	selection
	pricing *figures.Pricing
}

// selection selects the items of a conversation to print.
type selection struct {
	wanted      envelopes.Source
	first, last int // turns; last is -1 for no limit
	match       *regexp.Regexp
}

func sessionsReadCommand(a *app) *cobra.Command {
	var f readFlags
	cmd := &cobra.Command{
		Use:   "read [flags] ID",
		Short: "Read the conversation of a session",
		Long: `Print the conversation of a session: its turns with their time, calls, tokens and
cost, prompts, answers, thoughts, calls of tools with their arguments and results, diffs
and exit codes, and the work of subagents below the calls that began it. The beginning of
the id is enough if no other session has the same. On a terminal the conversation is
shown with PAGER, else with less.

Results and thoughts are folded to a few lines; --full prints all of them. Logs,
metadata, snapshots of files and history of another session are left out unless --all is
given. --turn prints only the named turns; --grep and --errors print of each turn only
the items that match, or that failed.

` + pricesHelp + `

-o markdown prints a document, -o json one object per turn and item, with whole texts.`,
		Example: `  tributary sessions read 0b6a7f58
  tributary sessions read 0b6a7f58 --turn 3-5 --full
  tributary sessions read 0b6a7f58 --errors
  tributary sessions read 0b6a7f58 --grep '(?i)timeout'
  tributary sessions read 0b6a7f58 -o markdown >conversation.txt
  tributary sessions read 0b6a7f58 -o json | jq -r 'select(.call.kind == "command_run").call.command'`,
		Args: oneArg("session"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.parse(); err != nil {
				return err
			}
			return readSession(cmd.Context(), a, &f, args[0])
		},
	}
	sourceFlag(cmd, &f.source, "agent of the session, if two have the same id")
	flags := cmd.Flags()
	flags.StringVar(&f.turns, "turn", "", "only this turn, or these: 3, 3-5, 3-")
	flags.StringVar(&f.grep, "grep", "", "only items with a text that matches this regular `expression`; (?i) at its start ignores case")
	flags.BoolVar(&f.errors, "errors", false, "only calls that failed, and errors that the vendor reports")
	flags.BoolVar(&f.full, "full", false, "print all lines of results, arguments and thoughts")
	flags.BoolVar(&f.all, "all", false, "logs, metadata, snapshots of files and history of another session, too")
	pricesFlags(flags, &f.priceFile, &f.providers)
	flags.StringVarP(&f.output, "output", "o", "pretty", "pretty, markdown or json")
	a.serverFlag(cmd)
	return cmd
}

// parse checks the flags.
func (f *readFlags) parse() error {
	if err := checkOutput(f.output, "pretty", "markdown", "json"); err != nil {
		return err
	}
	var errs [4]error
	f.pricing, errs[3] = newPricing(f.priceFile, f.providers)
	f.wanted, errs[0] = parseSource(f.source)
	if f.grep != "" {
		if f.match, errs[1] = regexp.Compile(f.grep); errs[1] != nil {
			errs[1] = usageError{fmt.Errorf("--grep %q: write a regular expression: %w", f.grep, errs[1])}
		}
	}
	f.first, f.last, errs[2] = parseTurns(f.turns)
	return errors.Join(errs[:]...)
}

// parseTurns parses the value of --turn; last is -1 for no limit.
func parseTurns(turns string) (first, last int, err error) {
	if turns == "" {
		return 0, -1, nil
	}
	from, to, ranged := strings.Cut(turns, "-")
	first, err = strconv.Atoi(from)
	last = first
	if ranged && to == "" {
		last = -1
	} else if ranged && err == nil {
		last, err = strconv.Atoi(to)
	}
	if err != nil || first < 0 || last >= 0 && last < first {
		return 0, 0, usageError{fmt.Errorf("--turn %q: write a number such as 3, or a range such as 3-5 or 3-", turns)}
	}
	return first, last, nil
}

// has reports whether the flags select a turn.
func (f *readFlags) has(turn int) bool { return turn >= f.first && (f.last < 0 || turn <= f.last) }

// selects reports whether the flags select an item.
func (f *readFlags) selects(i *transcript.Item) bool {
	return (f.all || !i.IsNoise()) && (!f.errors || i.Failed()) && (f.match == nil || i.Matches(f.match))
}

// readSession prints the conversation of the session with this id or beginning of an id.
func readSession(ctx context.Context, a *app, f *readFlags, id string) error {
	js, err := a.jetStreamLive(ctx)
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	session, err := findSession(ctx, a, js, f.wanted, id)
	if err != nil {
		return a.noStream(err)
	}
	view, err := titled(ctx, a, js, session)
	if err != nil {
		return err
	}
	unreadable := &unreadable{app: a}
	t, err := transcript.Read(sessionEvents(ctx, a, js, session, unreadable), "")
	if err != nil {
		return err
	}
	printed, err := printConversation(ctx, a, f, t, view)
	if printed == 0 && err == nil {
		fmt.Fprintf(a.stderr, "the flags select nothing of the session, which has %s\n", terminal.Plural(len(t.Turns()), "turn"))
	}
	return cmp.Or(errors.Join(err, t.Close()), unreadable.err())
}

// titled returns the record of a session with its title and pin.
func titled(ctx context.Context, a *app, js jetstream.JetStream, session events.SessionID) (*sessionView, error) {
	view, _, err := openSummaries(ctx, a, js)
	if err != nil {
		return nil, err
	}
	fold, err := view.Session(ctx, session)
	if err != nil {
		return nil, err
	}
	set := &sessionTitles{app: a, nc: js.Conn()}
	return new(set.view(ctx, fold.Summary(time.Now()))), nil
}

// sessionEvents iterates over the events of a session. It prints and counts those that cannot be read.
func sessionEvents(ctx context.Context, a *app, js jetstream.JetStream, id events.SessionID, u *unreadable) iter.Seq2[*envelopes.AgentEventV1, error] {
	return func(yield func(*envelopes.AgentEventV1, error) bool) {
		q := events.Query{Source: id.Source, Session: id.Session}
		for e, err := range events.Read(ctx, js, a.config.Generation, q) {
			if err != nil && e.Position > 0 {
				u.add(err)
				continue
			}
			if !yield(&e.AgentEventV1, err) {
				return
			}
		}
		if err := context.Cause(ctx); err != nil { // interrupted
			yield(nil, err)
		}
	}
}

// printConversation prints a conversation, on a terminal with a pager.
func printConversation(ctx context.Context, a *app, f *readFlags, t *transcript.Transcript, v *sessionView) (printed int, err error) {
	if f.output == "json" {
		printed, err = f.print(t, jsonConversation{a.stdout, f.pricing})
		reportPrices(a.stderr, f.pricing, []sessionView{*v})
		return printed, err
	}
	cost := func(models map[string]*sessions.Billed) string {
		if c := f.pricing.Cost(models); c.Priced {
			return c.Text()
		}
		return ""
	}
	out, wait := pager(ctx, a)
	options := conversation.Options{Full: f.full, Match: f.match, Cost: cost}
	var w conversation.Printer = conversation.NewMarkdown(out, options)
	if f.output == "pretty" {
		p := a.printer()
		w = conversation.NewPretty(out, p.Width(), terminal.IsTerminal(a.stdout) && a.config.NoColor == "", options)
	}
	err = w.Heading(&conversation.Session{
		Source: v.Source, ID: v.Session, Title: v.Title, Project: v.ProjectName(), First: v.FirstSeen, Last: v.LastSeen, Tokens: v.Usage.Total, Cost: cost(v.usage()),
	})
	if err == nil {
		printed, err = f.print(t, w)
	}
	ended := wait()
	reportPrices(a.stderr, f.pricing, []sessionView{*v})
	if ended != nil || errors.Is(err, syscall.EPIPE) && out != a.stdout { // the reader has left the pager
		return max(printed, 1), ended
	}
	return printed, err
}

// print prints what the flags select, and returns how many items and turns it printed.
func (f *readFlags) print(t *transcript.Transcript, w conversation.Printer) (printed int, err error) {
	for _, turn := range t.Turns() {
		if !f.has(turn.Number) || !f.all && (turn.Copied || turn.Number == 0 && turn.Items == 0) {
			continue
		}
		n, err := f.printTurn(t, &turn, w)
		printed += n
		if err != nil {
			return printed, err
		}
	}
	return printed, nil
}

// printTurn prints a turn. It prints the heading of a turn or a subagent before the first selected item below it.
func (f *readFlags) printTurn(t *transcript.Transcript, turn *transcript.Turn, w conversation.Printer) (printed int, err error) {
	headed := false
	var headings []*transcript.Item // of subagents, not printed yet
	for i, err := range t.Items(turn.Number) {
		if err != nil {
			return printed, err
		}
		below := func(h *transcript.Item) bool {
			return h.Depth < i.Depth || h.Depth == i.Depth && i.Type != transcript.Subagent
		}
		for len(headings) > 0 && !below(headings[len(headings)-1]) {
			headings = headings[:len(headings)-1]
		}
		if i.Type == transcript.Subagent {
			headings = append(headings, i)
		}
		if !f.selects(i) {
			continue
		}
		if !headed {
			headed = true
			printed++
			if err := w.Turn(turn); err != nil {
				return printed, err
			}
		}
		for _, h := range headings {
			if err := w.Item(h); err != nil {
				return printed, err
			}
		}
		if i.Type != transcript.Subagent {
			if err := w.Item(i); err != nil {
				return printed, err
			}
		}
		headings = nil
		printed++
	}
	return printed, nil
}

// jsonConversation prints a conversation as JSON.
type jsonConversation struct {
	w       io.Writer
	pricing *figures.Pricing
}

// Heading prints nothing: every line is a turn or an item.
func (j jsonConversation) Heading(*conversation.Session) error { return nil }

// Turn prints a turn.
func (j jsonConversation) Turn(t *transcript.Turn) error {
	return terminal.WriteJSON(j.w, &struct {
		Type string `json:"type"`
		*transcript.Turn
		figures.CostJSON
	}{"turn", t, j.pricing.Cost(t.Models).JSON()})
}

// Item prints an item.
func (j jsonConversation) Item(i *transcript.Item) error {
	if i.Section == nil {
		return terminal.WriteJSON(j.w, i)
	}
	return terminal.WriteJSON(j.w, &struct {
		*transcript.Item
		figures.CostJSON
	}{i, j.pricing.Cost(i.Models).JSON()})
}
