package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/nats-io/nats.go"

	"tributary/cmd/internal/figures"
	"tributary/cmd/internal/metadata"
	"tributary/pipeline/sessions"
	"tributary/pipeline/sessions/titles"
)

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

// sessionTitles reads the titles and pins that users set. If the service does not answer, it prints that once and
// leaves them out.
type sessionTitles struct {
	*app
	nc     *nats.Conn
	silent bool // the service does not answer
}

// ask is [metadata.Ask]; it does nothing once the service has not answered.
func (l *sessionTitles) ask(ctx context.Context, endpoint string, request, answer any) {
	if l.silent {
		return
	}
	if err := metadata.Ask(ctx, l.nc, endpoint, request, answer); err != nil && ctx.Err() == nil {
		l.silent = true
		fmt.Fprintf(l.stderr, "titles and pins that were set are left out: %v\n", err)
	}
}

// pinned returns the pinned sessions.
func (l *sessionTitles) pinned(ctx context.Context) map[titles.Key]bool {
	keys := make(map[titles.Key]bool)
	request := map[string]any{"pinned": true, "limit": 1000}
	for {
		var page struct {
			Sessions []titles.Session `json:"sessions"`
			Next     uint64           `json:"next"`
		}
		l.ask(ctx, "list", request, &page)
		for _, s := range page.Sessions {
			keys[s.Key()] = true
		}
		if page.Next == 0 {
			return keys
		}
		request["after"] = page.Next
	}
}

// view returns a session with the title and the pin that users set.
func (l *sessionTitles) view(ctx context.Context, s sessions.Summary) sessionView {
	var set titles.Session
	l.ask(ctx, "get", metadata.Request{Source: s.Source, SessionID: s.Session}, &set)
	v := sessionView{Summary: s}
	v.set(&set)
	return v
}

// set sets the title and the pin of a session.
func (v *sessionView) set(s *titles.Session) {
	if s.Title != "" {
		v.Title, v.TitleSource = s.Title, sessions.TitleSource(s.TitleSource)
	}
	v.Pinned, v.TitleVersion, v.MetadataVersion = s.Pinned, s.TitleVersion, s.MetadataVersion
}

// usage returns the tokens of a session by model.
func (v *sessionView) usage() map[string]*sessions.Billed {
	models := make(map[string]*sessions.Billed, len(v.Models))
	for _, m := range v.Models {
		models[m.Model] = &sessions.Billed{Usage: m.Usage(), Large: m.Large}
	}
	return models
}
