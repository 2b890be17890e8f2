package sessions

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
)

// State is roughly what a session does; [Phase] says more.
type State string

// The states.
const (
	Working State = "working" // the agent works
	Waiting State = "waiting" // the agent waits for the next prompt, or for a permission
	Failed  State = "failed"  // the last thing that happened is an error that the vendor reports
	Idle    State = "idle"    // nothing has happened for idleAfter
)

// States lists every state.
var States = []State{Working, Waiting, Failed, Idle}

// Phase is what the last events of the main conversation of a session say about what it does.
type Phase string

// The phases. Those that are ended were working or in a tool when nothing happened any more for idleAfter.
const (
	PhaseNone        Phase = "none" // no prompt yet
	PhaseWorking     Phase = "working"
	PhaseInTool      Phase = "in_tool"                // a call has no result yet
	PhasePrompt      Phase = "waiting_for_prompt"     // the agent has answered
	PhasePermission  Phase = "waiting_for_permission" // the vendor states that the agent has asked for one
	PhaseFailed      Phase = "failed"
	PhaseEnded       Phase = "ended_without_answer"
	PhaseEndedInTool Phase = "ended_in_tool"
)

// Phases lists every phase.
var Phases = []Phase{PhaseNone, PhaseWorking, PhaseInTool, PhasePrompt, PhasePermission, PhaseFailed, PhaseEnded, PhaseEndedInTool}

// words are the words of the phases.
var words = map[Phase]string{
	PhaseNone:        "new",
	PhaseWorking:     "working",
	PhaseInTool:      "in_tool",
	PhasePrompt:      "waiting",
	PhasePermission:  "permission",
	PhaseFailed:      "failed",
	PhaseEnded:       "unanswered",
	PhaseEndedInTool: "ended_in_tool",
}

// Word returns the one word with which lists name a phase. It does not depend on the time since the last event, as the
// name of a [State] does: a session waits for a prompt until it gets one.
func (p Phase) Word() string { return words[p] }

// meanings say what sessions in the phases do.
var meanings = map[Phase]string{
	PhaseNone:        "has no prompt yet",
	PhaseWorking:     "works",
	PhaseInTool:      "a call has no result",
	PhasePrompt:      "waits for a prompt",
	PhasePermission:  "waits for a permission",
	PhaseFailed:      "the vendor reports an error",
	PhaseEnded:       "nothing has happened for 15 minutes, it was working",
	PhaseEndedInTool: "nothing has happened for 15 minutes, a call has no result",
}

// Meaning returns what a session in the phase does; a time since when may follow.
func (p Phase) Meaning() string { return meanings[p] }

// idleAfter is the time after the last event after which a session that waits or works is idle.
const idleAfter = 15 * time.Minute

// Activity is what a session does.
type Activity struct {
	State State     `json:"state"`
	Phase Phase     `json:"phase"`
	Since time.Time `json:"phase_since,omitzero"` // when the phase began, of an ended one when that before it did; zero if unknown
	Tool  string    `json:"phase_tool,omitzero"`  // that was called last and has no result, or needs the permission
}

// Is reports whether a name is the one of the state or of the phase, or the word of the phase.
func (a *Activity) Is(name string) bool {
	return name == string(a.State) || name == string(a.Phase) || name == a.Phase.Word()
}

// Text returns the word of the phase, with the tool where the session is in one: what lists show.
func (a *Activity) Text() string {
	tool := cmp.Or(a.Tool, "a tool")
	switch a.Phase {
	case PhaseInTool:
		return "in " + tool
	case PhaseEndedInTool:
		return "ended in " + tool
	default:
		return a.Phase.Word()
	}
}

// StateNames lists every name that [Activity.Is] knows.
func StateNames() []string {
	var names []string
	add := func(name string) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, p := range Phases {
		add(p.Word())
	}
	for _, s := range States {
		add(string(s))
	}
	for _, p := range Phases {
		add(string(p))
	}
	return names
}

// At returns what a session does at a time, if its last event has another.
func (a Activity) At(now, last time.Time) Activity {
	if a.State == Failed || now.Sub(last) <= idleAfter {
		return a
	}
	a.State = Idle
	switch a.Phase {
	case PhaseWorking:
		a.Phase = PhaseEnded
	case PhaseInTool:
		a.Phase = PhaseEndedInTool
	default:
	}
	return a
}

// conversing is what the main conversation of a session does after its last event. If all of a session is of a subagent, that is
// its main conversation.
type conversing struct {
	Phase Phase      `json:"p,omitzero"` // never an ended one
	Since int64      `json:"s,omitzero"` // nanoseconds since 1970
	Tool  string     `json:"t,omitzero"` // that needs the permission
	Open  []openCall `json:"o,omitempty"`
	Main  bool       `json:"m,omitzero"` // not all is of subagents
}

// openCall is a call without a result.
type openCall struct {
	ID    uint64 `json:"i,omitzero"` // hash of its id, 0 for none
	Tool  string `json:"t,omitzero"`
	Since int64  `json:"s,omitzero"` // nanoseconds since 1970
}

// maxOpen bounds the calls of a session that are remembered because they have no result yet.
const maxOpen = 64

// note takes over a step. calls has the step already.
func (c *conversing) note(s *Step, calls *calls) {
	inside := s.Internal && c.Main
	if s.Origin == envelopes.OriginCopied || c.isLate(s, inside) {
		return
	}
	switch s.Type {
	case envelopes.UserMessage:
		if !inside {
			c.Open = nil // a call that has no result before the next prompt gets none
		}
		c.enter(PhaseWorking, s)
	case envelopes.ToolCall, envelopes.ToolResult:
		if !inside {
			c.noteCall(s, calls)
		}
		c.enter(PhaseWorking, s)
	case envelopes.Reasoning:
		c.enter(PhaseWorking, s)
	case envelopes.AssistantMessage:
		if !inside {
			c.Open = nil
			c.enter(PhasePrompt, s)
		}
	case envelopes.SessionSummary: // also of a session that is closed while a call or a permission is pending
		if c.Phase != PhaseFailed && c.Phase != PhasePermission && len(c.Open) == 0 {
			c.enter(PhasePrompt, s)
		}
	default:
	}
	switch {
	case s.Failed && !inside:
		c.enter(PhaseFailed, s)
	case s.Permission == permissionAsked:
		c.enter(PhasePermission, s)
		for _, o := range c.Open {
			if o.ID == callID(s.Call) {
				c.Tool = o.Tool
			}
		}
	case s.Permission == permissionDecided && c.Phase == PhasePermission:
		c.enter(PhaseWorking, s)
	}
	c.Main = c.Main || !s.Internal && c.Phase != ""
}

// isLate reports whether a step is read after the phase has begun, but is from before: a step of a subagent, a thought of the
// answer, or a prompt that is a command of the program.
func (c *conversing) isLate(s *Step, inside bool) bool {
	return s.Time < c.Since && (inside || s.Type == envelopes.UserMessage || s.Type == envelopes.Reasoning)
}

// enter begins a phase, unless it is that of the step before.
func (c *conversing) enter(p Phase, s *Step) {
	if c.Phase != p {
		c.Phase, c.Since, c.Tool = p, s.Time, ""
	}
}

// noteCall remembers a call, or forgets one that has its result.
func (c *conversing) noteCall(s *Step, calls *calls) {
	id := callID(s.Call)
	i := slices.IndexFunc(c.Open, func(o openCall) bool { return o.ID == id && (id != 0 || s.Tool == "" || o.Tool == s.Tool) })
	switch {
	case s.Type == envelopes.ToolCall:
		of := calls.known[id]
		if of != nil && of.outcome != envelopes.StatusInProgress || id != 0 && i >= 0 {
			return // a log can have a result before its call, and a call again with more of its arguments
		}
		if c.Open = append(c.Open, openCall{id, strings.Clone(s.Tool), s.Time}); len(c.Open) > maxOpen {
			c.Open = c.Open[1:]
		}
	case i >= 0 && s.Status != envelopes.StatusInProgress:
		c.Open = slices.Delete(c.Open, i, i+1)
	}
}

// activity returns what the session does right after its last event.
func (c *conversing) activity() Activity {
	a := Activity{State: Working, Phase: c.Phase, Tool: c.Tool}
	since := c.Since
	switch c.Phase {
	case "":
		a.State, a.Phase = Idle, PhaseNone
	case PhaseWorking:
		if n := len(c.Open); n > 0 {
			a.Phase, a.Tool, since = PhaseInTool, c.Open[n-1].Tool, c.Open[n-1].Since
		}
	case PhasePrompt, PhasePermission:
		a.State = Waiting
	case PhaseFailed:
		a.State = Failed
	default:
	}
	if since != 0 {
		a.Since = time.Unix(0, since).UTC()
	}
	return a
}

// permission is what an event says about a permission for a call.
type permission string

const (
	permissionAsked   permission = "asked"
	permissionDecided permission = "decided"
)

// notePermission reads the member permission of the metadata of an event, in which a vendor states that the agent has asked
// for a permission, or the decision.
func (s *Step) notePermission(stated jsontext.Value) {
	if stated == nil {
		return
	}
	var p struct {
		Call     string `json:"toolCallId"`
		Decision string `json:"decision"`
	}
	if json.Unmarshal(stated, &p) != nil {
		return
	}
	s.Permission = permissionAsked
	if p.Decision != "" {
		s.Permission = permissionDecided
	}
	if s.Call == "" {
		s.Call = p.Call
	}
}
