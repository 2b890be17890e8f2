package normalizers

import (
	"fmt"

	"tributary/envelopes"
	"tributary/normalizers/core"
)

// Recognition is what identified the agent of a file. The zero value is for a file that has not shown its agent.
type Recognition struct {
	Source envelopes.Source // empty if the agent is unknown or has no normalizer
	Agent  string           // name of the agent, even without a normalizer
	Marker string           // names of members and types in the record that decided; empty if the source was given
	Line   int              // of that record
	Folder string           // name of the agent whose folder contains the file, if the content shows another agent
}

// Err returns why the file is not read, with the cure; nil if it is read.
func (r Recognition) Err() error {
	switch {
	case r.Source != "":
		return nil
	case r.Folder != "":
		return fmt.Errorf("it is a log of %s (by %s in line %d) in a folder of %s: to read it, pass --source with one of %v",
			r.Agent, r.Marker, r.Line, r.Folder, envelopes.Sources)
	case r.Agent != "":
		return fmt.Errorf("it is a log of %s (by %s in line %d), which has no normalizer yet: to read it as a log of another agent, pass --source with one of %v",
			r.Agent, r.Marker, r.Line, envelopes.Sources)
	default:
		return fmt.Errorf("the content matches no agent: pass --source with one of %v", envelopes.Sources)
	}
}

// refused reports whether the file belongs to an agent without a normalizer, or to another agent than its folder.
func (r Recognition) refused() bool { return r.Source == "" && r.Agent != "" }

// recognize returns what identifies the agent of a record; the zero Recognition if any agent may have written it.
func recognize(s *core.Shape, data []byte) Recognition {
	if is, ok := exportedOf(s); ok {
		return Recognition{Source: is.Source, Agent: VendorOf(is.Source).Name, Marker: "service.name or scope of an OTLP export"}
	}
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
