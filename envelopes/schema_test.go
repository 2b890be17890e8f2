package envelopes

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	eventschema "tributary/envelopes/schema"
)

// compile returns a compiled schema.
func compile(t *testing.T, document []byte) *jsonschema.Schema {
	t.Helper()
	schema, err := eventschema.Compile(document)
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// check validates a document.
func check(schema *jsonschema.Schema, document []byte) error {
	instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		return err
	}
	return schema.Validate(instance)
}

// node is one subschema, as far as the struct determines it.
type node struct {
	Description string          `json:"description"`
	Ref         string          `json:"$ref"`
	Const       any             `json:"const"`
	Type        any             `json:"type"`
	Enum        []string        `json:"enum"`
	AnyOf       []node          `json:"anyOf"`
	Properties  json.RawMessage `json:"properties"`
	Required    []string        `json:"required"`
	Items       *node           `json:"items"`
	Minimum     *int64          `json:"minimum"`
	Maximum     *int64          `json:"maximum"`
	MaxLength   *int            `json:"maxLength"`
	Closed      any             `json:"additionalProperties"`
	Defs        map[string]node `json:"$defs"`
	AllOf       []struct {
		If, Then struct{ Properties map[string]node }
	} `json:"allOf"`
}

func parseSchema(t *testing.T) node {
	t.Helper()
	var root node
	if err := json.Unmarshal(eventschema.Events.Producer(), &root); err != nil {
		t.Fatal(err)
	}
	return root
}

// properties returns the subschemas of an object, and their names in order.
func (n node) properties(t *testing.T) (names []string, nodes map[string]node) {
	t.Helper()
	if err := json.Unmarshal(n.Properties, &nodes); err != nil {
		t.Fatal(err)
	}
	return keys(t, n.Properties), nodes
}

// resolve follows a reference and removes the alternative null.
func (n node) resolve(t *testing.T, root node) (resolved node, nullable bool) {
	t.Helper()
	if len(n.AnyOf) == 2 && n.AnyOf[1].Type == "null" {
		n, nullable = n.AnyOf[0], true
	}
	if types, ok := n.Type.([]any); ok && len(types) == 2 && types[1] == "null" {
		n.Type, nullable = types[0], true
	}
	if name, ok := strings.CutPrefix(n.Ref, "#/$defs/"); ok {
		def, ok := root.Defs[name]
		if !ok {
			t.Fatalf("%s leads nowhere", n.Ref)
		}
		n = def
	}
	return n, nullable
}

// enumOf returns the values of a type that has an enum.
func enumOf(goType reflect.Type) []string {
	enums := map[reflect.Type]any{
		reflect.TypeFor[Source](): Sources, reflect.TypeFor[EventType](): EventTypes, reflect.TypeFor[Role](): roles,
		reflect.TypeFor[Channel](): channels, reflect.TypeFor[ToolStatus](): toolStatuses, reflect.TypeFor[FileOp](): fileOps,
		reflect.TypeFor[Origin](): origins,
		reflect.TypeFor[Via]():    vias,
	}
	var values []string
	if enum, ok := enums[goType]; ok {
		for i := range reflect.ValueOf(enum).Len() {
			values = append(values, reflect.ValueOf(enum).Index(i).String())
		}
	}
	return values
}

// holdToStruct compares a subschema with its struct.
func holdToStruct(t *testing.T, root, n node, goType reflect.Type) {
	t.Helper()
	names, nodes := n.properties(t)
	var wantNames, wantRequired []string
	for field := range goType.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" {
			continue // the extensions of metadata
		}
		wantNames = append(wantNames, name)
		if options == "" || name == "sequence" {
			wantRequired = append(wantRequired, name)
		}
		got, nullable := nodes[name].resolve(t, root)
		fieldType, pointer := field.Type, field.Type.Kind() == reflect.Pointer
		if pointer {
			fieldType = fieldType.Elem()
		}
		if name == "raw" || name == "tool_input" {
			if !cmp.Equal(got, node{Description: got.Description}) {
				t.Errorf("%s may be any JSON, and the schema has %+v", name, got)
			}
			continue
		}
		// Role may be nil in Go, and is never null in a valid event.
		if wantNull := pointer && options == "" && name != "role"; nullable != wantNull {
			t.Errorf("%s.%s: nullable is %v", goType.Name(), name, nullable)
		}
		wantType := map[reflect.Kind]string{
			reflect.String: "string", reflect.Int64: "integer", reflect.Uint64: "integer", reflect.Bool: "boolean", reflect.Float64: "number",
			reflect.Struct: "object", reflect.Map: "object", reflect.Slice: "array",
		}[fieldType.Kind()]
		switch {
		case name == "schema_version":
			if got.Const != SchemaVersion {
				t.Errorf("schema_version is %v", got.Const)
			}
			continue
		case name == "tool_metadata":
			wantType = "object"
		}
		if got.Type != wantType {
			t.Errorf("%s.%s is %v, want %s", goType.Name(), name, got.Type, wantType)
		}
		if diff := cmp.Diff(enumOf(fieldType), got.Enum); diff != "" {
			t.Errorf("%s.%s: enum (-want +got):\n%s", goType.Name(), name, diff)
		}
		switch {
		case fieldType.Kind() == reflect.Struct:
			holdToStruct(t, root, got, fieldType)
		case fieldType == reflect.TypeFor[[]File]():
			items, _ := got.Items.resolve(t, root)
			holdToStruct(t, root, items, reflect.TypeFor[File]())
		case fieldType.Kind() == reflect.Int64 && name != "tool_exit_code":
			if got.Minimum == nil || *got.Minimum != 0 || got.Maximum == nil || *got.Maximum != maxCount {
				t.Errorf("%s.%s is not bounded as a count", goType.Name(), name)
			}
		case strings.HasSuffix(name, "_id") && options == "" && name != "tool_call_id" && name != "agent_id", name == "supersedes":
			if got.MaxLength == nil || *got.MaxLength != MaxIDBytes {
				t.Errorf("%s.%s is not bounded as an id", goType.Name(), name)
			}
		}
	}
	if goType == reflect.TypeFor[Metadata]() {
		names = names[:len(wantNames)] // those behind them are extensions with a type
	}
	if diff := cmp.Diff(wantNames, names); diff != "" {
		t.Errorf("%s: fields (-want +got):\n%s", goType.Name(), diff)
	}
	if diff := cmp.Diff(wantRequired, n.Required); diff != "" {
		t.Errorf("%s: required (-want +got):\n%s", goType.Name(), diff)
	}
	if open := goType == reflect.TypeFor[Metadata](); (n.Closed != false) != open {
		t.Errorf("%s: additionalProperties is %v", goType.Name(), n.Closed)
	}
}

func TestSchemaHasTheFieldsOfTheStruct(t *testing.T) {
	t.Parallel()
	root := parseSchema(t)
	holdToStruct(t, root, root, reflect.TypeFor[AgentEventV1]())
	if want := append(slices.Clone(specFields), "sequence"); !slices.Equal(root.Required, want) {
		t.Errorf("required are %v", root.Required)
	}

	roles := map[EventType][]Role{}
	for _, rule := range root.AllOf {
		eventType, ok := rule.If.Properties["event_type"]
		if !ok {
			continue
		}
		for _, role := range rule.Then.Properties["role"].Enum {
			name := EventType(eventType.Const.(string))
			roles[name] = append(roles[name], Role(role))
		}
	}
	if diff := cmp.Diff(rolesOf, roles); diff != "" {
		t.Errorf("role table (-want +got):\n%s", diff)
	}
}

func TestSchemaAcceptsWhatValidateAccepts(t *testing.T) {
	t.Parallel()
	producer, consumer := compile(t, eventschema.Events.Producer()), compile(t, eventschema.Events.Consumer())
	rapid.Check(t, func(t *rapid.T) {
		e := anyEvent().Draw(t, "event")
		data, err := e.AppendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := check(producer, data); err != nil {
			t.Fatalf("producer: %v", err)
		}
		if err := check(consumer, data); err != nil {
			t.Fatalf("consumer: %v", err)
		}
	})
}

func TestSchemaRejectsWhatValidateRejects(t *testing.T) {
	t.Parallel()
	schema := compile(t, eventschema.Events.Producer())
	for name, change := range map[string]func(*AgentEventV1){
		"version":                func(e *AgentEventV1) { e.SchemaVersion = "agtrace.event.v2" },
		"source":                 func(e *AgentEventV1) { e.Source = "x" },
		"project":                func(e *AgentEventV1) { e.ProjectHash = "" },
		"session":                func(e *AgentEventV1) { e.SessionID = "" },
		"id":                     func(e *AgentEventV1) { e.EventID = strings.Repeat("x", MaxIDBytes+1) },
		"parent":                 func(e *AgentEventV1) { e.ParentEventID = new("") },
		"parent of user message": func(e *AgentEventV1) { e.EventType, e.Role = UserMessage, new(RoleUser) },
		"ts":                     func(e *AgentEventV1) { e.TS = "2025-11-26T12:51:28+00:00" },
		"no such day":            func(e *AgentEventV1) { e.TS = "2025-02-30T12:51:28Z" },
		"type":                   func(e *AgentEventV1) { e.EventType = "x" },
		"role":                   func(e *AgentEventV1) { e.Role = new(RoleAssistant) },
		"no role":                func(e *AgentEventV1) { e.Role = nil },
		"channel":                func(e *AgentEventV1) { e.Channel = new(Channel("x")) },
		"status":                 func(e *AgentEventV1) { e.ToolStatus = new(ToolStatus("x")) },
		"file op":                func(e *AgentEventV1) { e.FileOp = new(FileOp("x")) },
		"via":                    func(e *AgentEventV1) { e.Via = "x" },
		"origin":                 func(e *AgentEventV1) { e.Origin = "x" },
		"latency":                func(e *AgentEventV1) { e.ToolLatencyMS = new(int64(-1)) },
		"tokens":                 func(e *AgentEventV1) { e.TokensTool = new(int64(-1)) },
		"usage":                  func(e *AgentEventV1) { e.Usage.Input = -1 },
		"no total":               func(e *AgentEventV1) { e.TokensTotal = nil },
		"no usage":               func(e *AgentEventV1) { e.Usage = nil },
		"sequence":               func(e *AgentEventV1) { e.Sequence = 0 },
		"file path":              func(e *AgentEventV1) { e.Files[0].Path = "" },
		"file op in files":       func(e *AgentEventV1) { e.Files[0].Op = "x" },
		"tool metadata":          func(e *AgentEventV1) { e.ToolMetadata = jsontext.Value(`[]`) },
		"message metadata":       func(e *AgentEventV1) { e.MessageMetadata = jsontext.Value(`{}`) },
	} {
		e := plainToolResult()
		change(&e)
		if e.Validate() == nil {
			t.Errorf("%s: Validate accepts it", name)
		}
		data, err := e.AppendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		if check(schema, data) == nil {
			t.Errorf("%s: the schema accepts it", name)
		}
	}
}

func TestConsumerSchemaAcceptsFutureFields(t *testing.T) {
	t.Parallel()
	producer, consumer := compile(t, eventschema.Events.Producer()), compile(t, eventschema.Events.Consumer())
	e := plainToolResult()
	data, err := e.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string][2]string{
		"new field":          {`"agent_id":null`, `"agent_id":null,"future":{}`},
		"new field of usage": {`"reasoning":0`, `"reasoning":0,"future":1`},
		"new source":         {`"source":"codex"`, `"source":"future"`},
		"new event type":     {`"event_type":"tool_result"`, `"event_type":"future"`},
		"new role":           {`"role":"tool"`, `"role":"future"`},
		"new file op":        {`"op":"read"`, `"op":"future"`},
		"new origin":         {`"origin":"injected"`, `"origin":"future"`},
	} {
		changed := []byte(strings.Replace(string(data), change[0], change[1], 1))
		if bytes.Equal(changed, data) {
			t.Fatalf("%s changes nothing", name)
		}
		if check(producer, changed) == nil {
			t.Errorf("%s: a producer may write it", name)
		}
		if err := check(consumer, changed); err != nil {
			t.Errorf("%s: a consumer may not read it: %v", name, err)
		}
		if _, err := DecodeAgentEvent(changed); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, change := range map[string][2]string{
		"missing field": {`"agent_id":null,`, ``},
		"wrong type":    {`"tool_exit_code":0`, `"tool_exit_code":"0"`},
		"wrong version": {`agtrace.event.v1`, `agtrace.event.v2`},
	} {
		if check(consumer, []byte(strings.Replace(string(data), change[0], change[1], 1))) == nil {
			t.Errorf("%s: a consumer may read it", name)
		}
	}
	if !bytes.Contains(eventschema.Events.Consumer(), []byte(`"$id": "`+DataSchema+`:consumer"`)) {
		t.Error("the schemas of consumer and producer have the same id")
	}
}
