package envelopes

import (
	"bytes"
	_ "embed" // the schema
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

//go:embed schema/agtrace.event.v1.json
var eventSchema string

// ProducerSchema returns the JSON Schema (2020-12) of AgentEventV1 as a producer must
// meet it: no other fields, no other values of enums, the role table of spec section
// 4.1. Required are the 29 fields of the spec and sequence. Its $id is [DataSchema].
//
// Three rules of [AgentEventV1.Validate] are beyond JSON Schema: ids are bounded in
// bytes, tokens_total is the sum of usage, and an event does not supersede itself.
func ProducerSchema() []byte { return []byte(eventSchema) }

// ConsumerSchema returns the schema as a consumer should apply it: spec section 6 allows
// new fields and new values of enums in v1, so this view accepts both. Its $id is that
// of the producer's view with ":consumer".
func ConsumerSchema() []byte {
	var out bytes.Buffer
	encoder := jsontext.NewEncoder(&out, jsontext.WithIndent("  "))
	if err := openSchema(encoder, jsontext.NewDecoder(bytes.NewReader(ProducerSchema()))); err != nil {
		panic(err) // the schema is part of the program
	}
	return out.Bytes()
}

// openSchema copies a schema without the keywords that close it.
func openSchema(encoder *jsontext.Encoder, decoder *jsontext.Decoder) error {
	for {
		token, err := decoder.ReadToken()
		if err != nil {
			return err
		}
		kind, length := decoder.StackIndex(decoder.StackDepth())
		if isName := kind == jsontext.KindBeginObject && length%2 == 1; isName {
			switch token.String() {
			case "additionalProperties", "enum":
				if err := decoder.SkipValue(); err != nil {
					return err
				}
				continue
			case "$id":
				if err := decoder.SkipValue(); err != nil {
					return err
				}
				if err := encoder.WriteToken(jsontext.String("$id")); err != nil {
					return err
				}
				token = jsontext.String(DataSchema + ":consumer")
			}
		}
		if err := encoder.WriteToken(token); err != nil {
			return err
		}
		if decoder.StackDepth() == 0 {
			return nil
		}
	}
}

// CompileSchema makes a JSON Schema document ready to validate with. It never loads
// another document: a reference out of this one is an error.
//
// An instance for [jsonschema.Schema.Validate] is read by [jsonschema.UnmarshalJSON].
func CompileSchema(document []byte) (*jsonschema.Schema, error) {
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		return nil, fmt.Errorf("read schema: %w", err)
	}
	const location = "tributary:///schema" // where a document without $id is
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

// noLoader refuses to load what a schema refers to.
type noLoader struct{}

// Load always fails.
func (noLoader) Load(string) (any, error) {
	return nil, errors.New("schemas outside the document are not loaded")
}
