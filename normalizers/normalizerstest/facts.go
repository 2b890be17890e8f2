package normalizerstest

import (
	"encoding/json"
	"reflect"
	"strings"
)

// checkFacts: the metadata of the events of a record has exactly the facts that the record states. Texts may be cut.
func checkFacts(p *Problems, s Suite, lines []Line, steps []Step) {
	if s.Facts == nil {
		return
	}
	stated := make(map[uint64]map[string]any)
	for _, l := range lines {
		if !l.Bad {
			stated[uint64(l.Number)] = s.Facts(Parse(l.Data)) //nolint:gosec // not below 1
		}
	}
	for _, st := range steps {
		found := make(map[string]bool)
		for _, e := range st.Result.Events {
			if e.Event.Metadata == nil {
				continue
			}
			want := stated[e.Sequence]
			for _, name := range s.FactNames {
				raw, has := e.Event.Metadata.Extensions[name]
				if w, states := want[name]; has != states || has && !sameFact(w, Parse(raw)) {
					text, _ := json.Marshal(w)
					p.Errorf("record %d: metadata.%s is %s, want %s", e.Sequence, name, Clip(string(raw)), Clip(string(text)))
				}
				found[name] = found[name] || has
			}
		}
		if st.Failed() || !st.emits() {
			continue
		}
		for name := range stated[st.Record.Sequence] {
			if !found[name] {
				p.Errorf("record %d: no event has metadata.%s", st.Record.Sequence, name)
			}
		}
	}
}

// checkResumeIDs: the metadata of an event has the id that resumes the session, once the log has stated it.
func checkResumeIDs(p *Problems, s Suite, lines []Line, steps []Step) {
	if s.ResumeID == nil {
		return
	}
	resumeID, want := s.ResumeID(), make(map[string]string)
	for i, st := range steps {
		session := st.Record.Session
		if i < len(lines) && !lines[i].Bad {
			want[session] = resumeID(session, Parse(lines[i].Data))
		}
		for _, e := range st.Result.Events {
			got := ""
			if e.Event.Metadata != nil {
				got = Value(e.Event.Metadata.SessionID)
			}
			if got != want[session] {
				p.Errorf("record %d: metadata.sessionId of an event is %q, want %q", st.Record.Sequence, got, want[session])
			}
		}
	}
}

// uncut is the length above which a text may be cut.
const uncut = 200

// sameFact compares two values as JSON; long texts may be cut.
func sameFact(want, got any) bool {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok || len(g) != len(w) {
			return false
		}
		for name, v := range w {
			if !sameFact(v, g[name]) {
				return false
			}
		}
		return true
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return false
		}
		for i, v := range w {
			if !sameFact(v, g[i]) {
				return false
			}
		}
		return true
	case string:
		g, ok := got.(string)
		return ok && (g == w || len(g) >= uncut && strings.HasPrefix(w, g))
	default:
		return reflect.DeepEqual(want, got)
	}
}
