package schema

import (
	"slices"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// The schemas of the code can follow those of the last release: their events are read by consumers of it,
// and its events by consumers of theirs.
func TestSchemasFollowTheLastRelease(t *testing.T) {
	t.Parallel()
	for _, form := range Forms {
		last := form.Releases()[len(form.Releases())-1]
		released, _ := form.Released(last)
		differences, err := Compare(released, form.Producer())
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range differences {
			if reason := d.Breaks(Full); reason != "" {
				t.Errorf("%s %s, %s: %s: %s\nUndo it: consumers are built on version 1, which may gain optional fields and values of enums only. What cannot do without it becomes version 2, with another $id.",
					form, last, d.Pointer, d.Change, reason)
			}
		}
	}
}

func TestReleasesFollowEachOther(t *testing.T) {
	t.Parallel()
	for _, form := range Forms {
		names := form.Releases()
		if !slices.Contains(names, "v1.0") {
			t.Fatalf("%s has the releases %v", form, names)
		}
		for i, name := range names {
			released, ok := form.Released(name)
			if _, err := Compile(released); !ok || err != nil {
				t.Errorf("%s %s: %v", form, name, err)
			}
			if i == 0 {
				continue
			}
			before, _ := form.Released(names[i-1])
			differences, err := Compare(before, released)
			if err != nil || slices.ContainsFunc(differences, func(d Difference) bool { return d.Breaks(Full) != "" }) {
				t.Errorf("%s %s does not follow %s: %v %v", form, name, names[i-1], differences, err)
			}
		}
		if _, ok := form.Released("v0"); ok {
			t.Errorf("%s has a release v0", form)
		}
	}
}

// A later version 1, as it is meant to be: it gains an optional field and a value of an enum with its rule.
func TestVersionMayGainFieldsAndValues(t *testing.T) {
	t.Parallel()
	changed := string(Events.Producer())
	for _, swap := range [][2]string{
		{`"agent_id": {`, `"future": {"type": "string"}, "agent_id": {`},
		{`"vscode_copilot", "otel"]`, `"vscode_copilot", "otel", "future"]`},
		{`        "log"
      ]`, `        "log", "future"
      ]`},
		{`  "allOf": [`, `  "allOf": [{"if": {"properties": {"event_type": {"const": "future"}}}, "then": {"properties": {"role": {"enum": ["tool"]}}}},`},
	} {
		changed = replaced(t, changed, swap[0], swap[1])
	}
	differences, err := Compare(Events.Producer(), []byte(changed))
	if err != nil || len(differences) != 4 {
		t.Errorf("%v %v", differences, err)
	}
	for _, d := range differences {
		if d.Breaks(Full) != "" {
			t.Error(d)
		}
	}
}

func TestConsumerSchemaKnowsTheValuesAndIsOpen(t *testing.T) {
	t.Parallel()
	for _, form := range Forms {
		consumer := form.Consumer()
		if _, err := Compile(consumer); err != nil {
			t.Fatal(err)
		}
		differences, err := Compare(form.Producer(), consumer)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range differences {
			if d.Backward != "" || d.Forward != "" {
				t.Errorf("%s: %v", form, d)
			}
		}
		if len(differences) < 5 || !jsontext.Value(consumer).IsValid() {
			t.Errorf("%s: %v", form, differences)
		}
	}
	const schema = `{"$id":"urn:x","properties":{"enum":{"enum":["a"],"additionalProperties":false},"additionalProperties":{"type":"null"}},"if":{"enum":[1]},"not":{"enum":[2]},"additionalProperties":{"enum":[3]}}`
	const want = `{"$id":"urn:x:consumer","properties":{"enum":{"examples":["a"]},"additionalProperties":{"type":"null"}},"if":{"enum":[1]},"not":{"enum":[2]},"additionalProperties":{"examples":[3]}}`
	opened, err := open([]byte(schema))
	got := jsontext.Value(opened)
	if err != nil || got.Compact() != nil || string(got) != want {
		t.Errorf("%s %v", got, err)
	}
}
