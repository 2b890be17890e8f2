package normalizers

import (
	"fmt"

	"tributary/envelopes"
	"tributary/normalizers/core"
)

// Recognition is by what the agent of a file is known. The zero value is that of a file that has
// shown nothing of its agent.
type Recognition struct {
	Source envelopes.Source // empty while the agent is not known, or where it has no normalizer
	Agent  string           // its name, also where it has no normalizer
	Marker string           // names of members and types of the record that decided; empty where the source was given
	Line   int              // of that record
	Folder string           // name of the agent in whose folder the file lies, where its content shows another one
}

// Err returns why the file is not read, with the cure; nil where it is.
func (r Recognition) Err() error {
	switch {
	case r.Source != "":
		return nil
	case r.Folder != "":
		return fmt.Errorf("it is a log of %s (by %s in line %d) in a folder of %s: to read it, name it with --source and one of %v",
			r.Agent, r.Marker, r.Line, r.Folder, envelopes.Sources)
	case r.Agent != "":
		return fmt.Errorf("it is a log of %s (by %s in line %d), which has no normalizer yet: to read it as a log of another agent, pass --source with one of %v",
			r.Agent, r.Marker, r.Line, envelopes.Sources)
	default:
		return fmt.Errorf("the content matches no agent: pass --source with one of %v", envelopes.Sources)
	}
}

// refused reports whether the file is known to be one of an agent without a normalizer, or of another one than its folder.
func (r Recognition) refused() bool { return r.Source == "" && r.Agent != "" }

// recognize returns by what a record is known as one of an agent; the zero Recognition when it may
// be of anybody.
func recognize(s *core.Shape, data []byte) Recognition {
	if name, marker := detectUnsupported(s, data); name != "" {
		return Recognition{Agent: name, Marker: marker}
	}
	for _, v := range vendors {
		if marker := v.Recognize(s); marker != "" {
			return Recognition{Source: v.Source, Agent: v.Name, Marker: marker}
		}
	}
	return Recognition{}
}
