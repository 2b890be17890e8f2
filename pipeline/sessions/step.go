package sessions

import (
	"maps"
	"slices"
	"strings"
	"time"

	"tributary/envelopes"
)

// Maximum lengths of texts in bytes, which bound the state of a session.
const (
	promptBytes = 2000
	titleBytes  = 400
	errorBytes  = 400
	nameBytes   = 200  // of a model, a tool, a hash, a branch, a host, a user, a label
	pathBytes   = 4000 // of a project, a repository, a pull request
)

// maxLabels is how many labels of an event count, the first in the order of their names.
const maxLabels = 32

// Step is what the sums of a session need of one event. It is small, so that the steps of any stream fit in temporary
// files.
type Step struct {
	Source   envelopes.Source     `json:"s,omitzero"`
	Session  string               `json:"i,omitzero"`
	Position uint64               `json:"w,omitzero"` // sequence of the event in the events stream; 0 for an event from no stream
	Sequence uint64               `json:"q,omitzero"`
	Time     int64                `json:"t,omitzero"` // nanoseconds since 1970
	Type     envelopes.EventType  `json:"y,omitzero"`
	Model    string               `json:"m,omitzero"`
	Root     string               `json:"r,omitzero"` // project_root
	Hash     string               `json:"h,omitzero"` // project_hash
	Call     string               `json:"c,omitzero"` // tool_call_id
	Tool     string               `json:"n,omitzero"`
	Status   envelopes.ToolStatus `json:"o,omitzero"`
	Latency  *int64               `json:"l,omitzero"`
	Usage    *envelopes.Usage     `json:"u,omitzero"`
	Text     string               `json:"x,omitzero"` // text of a prompt, a summary or an error
	Role     envelopes.Role       `json:"e,omitzero"`
	Origin   envelopes.Origin     `json:"g,omitzero"`
	Internal bool                 `json:"b,omitzero"`
	Failed   bool                 `json:"f,omitzero"` // an error reported by the vendor
	Resume   string               `json:"v,omitzero"` // id to resume the session with

	Repository  string            `json:"rp,omitzero"`
	Branch      string            `json:"br,omitzero"`
	PullRequest string            `json:"pr,omitzero"`
	Host        string            `json:"ho,omitzero"`
	User        string            `json:"us,omitzero"`
	Labels      map[string]string `json:"la,omitempty"`

	Via        envelopes.Via `json:"va,omitzero"`
	Permission permission    `json:"pm,omitzero"`
}

// NewStep returns the step of an event at a position of the events stream; 0 for an event from elsewhere. Without a
// valid time, the step has the zero time.
func NewStep(e *envelopes.AgentEventV1, position uint64) Step {
	s := Step{
		Source: e.Source, Session: e.SessionID, Position: position, Sequence: e.Sequence, Type: e.EventType,
		Model: cut(value(e.Model), nameBytes), Root: cut(value(e.ProjectRoot), pathBytes), Hash: cut(e.ProjectHash, nameBytes),
		Call: value(e.ToolCallID), Tool: cut(value(e.ToolName), nameBytes), Status: value(e.ToolStatus), Latency: e.ToolLatencyMS,
		Usage: e.Usage, Role: value(e.Role), Origin: e.Origin, Internal: e.IsInternal, Via: e.Via,
	}
	if v := e.VCS; v != nil {
		s.Repository, s.Branch, s.PullRequest = cut(v.Repository, pathBytes), cut(v.Branch, nameBytes), cut(v.PullRequest, pathBytes)
	}
	if d := e.Edge; d != nil {
		s.Host, s.User, s.Labels = cut(d.Host, nameBytes), cut(d.User, nameBytes), cutLabels(d.Labels)
	}
	if t, err := e.Timestamp(); err == nil {
		s.Time = t.UnixNano()
	}
	if m := e.Metadata; m != nil {
		s.notePermission(m.Extensions["permission"])
		if s.Model == "" {
			s.Model = cut(value(m.Model), nameBytes)
		}
		_, s.Failed = m.Extensions["error"]
		s.Resume, _ = e.ResumeID()
		s.Resume = cut(s.Resume, pathBytes)
	}
	switch {
	case s.Failed:
		s.Text = cut(value(e.Text), errorBytes)
	case e.EventType == envelopes.UserMessage:
		s.Text = cut(value(e.Text), promptBytes)
	case e.EventType == envelopes.SessionSummary:
		s.Text = cut(value(e.Text), titleBytes)
	}
	return s
}

// Detached returns a copy of the step that shares no memory with its event.
func (s Step) Detached() *Step {
	if s.Latency != nil {
		s.Latency = new(*s.Latency)
	}
	texts := []*string{
		(*string)(&s.Source), &s.Session, (*string)(&s.Type), &s.Model, &s.Root, &s.Hash, &s.Call, &s.Tool, (*string)(&s.Status), &s.Text,
		(*string)(&s.Role), (*string)(&s.Origin), &s.Resume, &s.Repository, &s.Branch, &s.PullRequest, &s.Host, &s.User, (*string)(&s.Via),
	}
	s.Labels = cloneLabels(s.Labels)
	if s.Usage != nil {
		s.Usage = new(*s.Usage)
		texts = append(texts, &s.Usage.Key)
	}
	length := 0
	for _, t := range texts {
		length += len(*t)
	}
	var all strings.Builder // one allocation for all texts
	all.Grow(length)
	for _, t := range texts {
		begin := all.Len()
		all.WriteString(*t)
		*t = all.String()[begin:]
	}
	return &s
}

// when returns the time of the step.
func (s *Step) when() time.Time { return time.Unix(0, s.Time).UTC() }

// isPrompt reports whether the step is a human prompt in the main conversation.
func (s *Step) isPrompt() bool {
	return s.Type == envelopes.UserMessage && s.Origin == "" && !s.Internal
}

// value returns what p points to, or the zero value.
func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// cloneLabels returns a deep copy of labels.
func cloneLabels(labels map[string]string) map[string]string {
	if labels == nil {
		return nil
	}
	own := make(map[string]string, len(labels))
	for name, value := range labels {
		own[strings.Clone(name)] = strings.Clone(value)
	}
	return own
}

// cutLabels returns labels limited in number and length.
func cutLabels(labels map[string]string) map[string]string {
	bounded := len(labels) <= maxLabels
	for name, value := range labels {
		bounded = bounded && len(name) <= nameBytes && len(value) <= nameBytes
	}
	if bounded {
		return labels
	}
	names := slices.Sorted(maps.Keys(labels))
	few := make(map[string]string, maxLabels)
	for _, name := range names[:min(len(names), maxLabels)] {
		few[cut(name, nameBytes)] = cut(labels[name], nameBytes)
	}
	return few
}

// cut returns at most n bytes of a text, without splitting a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xc0 == 0x80 {
		n--
	}
	return strings.Clone(s[:n]) // without retaining the rest
}
