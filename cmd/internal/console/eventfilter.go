package console

import (
	"time"

	"tributary/cmd/internal/console/index"
	"tributary/cmd/internal/figures"
	"tributary/envelopes"
	"tributary/pipeline/events"
	"tributary/pipeline/sessions"
)

// selects reports whether the filter selects an event. It needs no native JSON of the event.
func (f *filter) selects(e *events.Event) bool {
	if f.Source != "" && f.Source != string(e.Source) || !e.During(f.From, f.To) {
		return false
	}
	project := sessions.Summary{Project: e.ProjectRoot, ProjectHash: e.ProjectHash}
	if !project.InProject(f.Project) {
		return false
	}
	var repository, branch, host, user, model string
	if v := e.VCS; v != nil {
		repository, branch = v.Repository, v.Branch
	}
	if d := e.Edge; d != nil {
		host, user = d.Host, d.User
	}
	if e.Model != nil {
		model = *e.Model
	} else if e.Metadata != nil && e.Metadata.Model != nil {
		model = *e.Metadata.Model
	}
	is := func(value, wanted string) bool { return wanted == "" || value == wanted }
	return sessions.InRepository(repository, f.Repo) && is(branch, f.Branch) && is(host, f.Host) && is(user, f.User) && is(model, f.Model)
}

// storedSince returns a time before which no event of the range was stored, zero if unknown.
func (f *filter) storedSince() (stored time.Time) {
	if !f.From.IsZero() {
		stored = f.From.Add(-events.ClockError)
	}
	return stored
}

// sessions returns the filter for the index of sessions.
func (f *filter) sessions() index.Filter {
	return index.Filter{
		From: f.From, To: f.To, Source: envelopes.Source(f.Source), Project: f.Project, Model: f.Model,
		Repository: f.Repo, Branch: f.Branch, Host: f.Host, User: f.User,
	}
}

// query returns the query of figures for the filter.
func (f *filter) query(by ...sessions.Dimension) figures.Query {
	return figures.Query{Source: envelopes.Source(f.Source), Stats: sessions.StatsQuery{
		By: by, Zone: f.Zone, Since: f.From, Until: f.To,
		Project: f.Project, Repository: f.Repo, Branch: f.Branch, Host: f.Host, User: f.User, Model: f.Model,
	}}
}
