package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"tributary/cmd/internal/figures"
	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
	"tributary/pipeline/events"
	"tributary/pipeline/sessions"
	"tributary/pipeline/sessions/summaries"
	"tributary/pipeline/sessions/titles"
)

func sessionsCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sessions",
		Short: "List, show, read, watch, title and pin sessions",
		Long: `Sessions with what they did: title, project, models, tokens, tools, errors, active
time and state. A worker keeps a record of each session; events that are not in it
yet are added when the command runs. A worker also answers for the titles and pins
that users set.`,
		Example: `  tributary sessions ls
  tributary sessions show 0b6a7f58
  tributary sessions read 0b6a7f58
  tributary sessions watch`,
	}
	cmd.AddCommand(sessionsListCommand(a), sessionsShowCommand(a), sessionsReadCommand(a), sessionsWatchCommand(a), sessionsTitleCommand(a), sessionsPinCommand(a))
	return cmd
}

// sessionView is a session in the output of commands.
type sessionView struct {
	sessions.Summary
	Pinned          bool   `json:"pinned"`
	TitleVersion    uint64 `json:"title_version"`    // how often a title was set
	MetadataVersion uint64 `json:"metadata_version"` // how often the title or the pin changed
	figures.CostJSON

	unread int64 // dead letters, if the caller knows them
}

// sessionOrders are the orders of sessions by the values of --sort.
var sessionOrders = []struct {
	name  string
	value func(*sessionView) int64 // the largest comes first
}{
	{"last", func(v *sessionView) int64 { return v.LastSeen.UnixNano() }},
	{"first", func(v *sessionView) int64 { return v.FirstSeen.UnixNano() }},
	{"tokens", func(v *sessionView) int64 { return v.Usage.Total }},
	{"cost", func(v *sessionView) int64 { return int64(math.Round(costOrZero(v) * 1e9)) }},
	{"active", func(v *sessionView) int64 { return v.ActiveMS }},
	{"calls", func(v *sessionView) int64 { return v.Calls }},
	{"failures", func(v *sessionView) int64 { return v.Failures }},
	{"errors", func(v *sessionView) int64 { return v.Errors }},
	{"events", func(v *sessionView) int64 { return v.Events }},
}

// costOrZero returns the cost of a session, 0 if nothing has a price.
func costOrZero(v *sessionView) float64 {
	if v.Cost == nil {
		return 0
	}
	return *v.Cost
}

// sessionOrder returns the order with this name: pinned sessions first, then the largest values.
func sessionOrder(name string) (func(a, b sessionView) int, error) {
	var names []string
	for _, o := range sessionOrders {
		if o.name == name {
			return func(a, b sessionView) int {
				return cmp.Or(comparePins(&a, &b), cmp.Compare(o.value(&b), o.value(&a)), cmp.Compare(a.Source, b.Source), cmp.Compare(a.Session, b.Session))
			}, nil
		}
		names = append(names, o.name)
	}
	return nil, usageError{fmt.Errorf("--sort %q: write one of %s", name, strings.Join(names, ", "))}
}

// comparePins orders pinned sessions before others.
func comparePins(a, b *sessionView) int {
	switch {
	case a.Pinned == b.Pinned:
		return 0
	case a.Pinned:
		return -1
	default:
		return 1
	}
}

// sessionFilter has the flags that select sessions.
type sessionFilter struct {
	source, project, model, state string
	since, until                  string
	prefixes                      []string // of ids; none for all

	from, to time.Time
	wanted   envelopes.Source // empty for all
}

// flags adds the flags of the filter.
func (f *sessionFilter) flags(cmd *cobra.Command) {
	sourceFlag(cmd, &f.source, "only sessions of this agent")
	flags := cmd.Flags()
	flags.StringVar(&f.project, "project", "", "only sessions of this project: its path, or the end of it")
	flags.StringVar(&f.model, "model", "", "only sessions that used this model: its name, or a part of it")
	flags.StringVar(&f.state, "state", "", "only sessions in this state or phase: "+strings.Join(sessions.StateNames(), ", "))
	completeFlag(cmd, "state", sessions.StateNames())
}

// parse checks the flags.
func (f *sessionFilter) parse(now time.Time) error {
	if f.state != "" && !slices.Contains(sessions.StateNames(), f.state) {
		return usageError{fmt.Errorf("--state %q: write one of %s", f.state, strings.Join(sessions.StateNames(), ", "))}
	}
	var err error
	if f.from, err = parseTime("since", f.since, now); err != nil {
		return err
	}
	if f.to, err = parseTime("until", f.until, now); err != nil {
		return err
	}
	f.wanted, err = parseSource(f.source)
	return err
}

// matches reports whether the filter selects a session.
func (f *sessionFilter) matches(s *sessions.Summary) bool {
	begins := func(prefix string) bool { return strings.HasPrefix(s.Session, prefix) }
	uses := func(m sessions.ModelUse) bool { return strings.Contains(m.Model, f.model) }
	return (f.source == "" || string(s.Source) == f.source) &&
		(f.state == "" || s.Is(f.state)) &&
		(f.model == "" || slices.ContainsFunc(s.Models, uses)) &&
		(len(f.prefixes) == 0 || slices.ContainsFunc(f.prefixes, begins)) &&
		(f.from.IsZero() || !s.LastSeen.Before(f.from)) && (f.to.IsZero() || s.LastSeen.Before(f.to)) &&
		s.InProject(f.project)
}

func sessionsListCommand(a *app) *cobra.Command {
	var f sessionFilter
	var order, output, priceFile string
	var providers []string
	var limit int
	cmd := &cobra.Command{
		Use:   "ls [flags] [ID-PREFIX...]",
		Short: "List sessions",
		Long: `List sessions, those with the latest event first. Arguments select sessions by the
beginning of their ids.

STATE is one word for what the last events say: new (no prompt yet), working, in TOOL (a
call has no result), waiting (for a prompt), permission (waits for one; where the vendor
records that) or failed (the vendor reports an error). When nothing has happened for 15
minutes, a session that was working is unanswered, and one that was in a tool ended in
it. --state takes these words, in_tool and ended_in_tool. JSON has them with longer names
as phase, since when, and state: working, waiting, failed, or idle after 15 minutes.

The title comes from tributary sessions title, else the vendor, else the agent, else the
first sentence of the first prompt. Pinned sessions come first. On a terminal an id is
cut to a beginning that is unique in the list; other commands accept it. The tokens are
those of the session's own events; tributary stats counts copies of API calls in other
sessions once.

` + pricesHelp + `

-o json prints one object per session.`,
		Example: `  tributary sessions ls --limit 20
  tributary sessions ls --project ledger --sort tokens
  tributary sessions ls --state failed --since 24h -o json | jq -r .last_error
  tributary sessions ls --state ended_in_tool`,
		RunE: func(cmd *cobra.Command, args []string) error {
			f.prefixes = args
			pricing, err := newPricing(priceFile, providers)
			if err != nil {
				return err
			}
			return listSessions(cmd.Context(), a, &f, pricing, order, output, limit)
		},
	}
	f.flags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.since, "since", "", "only sessions with an event from then on: a duration, date or time")
	flags.StringVar(&f.until, "until", "", "only sessions whose last event is before then: a duration, date or time")
	flags.StringVar(&order, "sort", sessionOrders[0].name, "last, first, tokens, cost, active, calls, failures, errors or events; the largest or latest first")
	flags.IntVar(&limit, "limit", 50, "print at most this many sessions; 0 for all")
	pricesFlags(flags, &priceFile, &providers)
	flags.StringVarP(&output, "output", "o", "table", "table or json")
	a.serverFlag(cmd)
	return cmd
}

// listSessions prints the sessions that a filter selects.
func listSessions(ctx context.Context, a *app, f *sessionFilter, pricing *figures.Pricing, sort, output string, limit int) error {
	if err := checkOutput(output, "table", "json"); err != nil {
		return err
	}
	if limit < 0 {
		return usageError{fmt.Errorf("--limit %d: write a number from 0 on", limit)}
	}
	order, err := sessionOrder(sort)
	if err != nil {
		return err
	}
	now := time.Now()
	if err := f.parse(now); err != nil {
		return err
	}
	js, err := a.jetStreamLive(ctx)
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	set := &sessionTitles{app: a, nc: js.Conn()}
	pinned := set.pinned(ctx)
	top := figures.Top[sessionView]{Limit: limit, Order: order}
	view, unreadable, err := openSummaries(ctx, a, js)
	if err != nil {
		return a.noStream(err)
	}
	if err := noteBehind(ctx, a, view); err != nil {
		return err
	}
	err = view.Each(ctx, f.wanted, func(r *summaries.Record) error {
		s := r.At(now)
		if !f.matches(&s) {
			return nil
		}
		v := sessionView{Summary: s, Pinned: pinned[titles.Key{Source: s.Source, SessionID: s.Session}]}
		v.CostJSON = pricing.Cost(v.usage()).JSON()
		top.Add(&v)
		return nil
	})
	if err != nil {
		return err
	}
	list := top.Sorted()
	for i := range list {
		cost := list[i].CostJSON
		list[i] = set.view(ctx, list[i].Summary)
		list[i].CostJSON = cost
	}
	if output == "json" {
		for i := range list {
			if err := terminal.WriteJSON(a.stdout, &list[i]); err != nil {
				return err
			}
		}
	} else {
		width := terminal.TableWidth(a.stdout)
		if err := sessionTable(list, pricing, now, width).Write(a.stdout, width); err != nil {
			return err
		}
	}
	if len(list) == 0 {
		fmt.Fprintf(a.stderr, "no such session in generation %s\n", a.config.Generation)
	}
	if top.Left > 0 {
		fmt.Fprintf(a.stderr, "left out by --limit: %s\n", terminal.Plural(top.Left, "session"))
	}
	reportPrices(a.stderr, pricing, list)
	return unreadable.err()
}

func sessionsShowCommand(a *app) *cobra.Command {
	var source, output, priceFile string
	var providers []string
	cmd := &cobra.Command{
		Use:   "show [flags] ID",
		Short: "Show a session",
		Long: `Show what a session did, what it does (see tributary sessions ls), and where its title
comes from, with the numbers of changes of the title and of title and pin. The beginning
of its id is enough if no other session has the same. -o json prints the record.`,
		Example: `  tributary sessions show 0b6a7f58
  tributary sessions show 0b6a7f58 -o json | jq .tools`,
		Args: oneArg("session"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output, "pretty", "json"); err != nil {
				return err
			}
			s, err := parseSource(source)
			if err != nil {
				return err
			}
			pricing, err := newPricing(priceFile, providers)
			if err != nil {
				return err
			}
			return showSession(cmd.Context(), a, s, args[0], pricing, output)
		},
	}
	sourceFlag(cmd, &source, "agent of the session, if two have the same id")
	cmd.Flags().StringVarP(&output, "output", "o", "pretty", "pretty or json")
	pricesFlags(cmd.Flags(), &priceFile, &providers)
	a.serverFlag(cmd)
	return cmd
}

// showSession prints the session with this id or beginning of an id.
func showSession(ctx context.Context, a *app, source envelopes.Source, id string, pricing *figures.Pricing, output string) error {
	js, err := a.jetStreamLive(ctx)
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	session, err := findSession(ctx, a, js, source, id)
	if err != nil {
		return a.noStream(err)
	}
	view, unreadable, err := openSummaries(ctx, a, js)
	if err != nil {
		return err
	}
	fold, err := view.Session(ctx, session)
	if err != nil {
		return err
	}
	now := time.Now()
	set := &sessionTitles{app: a, nc: js.Conn()}
	v := set.view(ctx, fold.Summary(now))
	v.CostJSON = pricing.Cost(v.usage()).JSON()
	if output == "json" {
		err = terminal.WriteJSON(a.stdout, &v)
	} else {
		err = printSession(a, &v, pricing, now)
	}
	return cmp.Or(err, unreadable.err())
}

// findSession returns the session with this id, else the only session whose id begins with it.
func findSession(ctx context.Context, a *app, js jetstream.JetStream, source envelopes.Source, id string) (events.SessionID, error) {
	var none events.SessionID
	if id == "" {
		return none, usageError{errors.New("the id is empty: name one session")}
	}
	// The server finds a whole id; a beginning needs the subjects of all events.
	const shown = 5
	found, err := events.FindSessions(ctx, js, a.config.Generation, events.Query{Source: source, Session: id}, id, 0)
	if err == nil && len(found) == 0 {
		found, err = events.FindSessions(ctx, js, a.config.Generation, events.Query{Source: source}, id, shown+1)
	}
	switch {
	case err != nil:
		return none, err
	case len(found) == 0:
		return none, fmt.Errorf("no such session in generation %s: %s: tributary sessions ls lists them", a.config.Generation, terminal.OneLine(id))
	case len(found) == 1:
		return found[0], nil
	}
	slices.SortFunc(found, func(a, b events.SessionID) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Session, b.Session))
	})
	count := terminal.Plural(len(found), "session")
	if len(found) > shown {
		found, count = found[:shown], "many sessions"
	}
	names := make([]string, len(found))
	for i, s := range found {
		names[i] = terminal.OneLine(string(s.Source) + " " + s.Session)
	}
	return none, fmt.Errorf("%s names %s: %s: write more of the id, or pass --source", terminal.OneLine(id), count, strings.Join(names, ", "))
}

// openSummaries opens the records of sessions. It prints and counts events that cannot be read.
func openSummaries(ctx context.Context, a *app, js jetstream.JetStream) (*summaries.View, *unreadable, error) {
	u := &unreadable{app: a}
	v, err := summaries.Open(ctx, js, a.config.Generation, u.add)
	return v, u, err
}

// manyEvents is how far behind the records of sessions may be before a command says so.
const manyEvents = 20_000

// noteBehind prints that the command takes long if the records of sessions are far behind the events.
func noteBehind(ctx context.Context, a *app, v *summaries.View) error {
	s, err := v.Status(ctx)
	if err != nil || s.Behind < manyEvents {
		return err
	}
	note := ""
	if s.Silent {
		note = "; no worker keeps them: start one (tributary run)"
	}
	fmt.Fprintf(a.stderr, "the records of sessions are %s events behind: reading those first%s\n", terminal.Thousands(int64(s.Behind)), note)
	return nil
}
