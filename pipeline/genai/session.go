package genai

import (
	"cmp"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"tributary/envelopes"
)

// Session makes the spans of one session from its events, added in the order of their sequence. Make one with [New].
// Its memory grows with the number of spans and, with content, with the texts of the events.
type Session struct {
	content bool
	source  envelopes.Source
	id      string
	threads []*thread // in the order of their first events, including the main one
	tools   tools
	chats   []*chat
	models  map[string]*chat     // by key of the model call
	owners  map[string]*exchange // texts of spans, by id of their event
}

// New returns a session without events. With content, spans have prompts, answers, and the arguments and results of
// tools.
func New(content bool) *Session {
	return &Session{content: content, models: map[string]*chat{}, owners: map[string]*exchange{}}
}

// thread is the main conversation, or the conversation of one subagent.
type thread struct {
	internal bool
	agent    string
	turn     *turn
	turns    []*turn
	chat     *chat // last model call; nil before the first
	open     bool  // the next output of the model belongs to chat
	last     time.Time
	model    string
}

// turn is one invocation of an agent: from a prompt to the next.
type turn struct {
	*Span
	prompt   exchange
	text     string // text of the prompt
	sequence uint64
	edge     *envelopes.Edge // of its last event, like vcs
	vcs      *envelopes.VCS
}

// chat is a model call.
type chat struct {
	*Span
	model, key string
	usage      envelopes.Usage
	counted    bool // usage is stated
	output     exchange
}

// Add adds the next event of the session. It skips events copied from the history of another session, because they
// are spans of that one.
func (s *Session) Add(e *envelopes.AgentEventV1) {
	if e.Origin == envelopes.OriginCopied {
		return
	}
	s.source, s.id = e.Source, e.SessionID
	t := s.thread(e)
	at, err := e.Timestamp()
	if err != nil {
		at = t.last
	}
	at = at.UTC()
	if e.Model != nil && *e.Model != "" {
		t.model = *e.Model
	}
	switch {
	case e.EventType == envelopes.UserMessage:
		s.prompt(t, e, at)
		t.last = at
	case isOutput(e.EventType):
		s.output(t, e, at)
		t.last = at
	case e.EventType == envelopes.ToolResult:
		s.result(t, e, at)
		t.last = at
	default: // neither begins nor ends anything
		s.count(t, e, at)
		noteFailure(t, e, at)
	}
	if t.turn != nil {
		t.turn.edge, t.turn.vcs = e.Edge, e.VCS
	}
}

// isOutput reports whether a model wrote events of this type.
func isOutput(t envelopes.EventType) bool {
	return t == envelopes.AssistantMessage || t == envelopes.Reasoning || t == envelopes.ToolCall
}

// thread returns the thread of an event.
func (s *Session) thread(e *envelopes.AgentEventV1) *thread {
	agent := value(e.AgentID)
	for _, t := range s.threads {
		if t.internal == e.IsInternal && (!t.internal || t.agent == agent) {
			return t
		}
	}
	t := &thread{internal: e.IsInternal, agent: agent}
	s.threads = append(s.threads, t)
	return t
}

// prompt begins a turn, unless the event replaces a prompt.
func (s *Session) prompt(t *thread, e *envelopes.AgentEventV1, at time.Time) {
	if owner := s.owners[e.Supersedes]; owner != nil {
		s.write(owner, e)
		return
	}
	s.begin(t, e, at)
	t.turn.text = value(e.Text)
	s.write(&t.turn.prompt, e)
}

// begin begins a turn.
func (s *Session) begin(t *thread, e *envelopes.AgentEventV1, at time.Time) {
	t.turn = &turn{Span: newSpan(invokeAgent, e, at), sequence: e.Sequence}
	t.turn.Attributes = []attribute.KeyValue{operationName.String(string(invokeAgent)), conversationID.String(e.SessionID)}
	t.turn.Name = string(invokeAgent)
	name := string(e.Source)
	if agent := value(e.AgentID); agent != "" && !e.IsInternal {
		name = agent
	}
	if e.IsInternal {
		if t.agent != "" {
			t.turn.Attributes = append(t.turn.Attributes, agentID.String(t.agent))
		}
	} else {
		t.turn.Name += " " + name
		t.turn.Attributes = append(t.turn.Attributes, agentName.String(name))
	}
	t.turns = append(t.turns, t.turn)
	t.chat, t.open = nil, false
	t.last = at
}

// output adds an event written by a model to its model call.
func (s *Session) output(t *thread, e *envelopes.AgentEventV1, at time.Time) {
	if t.turn == nil { // a session that continues without its first prompt
		s.begin(t, e, at)
	}
	t.turn.Failure = ""
	key := ""
	if e.Usage != nil {
		key = e.Usage.Key
	}
	known := s.models[key]
	if owner := s.owners[e.Supersedes]; owner != nil && owner.chat != nil {
		known = owner.chat
	}
	switch {
	case known != nil:
		t.chat = known
	case t.chat == nil, !t.open && !e.ContinuesAnswer(t.chat.counted), key != "" && t.chat.key != "" && key != t.chat.key:
		start := t.last
		if start.IsZero() || start.After(at) {
			start = at
		}
		s.call(t, e, start)
	}
	c := t.chat
	t.open = true
	c.extend(at)
	t.turn.extend(at)
	c.model = cmp.Or(c.model, value(e.Model))
	if key != "" {
		c.key = key
		s.models[key] = c
	}
	c.add(e.Usage)
	s.write(&c.output, e)
	if e.EventType == envelopes.ToolCall {
		s.tools.begin(s, t, e, at)
	}
}

// result adds the result of a tool.
func (s *Session) result(t *thread, e *envelopes.AgentEventV1, at time.Time) {
	if t.turn == nil {
		s.begin(t, e, at)
	}
	s.tools.end(s, t, e, at)
	t.turn.extend(at)
	s.count(t, e, at)
	t.open = false
}

// count adds tokens of an event that no model wrote to the last model call.
func (s *Session) count(t *thread, e *envelopes.AgentEventV1, at time.Time) {
	if e.Usage == nil {
		return
	}
	if t.turn == nil {
		s.begin(t, e, at)
	}
	if t.chat == nil {
		s.call(t, e, at)
	}
	t.chat.model = cmp.Or(t.chat.model, value(e.Model))
	t.chat.add(e.Usage)
}

// call begins a model call.
func (s *Session) call(t *thread, e *envelopes.AgentEventV1, start time.Time) {
	t.chat = &chat{Span: newSpan(callModel, e, start)}
	t.chat.output.chat = t.chat
	t.turn.adopt(t.chat.Span)
	s.chats = append(s.chats, t.chat)
}

// add adds token counts, which are increments.
func (c *chat) add(u *envelopes.Usage) {
	if u == nil {
		return
	}
	c.counted = true
	c.usage.Input += u.Input
	c.usage.CacheRead += u.CacheRead
	c.usage.CacheWrite += u.CacheWrite
	c.usage.Output += u.Output
	c.usage.Reasoning += u.Reasoning
}

// noteFailure makes an error reported by the vendor the failure of the turn, until the model answers.
func noteFailure(t *thread, e *envelopes.AgentEventV1, at time.Time) {
	if e.Metadata == nil || t.turn == nil {
		return
	}
	if stated, ok := e.Metadata.Extensions["error"]; ok {
		t.turn.Failure = errorCode(stated)
		t.turn.extend(at)
	}
}

// adopt makes a span a child.
func (s *Span) adopt(child *Span) {
	child.Parent = s
	s.children = append(s.children, child)
}

// Spans returns the spans: turns in order, each followed by its children by start time. It ends the session, which
// takes no more events.
func (s *Session) Spans() []*Span {
	for _, c := range s.chats {
		s.finishChat(c)
	}
	for _, c := range s.tools.calls {
		s.finishCall(c)
	}
	var roots []*turn
	for _, t := range s.threads {
		for _, turn := range t.turns {
			s.finishTurn(t, turn)
			if above := s.above(t, turn); above != nil {
				above.adopt(turn.Span)
			} else {
				roots = append(roots, turn)
			}
		}
	}
	slices.SortStableFunc(roots, func(a, b *turn) int { return cmp.Compare(a.sequence, b.sequence) })
	var spans []*Span
	var previous *Span
	for _, root := range roots {
		root.Previous, previous = previous, root.Span
		root.TraceID = traceID(s.source, s.id, root.SpanID)
		spans = root.Span.append(spans)
	}
	return spans
}

// append appends the span and those below it.
func (s *Span) append(list []*Span) []*Span {
	list = append(list, s)
	slices.SortStableFunc(s.children, func(a, b *Span) int { return a.Start.Compare(b.Start) })
	for _, c := range s.children {
		c.TraceID = s.TraceID
		list = c.append(list)
	}
	return list
}

// above returns the parent of a run of a subagent: the tool call with its prompt as an argument, else the turn of the
// main conversation at that time. It is nil for a turn of the main conversation, and in a session that only has a
// subagent.
func (s *Session) above(t *thread, run *turn) *Span {
	if !t.internal {
		return nil
	}
	if c := s.tools.prompting(t, run.text); c != nil {
		return c.Span
	}
	var found *Span
	for _, other := range s.threads {
		if other.internal {
			continue
		}
		for _, turn := range other.turns {
			if found == nil || !turn.Start.After(run.Start) {
				found = turn.Span
			}
		}
	}
	return found
}

func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
