package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/figures"
	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
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
cut to a beginning that no other session has; other commands accept it. The tokens are
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
	wanted, width := f.wanted, terminal.TableWidth(a.stdout)
	var ids []string
	short := output == "table" && width != terminal.Uncut
	if short {
		wanted = "" // a short id is that of no other session, of any agent
	}
	view, unreadable, err := openSummaries(ctx, a, js)
	if err != nil {
		return a.noStream(err)
	}
	if err := noteBehind(ctx, a, view); err != nil {
		return err
	}
	err = view.Each(ctx, wanted, func(r *summaries.Record) error {
		if short {
			ids = append(ids, terminal.OneLine(r.Session))
		}
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
		if err := sessionTable(list, ids, pricing, now, width).Write(a.stdout, width); err != nil {
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
