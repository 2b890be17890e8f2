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

// State is a coarse description of what a session does; [Phase] is finer.
type State string

// The states.
const (
	Working State = "working" // the agent works
	Waiting State = "waiting" // the agent waits for the next prompt, or for a permission
	Failed  State = "failed"  // the last event is an error reported by the vendor
	Idle    State = "idle"    // nothing has happened for idleAfter
)

// States lists every state.
var States = []State{Working, Waiting, Failed, Idle}

// Phase is what a session does according to the last events of its main conversation.
type Phase string

// The phases. An ended session was working or in a tool, and then nothing happened for idleAfter.
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

// words are the words for phases in lists.
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

// Word returns the word for a phase in lists. Unlike the name of a [State], it does not depend on the time since the
// last event: a session waits for a prompt until it gets one.
func (p Phase) Word() string { return words[p] }

// meanings describe what sessions in a phase do.
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

// Meaning returns what a session in the phase does; a time may be appended.
func (p Phase) Meaning() string { return meanings[p] }

// idleAfter is the time without events after which a waiting or working session is idle.
const idleAfter = 15 * time.Minute

// Activity is what a session does.
type Activity struct {
	State State     `json:"state"`
	Phase Phase     `json:"phase"`
	Since time.Time `json:"phase_since,omitzero"` // when the phase began, for an ended one the phase before it; zero if unknown
	Tool  string    `json:"phase_tool,omitzero"`  // last tool called without a result, or the one that needs the permission
}

// Is reports whether a name is that of the state or phase, or the word of the phase.
func (a *Activity) Is(name string) bool {
	return name == string(a.State) || name == string(a.Phase) || name == a.Phase.Word()
}

// Text returns the word of the phase, with the tool if the session is in one, for lists.
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

// StateNames lists all names that [Activity.Is] knows.
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

// At returns what a session does at time now, when its last event was at last.
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

// conversing tracks the main conversation of a session. If a session only has a subagent, that is its main
// conversation.
type conversing struct {
	Phase Phase      `json:"p,omitzero"` // never an ended phase
	Since int64      `json:"s,omitzero"` // nanoseconds since 1970
	Tool  string     `json:"t,omitzero"` // tool that needs the permission
	Open  []openCall `json:"o,omitempty"`
	Main  bool       `json:"m,omitzero"` // some events are not of subagents
}

// openCall is a call without a result.
type openCall struct {
	ID    uint64 `json:"i,omitzero"` // hash of its id; 0 for none
	Tool  string `json:"t,omitzero"`
	Since int64  `json:"s,omitzero"` // nanoseconds since 1970
}

// maxOpen bounds the calls of a session remembered as having no result.
const maxOpen = 64

// note tracks a step, which calls already includes.
func (c *conversing) note(s *Step, calls *calls) {
	inside := s.Internal && c.Main
	if s.Origin == envelopes.OriginCopied || c.isLate(s, inside) {
		return
	}
	switch s.Type {
	case envelopes.UserMessage:
		if !inside {
			c.Open = nil // a call without a result before the next prompt never gets one
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
	case envelopes.SessionSummary: // also when a session is closed while a call or permission is pending
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

// isLate reports whether a step comes after the phase began but belongs before it: a step of a subagent, a thought of
// the answer, or a prompt that is a command of the program.
func (c *conversing) isLate(s *Step, inside bool) bool {
	return s.Time < c.Since && (inside || s.Type == envelopes.UserMessage || s.Type == envelopes.Reasoning)
}

// enter begins a phase, unless it is the present one.
func (c *conversing) enter(p Phase, s *Step) {
	if c.Phase != p {
		c.Phase, c.Since, c.Tool = p, s.Time, ""
	}
}

// noteCall remembers a call, or forgets it when it has its result.
func (c *conversing) noteCall(s *Step, calls *calls) {
	id := callID(s.Call)
	i := slices.IndexFunc(c.Open, func(o openCall) bool { return o.ID == id && (id != 0 || s.Tool == "" || o.Tool == s.Tool) })
	switch {
	case s.Type == envelopes.ToolCall:
		of := calls.known[id]
		if of != nil && of.outcome != envelopes.StatusInProgress || id != 0 && i >= 0 {
			return // a log may have a result before its call, or a call twice, with more arguments
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

// permission is the state of a permission for a call, as stated in an event.
type permission string

const (
	permissionAsked   permission = "asked"
	permissionDecided permission = "decided"
)

// notePermission reads the member permission of the metadata of an event, where a vendor states that the agent asked
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
