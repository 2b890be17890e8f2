package transcript

import (
	"cmp"
	"hash/maphash"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"tributary/envelopes"
)

// links are the calls that may have begun a subagent. Vendors link a subagent to its call in one of three ways: the
// subagent has the id of the call, its prompt is an argument of the call, or the result of the call states its id.
type links struct {
	seed     maphash.Seed
	byID     map[uint64]location   // by hash of the call id
	byPrompt map[uint64][]location // by hash of the prompt, calls without a subagent
	byAgent  map[string]location   // by the id stated in the result
	prompts  map[*section]uint64   // hashes of the prompts of subagents
	results  map[uint64]location   // results without a call, by hash of the id
}

func newLinks() links {
	return links{maphash.MakeSeed(), map[uint64]location{}, map[uint64][]location{}, map[string]location{}, map[*section]uint64{}, map[uint64]location{}}
}

// promptBytes is how much of a prompt is compared.
const promptBytes = 400

// promptNames are the arguments that may be the prompt of a subagent.
type promptNames struct {
	Prompt  string `json:"prompt"`
	Message string `json:"message"`
	Task    string `json:"task"`
}

// statedAgent matches the id of a subagent in the result of its call.
var statedAgent = regexp.MustCompile(`(?:agent_?[iI]d|task_id)"?:\s*"?([\w-]{4,})`)

// statedWithin is how many bytes from each end of a result are searched for the id of a subagent.
const statedWithin = 1000

// note collects the links in an event of an item.
func (l *links) note(e *envelopes.AgentEventV1, at location) {
	text := value(e.Text)
	switch e.EventType {
	case envelopes.ToolCall:
		if id := value(e.ToolCallID); id != "" {
			l.byID[maphash.String(l.seed, id)] = at
		}
		var names promptNames
		if strings.Contains(text, `"prompt"`) || strings.Contains(text, `"message"`) || strings.Contains(text, `"task"`) {
			_ = json.Unmarshal([]byte(text), &names) // no prompt among other arguments
		}
		if prompt := cmp.Or(names.Prompt, names.Message, names.Task); prompt != "" {
			key := l.prompt(prompt)
			l.byPrompt[key] = append(l.byPrompt[key], at)
		}
	case envelopes.ToolResult:
		if id := value(e.ToolCallID); id != "" {
			if key := maphash.String(l.seed, id); l.byID[key].section == nil {
				l.results[key] = at
			}
		}
		if n := len(text); n > 2*statedWithin {
			text = text[:statedWithin] + text[n-statedWithin:]
		}
		for _, stated := range [][]byte{[]byte(text), e.ToolMetadata} {
			m := statedAgent.FindSubmatch(stated)
			if m == nil {
				continue
			}
			if _, known := l.byAgent[string(m[1])]; !known {
				l.byAgent[string(m[1])] = at
			}
		}
	case envelopes.UserMessage:
		if e.IsInternal {
			l.prompts[at.section] = l.prompt(text)
		}
	default:
	}
}

// result returns the item of a result that came before its call.
func (l *links) result(e *envelopes.AgentEventV1) (location, bool) {
	if e.EventType != envelopes.ToolCall || e.ToolCallID == nil {
		return location{}, false
	}
	key := maphash.String(l.seed, *e.ToolCallID)
	at, ok := l.results[key]
	delete(l.results, key)
	return at, ok
}

// prompt returns the hash of a prompt.
func (l *links) prompt(text string) uint64 {
	text = strings.TrimSpace(text)
	return maphash.String(l.seed, text[:min(len(text), promptBytes)])
}

// call returns the call that began a section of a subagent.
func (l *links) call(s *section) (location, bool) {
	if at, ok := l.byID[maphash.String(l.seed, s.thread.agent)]; ok && s.thread.agent != "" {
		return at, true
	}
	if key, ok := l.prompts[s]; ok && len(l.byPrompt[key]) > 0 {
		at := l.byPrompt[key][0]
		l.byPrompt[key] = l.byPrompt[key][1:]
		return at, true
	}
	at, ok := l.byAgent[s.thread.agent]
	return at, ok
}

// atBegin is the item number of subagents that began before all items.
const atBegin = -1

// finish puts the sections of subagents below the calls that began them, and makes the turns from the others.
func (r *reader) finish() error {
	if err := r.flush(); err != nil {
		return err
	}
	if len(r.sections) == 0 {
		return nil
	}
	main := thread{}
	if r.threads[main] == nil {
		main = r.sections[0].thread // the session has only a subagent
	}
	r.turns = r.threads[main]
	times := newTimeline(r.turns)
	for _, s := range r.sections {
		if s.thread == main {
			continue
		}
		at, ok := r.links.call(s)
		if ok && !s.above(at.section) {
			if err := r.title(s, at); err != nil {
				return err
			}
		} else if at, ok = r.before(s); !ok || s.above(at.section) { // agents may call each other
			at = times.at(s)
		}
		s.put(at)
	}
	for _, s := range r.sections {
		if b := s.Models[""]; b != nil && r.begun != "" {
			delete(s.Models, "")
			s.billed(r.begun).Merge(b)
		}
	}
	for _, s := range r.turns {
		s.sum()
	}
	return nil
}

// put puts the section of a subagent behind an item.
func (s *section) put(at location) {
	s.parent = at.section
	if at.section.children == nil {
		at.section.children = map[int][]*section{}
	}
	at.section.children[at.item] = append(at.section.children[at.item], s)
}

// above reports whether o is s, or below s.
func (s *section) above(o *section) bool {
	for ; o != nil; o = o.parent {
		if o == s {
			return true
		}
	}
	return false
}

// before returns the place of the previous section of the same subagent.
func (r *reader) before(s *section) (location, bool) {
	list := r.threads[s.thread]
	n := slices.Index(list, s)
	if n == 0 {
		return location{}, false
	}
	parent := list[n-1].parent
	for item, children := range parent.children {
		if slices.Contains(children, list[n-1]) {
			return location{parent, item}, true
		}
	}
	return location{}, false
}

// title sets the title of a section from its call.
func (r *reader) title(s *section, at location) error {
	i, err := r.spool.get(at.section.items[at.item].place)
	if err != nil || i.Call == nil {
		return err
	}
	var names struct {
		Description string `json:"description"`
		Name        string `json:"name"`
		TaskName    string `json:"task_name"`
		Subagent    string `json:"subagent_type"`
		Agent       string `json:"agent_type"`
	}
	_ = json.Unmarshal([]byte(i.Call.Arguments), &names) // no title among other arguments
	s.Title = cmp.Or(names.Description, names.Name, names.TaskName, names.Subagent, names.Agent)
	return nil
}

// sum adds the sums of all subagents below s.
func (s *section) sum() {
	for _, children := range s.children {
		for _, child := range children {
			child.sum()
			s.add(&child.Section)
		}
	}
}

// timeline is the main conversation in order of time.
type timeline struct {
	latest []int64 // latest time up to each item
	places []location
}

func newTimeline(turns []*section) *timeline {
	l := &timeline{places: []location{{turns[0], atBegin}}, latest: []int64{0}}
	for _, s := range turns {
		for n, e := range s.items {
			l.places = append(l.places, location{s, n})
			l.latest = append(l.latest, max(e.at, l.latest[len(l.latest)-1]))
		}
	}
	return l
}

// at returns the item of the main conversation after which a section began.
func (l *timeline) at(s *section) location {
	n, _ := slices.BinarySearchFunc(l.latest, s.Begin.UnixNano(), func(latest, begin int64) int {
		if latest > begin {
			return 1
		}
		return -1
	})
	return l.places[max(n-1, 0)]
}
