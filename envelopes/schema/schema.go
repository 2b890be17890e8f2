// Package schema has the JSON Schemas (2020-12) of what Tributary writes: the event agtrace.event.v1 and its two
// projections. It is separate from envelopes so that importers of that do not get a JSON Schema compiler.
//
// Start with [Form.Consumer] to check what a program reads, with [Form.Producer] to check what a program writes, and
// with [NewValidator] for the checks. [Compare] decides whether one schema can follow another; it is written here
// because no maintained Go library compares JSON Schemas (oasdiff compares OpenAPI documents). The documents are
// agtrace.*.json in this folder; tests of package envelopes compare them with the structs. The folder released has
// the schemas of all releases, which never change.
package schema

import (
	"embed"
	"slices"
	"strings"
)

//go:embed *.json released
var documents embed.FS

// Form is a form in which events are written.
type Form string

// The forms.
const (
	Events  Form = "events"  // envelopes.AgentEventV1
	Entries Form = "entries" // envelopes.NormalizedEntry
	ACP     Form = "acp"     // envelopes.ACPMessage
)

// Forms lists every form.
var Forms = []Form{Events, Entries, ACP}

// files are the documents of the forms.
var files = map[Form]string{
	Events:  "agtrace.event.v1.json",
	Entries: "agtrace.entries.v1.json",
	ACP:     "agtrace.acp.v1.json",
}

// Producer returns the schema that a producer must meet: no other fields, no other enum values. The $id of the schema
// of events is envelopes.DataSchema.
//
// JSON Schema cannot express three rules of AgentEventV1.Validate: ids are bounded in bytes, tokens_total is the sum
// of usage, and an event does not supersede itself.
func (f Form) Producer() []byte { return read(files[f]) }

// Consumer returns the schema that a consumer should apply: [open] of [Form.Producer].
func (f Form) Consumer() []byte {
	opened, err := open(f.Producer())
	if err != nil {
		panic(err) // the document is part of the program
	}
	return opened
}

// Releases returns the names of the released schema versions, such as v1.0, in order.
func (f Form) Releases() []string {
	entries, err := documents.ReadDir("released")
	if err != nil {
		panic(err) // the folder is part of the program
	}
	var names []string
	for _, entry := range entries {
		name, isOf := strings.CutPrefix(entry.Name(), string(f)+".")
		if isOf {
			names = append(names, strings.TrimSuffix(name, ".json"))
		}
	}
	slices.SortFunc(names, func(a, b string) int { // v1.9 is before v1.10
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		return strings.Compare(a, b)
	})
	return names
}

// Released returns the producer's schema of a released version; false if there is none.
func (f Form) Released(version string) ([]byte, bool) {
	if !slices.Contains(f.Releases(), version) {
		return nil, false
	}
	return read("released/" + string(f) + "." + version + ".json"), true
}

func read(name string) []byte {
	b, err := documents.ReadFile(name)
	if err != nil {
		panic(err) // the document is part of the program
	}
	return b
}
