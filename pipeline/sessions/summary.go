package sessions

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"time"

	"tributary/envelopes"
)

// maxSummaryTitle is the maximum length in bytes of an agent's summary that counts as a title.
const maxSummaryTitle = 120

// TitleSource is where the title of a session comes from; empty without a title. Set titles have the sources of
// package titles.
type TitleSource string

// Sources of titles in events; the first existing one counts.
const (
	TitleOfVendor TitleSource = "vendor" // stated by the vendor
	TitleOfAgent  TitleSource = "agent"  // a summary of one short line
	TitleOfPrompt TitleSource = "prompt" // first sentence of the first prompt
)

// IsTitle reports whether a summary written by an agent is a title: one short line.
func IsTitle(summary string) bool {
	summary = strings.TrimSpace(summary)
	return len(summary) <= maxSummaryTitle && !strings.Contains(summary, "\n")
}

// Summary is the record of a session, summed up from its events. A call that was copied to another session counts in
// both.
type Summary struct {
	Source      envelopes.Source  `json:"source"`
	Session     string            `json:"session_id"`
	Title       string            `json:"title"` // empty for none
	TitleSource TitleSource       `json:"title_source"`
	Project     *string           `json:"project"` // project_root of the session; nil if no event states it
	ProjectHash string            `json:"project_hash"`
	Repository  string            `json:"repository"` // last one stated in an event; empty for none, like the following fields
	Branch      string            `json:"branch"`
	PullRequest string            `json:"pull_request"`
	Host        string            `json:"host"` // host that sent the records
	User        string            `json:"user"`
	Labels      map[string]string `json:"labels"`
	Activity
	FirstSeen  time.Time                     `json:"first_seen"` // earliest time of an event; zero if none is valid
	LastSeen   time.Time                     `json:"last_seen"`
	ActiveMS   int64                         `json:"active_ms"` // see [ActiveGap]
	Events     int64                         `json:"events"`
	Sequence   uint64                        `json:"sequence"` // of the last event
	Types      map[envelopes.EventType]int64 `json:"events_by_type"`
	Prompts    int64                         `json:"prompts"`
	Models     []ModelUse                    `json:"models"` // in order of first use
	Usage      Tokens                        `json:"usage"`
	Tools      []ToolUse                     `json:"tools"` // most used first
	Calls      int64                         `json:"calls"`
	Failures   int64                         `json:"failures"`
	Errors     int64                         `json:"errors"`
	LastError  string                        `json:"last_error"`  // shortened
	LastPrompt string                        `json:"last_prompt"` // shortened
	ResumeID   string                        `json:"resume_id"`

	conversing conversing
	vendor     string // title stated by the vendor
	written    string // title written by the agent: a summary of one short line
	first      string // title made from the first prompt
	modelOrder []string
}

// Tokens are the parts of token counts, which never overlap, and their sum.
type Tokens struct {
	Input      int64 `json:"input"` // without tokens read from or written to the cache
	CacheRead  int64 `json:"cache_read"`
	CacheWrite int64 `json:"cache_write"`
	Output     int64 `json:"output"` // without reasoning
	Reasoning  int64 `json:"reasoning"`
	Total      int64 `json:"total"`

	CacheWrite1h      int64   `json:"cache_write_1h,omitzero"` // included in CacheWrite
	WebSearchRequests int64   `json:"web_search_requests,omitzero"`
	VendorCost        float64 `json:"vendor_cost_usd,omitzero"` // stated by vendors

	// Names of Input and Output in JSON until the next release.

	OldInput  int64 `json:"tokens_input"`
	OldOutput int64 `json:"tokens_output"`
}

// TokensOf returns the parts of u and their sum.
func TokensOf(u *envelopes.Usage) Tokens {
	return Tokens{
		Input: u.Input, Output: u.Output, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite, Reasoning: u.Reasoning, Total: u.Total(),
		CacheWrite1h: u.CacheWrite1h, WebSearchRequests: u.WebSearchRequests, VendorCost: u.CostUSD,
		OldInput: u.Input, OldOutput: u.Output,
	}
}

// Add adds other tokens.
func (t *Tokens) Add(o Tokens) {
	t.Input += o.Input
	t.Output += o.Output
	t.CacheRead += o.CacheRead
	t.CacheWrite += o.CacheWrite
	t.Reasoning += o.Reasoning
	t.Total += o.Total
	t.CacheWrite1h += o.CacheWrite1h
	t.WebSearchRequests += o.WebSearchRequests
	t.VendorCost = envelopes.AddUSD(t.VendorCost, o.VendorCost)
	t.OldInput += o.OldInput
	t.OldOutput += o.OldOutput
}

// Usage returns the tokens as a usage.
func (t *Tokens) Usage() envelopes.Usage {
	return envelopes.Usage{
		Input: t.Input, CacheRead: t.CacheRead, CacheWrite: t.CacheWrite, Output: t.Output, Reasoning: t.Reasoning,
		CacheWrite1h: t.CacheWrite1h, WebSearchRequests: t.WebSearchRequests, CostUSD: t.VendorCost,
	}
}

// ModelUse is the use of a model in a session.
type ModelUse struct {
	Model string `json:"model"`
	Tokens
	Large Large `json:"large_prompts,omitzero"` // of these, those above each of [PromptSizes]
}

// modelUse returns what sums have of a model.
func modelUse(model string, s *Sums) ModelUse {
	return ModelUse{Model: model, Tokens: TokensOf(&s.Usage), Large: s.Large}
}

// ToolUse is the use of a tool in a session.
type ToolUse struct {
	Tool     string `json:"tool"`
	Calls    int64  `json:"calls"`
	Failures int64  `json:"failures"`
	P50      *int64 `json:"latency_p50_ms"` // nil if the vendor states no latency
	P95      *int64 `json:"latency_p95_ms"`

	MeasuredP50 *int64 `json:"measured_p50_ms"` // of calls without a stated latency, see [Fold]; nil if there are none
	MeasuredP95 *int64 `json:"measured_p95_ms"`
}

// note takes over the facts of a step about the session.
func (r *Summary) note(s *Step, f *Fold) {
	keep(&r.Source, s.Source)
	keep(&r.Session, s.Session)
	r.Sequence = s.Sequence
	if s.Root != "" && (r.Project == nil || *r.Project != s.Root) {
		r.Project = new(strings.Clone(s.Root))
	}
	keep(&r.ProjectHash, s.Hash)
	r.noteOrigin(s)
	if s.Time != 0 {
		if t := s.when(); r.FirstSeen.IsZero() || t.Before(r.FirstSeen) {
			r.FirstSeen = t
		}
		r.LastSeen = time.Unix(0, f.last).UTC()
	}
	if r.Types == nil {
		r.Types = map[envelopes.EventType]int64{}
	}
	r.Types[s.Type]++
	r.Events++
	if s.Model != "" && len(r.modelOrder) < maxCells && !slices.Contains(r.modelOrder, s.Model) {
		r.modelOrder = append(r.modelOrder, s.Model)
		f.size += len(s.Model)
	}
	if s.Resume != "" {
		keep(&r.ResumeID, s.Resume)
	}
	r.noteTexts(s)
}

// noteOrigin takes over where the session works and who sends it.
func (r *Summary) noteOrigin(s *Step) {
	for _, known := range []struct {
		of   *string
		text string
	}{
		{&r.Repository, s.Repository}, {&r.Branch, s.Branch}, {&r.PullRequest, s.PullRequest}, {&r.Host, s.Host}, {&r.User, s.User},
	} {
		if known.text != "" {
			keep(known.of, known.text)
		}
	}
	if len(s.Labels) > 0 && !maps.Equal(r.Labels, s.Labels) {
		r.Labels = cloneLabels(s.Labels)
	}
}

// keep sets *of to a copy of s; see [Fold.name] for the reason.
func keep[T ~string](of *T, s T) {
	if *of != s {
		*of = T(strings.Clone(string(s)))
	}
}

// noteTexts takes over titles, prompts and errors.
func (r *Summary) noteTexts(s *Step) {
	switch {
	case s.Failed:
		keep(&r.LastError, s.Text)
	case s.isPrompt():
		keep(&r.LastPrompt, s.Text)
		if r.first == "" {
			r.first = strings.Clone(promptTitle(s.Text))
		}
	case s.Type == envelopes.SessionSummary && !s.Internal && s.Text != "":
		title := strings.TrimSpace(s.Text)
		if line, _, _ := strings.Cut(title, "\n"); s.Role == envelopes.RoleSystem && !IsUntitled(line) {
			keep(&r.vendor, line)
		} else if s.Role != envelopes.RoleSystem && IsTitle(title) {
			keep(&r.written, title)
		}
	}
}

// title returns the title stated in the events.
func (r *Summary) title() (string, TitleSource) {
	switch {
	case r.vendor != "":
		return r.vendor, TitleOfVendor
	case r.written != "":
		return r.written, TitleOfAgent
	case r.first != "":
		return r.first, TitleOfPrompt
	default:
		return "", ""
	}
}

// ProjectName returns the root of the project, or its hash by the vendor; empty if both are unknown.
func (r *Summary) ProjectName() string {
	if r.Project != nil {
		return *r.Project
	}
	if unknown := sha256.Sum256([]byte("session:" + r.Session)); r.ProjectHash == hex.EncodeToString(unknown[:]) {
		return ""
	}
	return r.ProjectHash
}

// InProject reports whether the session belongs to a project, given by its root, the end of the root's path, or its
// hash. An empty name matches every session.
func (r *Summary) InProject(name string) bool {
	if name == "" || name == r.ProjectHash {
		return true
	}
	return r.Project != nil && (*r.Project == name || endsIn(*r.Project, name))
}

// InRepository reports whether name is a repository's name or the end of it. An empty name matches every repository.
func InRepository(repository, name string) bool {
	return name == "" || repository == name || endsIn(repository, name)
}

// endsIn reports whether names are the last elements of a path.
func endsIn(path, names string) bool {
	return strings.HasSuffix(path, "/"+strings.TrimPrefix(names, "/"))
}

// At returns the record at a later time: a working or waiting session becomes idle.
func (r Summary) At(now time.Time) Summary {
	r.Activity = r.Activity.At(now, r.LastSeen)
	return r
}

// Summary returns the record of the session at a time, which decides whether it is idle. The record is complete only
// if the fold divides by model and tool and has no limits of time.
func (f *Fold) Summary(now time.Time) Summary {
	r := f.summary
	r.Activity = r.conversing.activity()
	r.Title, r.TitleSource = r.title()
	r.Types = maps.Clone(r.Types)
	if r.Labels == nil {
		r.Labels = map[string]string{}
	}
	models, tools := map[string]*Sums{}, map[string]*Sums{}
	var all Sums
	for cell, sums := range f.countedCells() {
		all.Merge(sums)
		merge(models, cell.Model, sums)
		merge(tools, cell.Tool, sums)
	}
	r.Usage = TokensOf(&all.Usage)
	r.Calls, r.Failures, r.Errors, r.Prompts = all.Calls, all.Failures, all.Errors, all.Prompts
	r.ActiveMS = all.Active().Milliseconds()
	r.Models = []ModelUse{}
	if models[""] != nil && models[""].Usage.Total() > 0 {
		r.Models = append(r.Models, modelUse("", models[""]))
	}
	for _, m := range r.modelOrder {
		if sums := models[m]; sums != nil {
			r.Models = append(r.Models, modelUse(m, sums))
		}
	}
	if sums := models[OtherName]; sums != nil {
		r.Models = append(r.Models, modelUse(OtherName, sums))
	}
	r.Tools = toolUses(tools)
	return r.At(now)
}

// toolUses returns the called tools, most used first.
func toolUses(tools map[string]*Sums) []ToolUse {
	out := []ToolUse{}
	for name, sums := range tools {
		if sums.Calls == 0 {
			continue
		}
		u := ToolUse{Tool: name, Calls: sums.Calls, Failures: sums.Failures}
		u.P50, u.P95 = sums.Latencies.Percentiles()
		u.MeasuredP50, u.MeasuredP95 = sums.Measured.Percentiles()
		out = append(out, u)
	}
	slices.SortFunc(out, func(a, b ToolUse) int {
		return cmp.Or(cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.Tool, b.Tool))
	})
	return out
}

// merge adds sums to the entry of a name.
func merge(all map[string]*Sums, name string, sums *Sums) {
	if all[name] == nil {
		all[name] = &Sums{}
	}
	all[name].Merge(sums)
}
