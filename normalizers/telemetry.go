package normalizers

import (
	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/otlp"
)

// Assignment is where a record that was exported by OpenTelemetry belongs.
type Assignment struct {
	Source  envelopes.Source
	Session string // empty if the record states none
	// Sequence is the number of the record, unique with its time in its session; empty if the record states none.
	Sequence string
}

// AssignTelemetry returns where a record belongs that was exported under the names of a service (service.name) and an
// instrumentation scope. attribute returns the text of an attribute of the record, else of its scope, else of its
// resource; empty for none. It returns false for a record of no known agent.
func AssignTelemetry(service, scope string, attribute func(name string) string) (Assignment, bool) {
	for _, v := range vendors {
		if t := v.Telemetry; t != nil && t.Matches(service, scope) {
			return assignmentTo(v, attribute), true
		}
	}
	if attribute("gen_ai.operation.name")+attribute("gen_ai.provider.name")+attribute("gen_ai.system") == "" {
		return Assignment{}, false
	}
	for _, v := range vendors {
		if t := v.Telemetry; t != nil && t.Conventions {
			is := assignmentTo(v, attribute)
			return is, is.Session != ""
		}
	}
	return Assignment{}, false
}

// SourceOfHooks returns the agent that posts its hooks to a path whose last part is name; false for none.
func SourceOfHooks(name string) (envelopes.Source, bool) {
	for _, v := range vendors {
		if v.Telemetry != nil && v.Telemetry.Hooks == name && name != "" {
			return v.Source, true
		}
	}
	return "", false
}

func assignmentTo(v *core.Vendor, attribute func(name string) string) Assignment {
	is := Assignment{Source: v.Source}
	for _, name := range v.Telemetry.Sessions {
		if is.Session = attribute(name); is.Session != "" {
			break
		}
	}
	if of := v.Telemetry.SessionOf; of != nil {
		is.Session = of(is.Session, attribute)
	}
	if v.Telemetry.Sequence != "" {
		is.Sequence = attribute(v.Telemetry.Sequence)
	}
	return is
}

// exported is a record of a file that an agent exported by OpenTelemetry. The zero value is for any other record.
type exported struct {
	Assignment
	record otlp.Record
}

// exportedOf returns what a record exports; false if it exports nothing, or is of no known agent.
func exportedOf(s *core.Shape) (exported, bool) {
	if !otlp.Is(s) {
		return exported{}, false
	}
	r, ok := otlp.OfShape(s)
	if !ok {
		return exported{}, false
	}
	is, ok := AssignTelemetry(r.Service(), r.Scope, r.Attribute)
	return exported{is, r}, ok
}
