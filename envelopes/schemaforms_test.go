package envelopes

import (
	"encoding/json"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	eventschema "tributary/envelopes/schema"
)

func TestDataSchemaIsTheVersionOfTheSchemas(t *testing.T) {
	t.Parallel()
	for _, form := range eventschema.Forms {
		id := "urn:agtrace:" + string(form) + ":v1"
		if form == eventschema.Events {
			id = DataSchema
		}
		for document, want := range map[string]string{string(form.Producer()): id, string(form.Consumer()): id + ":consumer"} {
			var head struct {
				ID string `json:"$id"`
			}
			if err := json.Unmarshal([]byte(document), &head); err != nil || head.ID != want {
				t.Errorf("%s: the $id is %q, want %q: %v", form, head.ID, want, err)
			}
		}
	}
	e := plainUserMessage()
	ce, err := e.CloudEvent(Provenance{Generation: "v1"})
	if err != nil || ce.DataSchema() != DataSchema {
		t.Errorf("dataschema is %q: %v", ce.DataSchema(), err)
	}
}

// objectNode is an object of a schema of a projection.
type objectNode struct {
	Properties map[string]struct {
		Enum []string `json:"enum"`
	} `json:"properties"`
	Required []string              `json:"required"`
	Defs     map[string]objectNode `json:"$defs"`
}

// holdNames compares the fields of an object with those of a struct.
func holdNames(t *testing.T, name string, n objectNode, goType reflect.Type, added ...string) {
	t.Helper()
	want, required := slices.Clone(added), []string{}
	for field := range goType.Fields() {
		tag, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		want = append(want, tag)
		if options == "" {
			required = append(required, tag)
		}
	}
	var got []string
	for field := range n.Properties {
		got = append(got, field)
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: fields (-want +got):\n%s", name, diff)
	}
	if slices.Contains(added, "kind") {
		required = append([]string{"kind"}, required...)
	}
	if diff := cmp.Diff(required, n.Required); diff != "" {
		t.Errorf("%s: required (-want +got):\n%s", name, diff)
	}
}

func TestSchemasOfProjectionsHaveTheFieldsOfTheStructs(t *testing.T) {
	t.Parallel()
	var entries, acp objectNode
	for form, into := range map[eventschema.Form]*objectNode{eventschema.Entries: &entries, eventschema.ACP: &acp} {
		if err := json.Unmarshal(form.Producer(), into); err != nil {
			t.Fatal(err)
		}
	}
	holdNames(t, "entry", entries, reflect.TypeFor[NormalizedEntry](), "source", "session_id")
	for name, goType := range map[string]reflect.Type{
		"type": reflect.TypeFor[EntryType](), "tool": reflect.TypeFor[EntryTool](), "action": reflect.TypeFor[EntryAction](),
		"change": reflect.TypeFor[EntryChange](), "command": reflect.TypeFor[CommandResult](),
		"outcome": reflect.TypeFor[EntryOutcome](), "error": reflect.TypeFor[EntryReport](),
	} {
		holdNames(t, name, entries.Defs[name], goType)
	}
	holdNames(t, "citation", acp.Defs["citation"], reflect.TypeFor[ACPCitation](), "kind")
	holdNames(t, "trajectory", acp.Defs["trajectory"], reflect.TypeFor[ACPTrajectory](), "kind")

	for name, c := range map[string]struct {
		got  []string
		want []string
	}{
		"kinds of entries": {entries.Defs["type"].Properties["kind"].Enum, []string{string(EntrySystemMessage), string(EntryUserMessage), string(EntryAssistantMessage), string(EntryThinking), string(EntryToolUse), string(EntryError)}},
		"statuses":         {entries.Defs["tool"].Properties["status"].Enum, []string{string(EntryCreated), string(EntryRunning), string(EntrySuccess), string(EntryFailed)}},
		"kinds of actions": {entries.Defs["action"].Properties["kind"].Enum, []string{string(ActionFileRead), string(ActionFileWrite), string(ActionFileEdit), string(ActionCommandRun), string(ActionSearch), string(ActionTool)}},
		"types of changes": {entries.Defs["change"].Properties["type"].Enum, []string{string(ChangeEdit), string(ChangeDelete)}},
		"encodings":        {acp.Defs["part"].Properties["content_encoding"].Enum, []string{ACPPlain, ACPBase64}},
		"kinds of parts":   {acp.Defs["metadata"].Properties["kind"].Enum, []string{acpCitation, acpTrajectory}},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for _, document := range []eventschema.Form{eventschema.Entries, eventschema.ACP} {
		var root struct {
			Defs map[string]struct{ Enum []Source } `json:"$defs"`
		}
		if err := json.Unmarshal(document.Producer(), &root); err != nil || !slices.Equal(root.Defs["source"].Enum, Sources) {
			t.Errorf("%s has the sources %v: %v", document, root.Defs["source"].Enum, err)
		}
	}
}

// TestImportBringsNoSchemaCompiler lists what an importer of the package builds.
func TestImportBringsNoSchemaCompiler(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Skip(err)
	}
	for name := range strings.Lines(string(out)) {
		if strings.Contains(name, "jsonschema") || strings.HasPrefix(name, "golang.org/x/text") {
			t.Errorf("it imports %s", strings.TrimSpace(name))
		}
	}
}
