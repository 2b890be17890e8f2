package schema

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// Compile compiles a JSON Schema document. A reference to another document is an error. Decode an instance for
// [jsonschema.Schema.Validate] with [jsonschema.UnmarshalJSON].
func Compile(document []byte) (*jsonschema.Schema, error) {
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		return nil, fmt.Errorf("read schema: %w", err)
	}
	const location = "tributary:///schema" // the base URI of a document without $id
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.AssertFormat()
	compiler.UseLoader(noLoader{})
	if err := compiler.AddResource(location, parsed); err != nil {
		return nil, fmt.Errorf("add schema: %w", err)
	}
	schema, err := compiler.Compile(location)
	if err != nil {
		return nil, fmt.Errorf("compile schema: %w", err)
	}
	return schema, nil
}

// noLoader refuses to load other documents.
type noLoader struct{}

// Load always fails.
func (noLoader) Load(string) (any, error) {
	return nil, errors.New("schemas outside the document are not loaded")
}

// Violation is a place where a document breaks its schema. Of the document, it repeats only field names.
type Violation struct {
	Pointer string `json:"pointer"` // JSON Pointer into the document
	Reason  string `json:"reason"`
}

// Validator checks documents against a schema. It is safe for concurrent use.
type Validator struct{ schema *jsonschema.Schema }

// NewValidator compiles a schema: see [Compile].
func NewValidator(document []byte) (*Validator, error) {
	compiled, err := Compile(document)
	if err != nil {
		return nil, err
	}
	return &Validator{compiled}, nil
}

// Check returns all violations of a document, ordered by pointer; none if it is valid. A document that is not strict
// JSON (UTF-8, unique names in each object) is one violation.
func (v *Validator) Check(document []byte) []Violation {
	if !jsontext.Value(document).IsValid() {
		return []Violation{{"", "is not strict JSON: one value in UTF-8, no name twice in one object"}}
	}
	instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		return []Violation{{"", "is not JSON"}}
	}
	invalid, ok := errors.AsType[*jsonschema.ValidationError](v.schema.Validate(instance))
	if !ok {
		return nil
	}
	found := violations(invalid)
	slices.SortFunc(found, func(a, b Violation) int {
		return cmp.Or(strings.Compare(a.Pointer, b.Pointer), strings.Compare(a.Reason, b.Reason))
	})
	return slices.Compact(found)
}

// violations returns the leaves of an error.
func violations(e *jsonschema.ValidationError) []Violation {
	if _, isAny := e.ErrorKind.(*kind.AnyOf); isAny {
		return violationsOfAny(e)
	}
	if unknown, ok := e.ErrorKind.(*kind.AdditionalProperties); ok {
		found := make([]Violation, len(unknown.Properties))
		for i, name := range unknown.Properties {
			found[i] = Violation{pointer(e.InstanceLocation) + pointer([]string{name}), "is an unknown field"}
		}
		return found
	}
	if len(e.Causes) == 0 {
		return []Violation{{pointer(e.InstanceLocation), reason(e.ErrorKind)}}
	}
	var found []Violation
	for _, cause := range e.Causes {
		found = append(found, violations(cause)...)
	}
	return found
}

// violationsOfAny returns the violations of the alternative whose type fits the document. If none fits, it returns
// the types wanted by all alternatives.
func violationsOfAny(e *jsonschema.ValidationError) []Violation {
	var wanted []string
	var got string
	for _, alternative := range e.Causes {
		leaf := alternative
		for len(leaf.Causes) == 1 {
			leaf = leaf.Causes[0]
		}
		t, ofType := leaf.ErrorKind.(*kind.Type)
		if !ofType || len(leaf.InstanceLocation) != len(e.InstanceLocation) {
			return violations(alternative)
		}
		got, wanted = t.Got, append(wanted, t.Want...)
	}
	return []Violation{{pointer(e.InstanceLocation), reason(&kind.Type{Got: got, Want: wanted})}}
}

// pointer returns the JSON Pointer of a place.
func pointer(tokens []string) string {
	var p jsontext.Pointer
	for _, token := range tokens {
		p = p.AppendToken(token)
	}
	return string(p)
}

// reason says what a schema wants, without the value that violates it.
func reason(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return "is " + k.Got + ", want " + strings.Join(k.Want, " or ")
	case *kind.Required:
		return "lacks " + quotedList(k.Missing)
	case *kind.FalseSchema:
		return "is not allowed here"
	case *kind.Enum:
		return "is none of " + jsonList(k.Want)
	case *kind.Const:
		return "is not " + jsonList([]any{k.Want})
	case *kind.Pattern:
		return "does not match " + k.Want
	case *kind.Format:
		return "is no " + k.Want
	case *kind.MinLength:
		return fmt.Sprintf("has %d characters, want %d or more", k.Got, k.Want)
	case *kind.MaxLength:
		return fmt.Sprintf("has %d characters, want %d or fewer", k.Got, k.Want)
	case *kind.MinItems:
		return fmt.Sprintf("has %d items, want %d or more", k.Got, k.Want)
	case *kind.MaxItems:
		return fmt.Sprintf("has %d items, want %d or fewer", k.Got, k.Want)
	case *kind.Minimum:
		return "is less than " + k.Want.RatString()
	case *kind.Maximum:
		return "is more than " + k.Want.RatString()
	default:
		return "breaks the rule " + strings.Join(k.KeywordPath(), "/")
	}
}

// quotedList formats field names as JSON.
func quotedList(names []string) string {
	slices.Sort(names)
	return jsonList(names)
}

// jsonList formats values of a schema as JSON.
func jsonList[T any](values []T) string {
	out := make([]string, len(values))
	for i, v := range values {
		if number, ok := any(v).(fmt.Stringer); ok { // in the spelling of the schema
			out[i] = number.String()
			continue
		}
		b, _ := json.Marshal(v) // was JSON in the schema
		out[i] = string(b)
	}
	return strings.Join(out, ", ")
}
