// Package schema holds the JSON Schema (2020-12) of the event agtrace.event.v1, and a helper
// that compiles it. It is a package of its own so that an importer of envelopes does not
// bring a JSON Schema compiler along.
//
// Start with [Consumer] to check what a program reads, with [Producer] to check what a
// program writes. The document agtrace.event.v1.json lies beside this file; a test of package
// envelopes holds it to the fields, enums and bounds of AgentEventV1.
package schema

import (
	"bytes"
	_ "embed" // the document
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

//go:embed agtrace.event.v1.json
var document string

// Producer returns the schema that a producer must meet: no other fields, no other values of
// enums, the role table. The 29 fields of the event and sequence are required. Its $id is
// envelopes.DataSchema.
//
// Three rules of AgentEventV1.Validate are beyond JSON Schema: ids are bounded in bytes,
// tokens_total is the sum of usage, and an event does not supersede itself.
func Producer() []byte { return []byte(document) }

// Consumer returns the schema that a consumer should apply. Version 1 of the event may gain
// fields and values of enums, so this schema accepts both. Its $id is that of [Producer]
// followed by ":consumer".
func Consumer() []byte {
	var out bytes.Buffer
	encoder := jsontext.NewEncoder(&out, jsontext.WithIndent("  "))
	if err := openSchema(encoder, jsontext.NewDecoder(bytes.NewReader(Producer()))); err != nil {
		panic(err) // the document is part of the program
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
				if token, err = copyID(encoder, decoder); err != nil {
					return err
				}
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

// copyID writes the name $id and returns its value for the consumer's schema.
func copyID(encoder *jsontext.Encoder, decoder *jsontext.Decoder) (jsontext.Token, error) {
	id, err := decoder.ReadToken()
	if err != nil {
		return jsontext.Token{}, err
	}
	value := jsontext.String(id.String() + ":consumer")
	return value, encoder.WriteToken(jsontext.String("$id"))
}

// Compile compiles a JSON Schema document. It never loads another document: a reference out
// of this one is an error. [jsonschema.UnmarshalJSON] reads an instance for
// [jsonschema.Schema.Validate].
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
