package schema

import (
	"bytes"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

// holding is the kind of value of a keyword that has schemas.
type holding int

const (
	oneSchema holding = iota + 1
	listOfSchemas
	mapOfSchemas
)

// holds are the keywords whose schemas [open] opens. if and not are not among them: when opened, they would match
// more documents and so refuse more.
var holds = map[string]holding{
	"items": oneSchema, "additionalProperties": oneSchema, "unevaluatedProperties": oneSchema, "contains": oneSchema,
	"propertyNames": oneSchema, "then": oneSchema, "else": oneSchema,
	"allOf": listOfSchemas, "anyOf": listOfSchemas, "oneOf": listOfSchemas, "prefixItems": listOfSchemas,
	"properties": mapOfSchemas, "patternProperties": mapOfSchemas, "dependentSchemas": mapOfSchemas, "$defs": mapOfSchemas,
}

// closing are the keywords that refuse unknown fields if they are false.
var closing = map[string]bool{"additionalProperties": true, "unevaluatedProperties": true}

// open returns the consumer's view of a schema: it accepts unknown fields and unknown enum values, because later
// producers of the same version may write them. It removes additionalProperties and unevaluatedProperties if they are
// false, and turns enum values into examples. Conditions (if, not) stay. ":consumer" is appended to the $id.
func open(document []byte) ([]byte, error) {
	var out bytes.Buffer
	o := opener{jsontext.NewDecoder(bytes.NewReader(document)), jsontext.NewEncoder(&out, jsontext.WithIndent("  "))}
	if err := o.schema(); err != nil {
		return nil, fmt.Errorf("read schema: %w", err)
	}
	return out.Bytes(), nil
}

// opener copies a schema without the keywords that close it.
type opener struct {
	in  *jsontext.Decoder
	out *jsontext.Encoder
}

// schema copies one schema.
func (o opener) schema() error {
	return o.members(func(name string) error {
		if closing[name] && o.in.PeekKind() == jsontext.KindFalse {
			return o.in.SkipValue()
		}
		switch holds[name] {
		case oneSchema:
			return o.named(name, o.schema)
		case listOfSchemas:
			return o.named(name, o.list)
		case mapOfSchemas:
			return o.named(name, func() error {
				return o.members(func(name string) error { return o.named(name, o.schema) })
			})
		}
		value, err := o.in.ReadValue()
		if err != nil {
			return err
		}
		switch {
		case name == "enum":
			name = "examples"
		case name == "$id" && value.Kind() == jsontext.KindString:
			value = append(value[:len(value)-1:len(value)-1], `:consumer"`...)
		}
		return o.named(name, func() error { return o.out.WriteValue(value) })
	})
}

// members copies an object; member copies the value of a name, and the name. It copies any other value unchanged.
func (o opener) members(member func(name string) error) error {
	if o.in.PeekKind() != jsontext.KindBeginObject {
		return o.value()
	}
	for {
		token, err := o.in.ReadToken()
		if err != nil {
			return err
		}
		if token.Kind() == jsontext.KindString {
			if err := member(token.String()); err != nil {
				return err
			}
			continue
		}
		if err := o.out.WriteToken(token); err != nil || token.Kind() == jsontext.KindEndObject {
			return err
		}
	}
}

// list copies an array of schemas.
func (o opener) list() error {
	if o.in.PeekKind() != jsontext.KindBeginArray {
		return o.value()
	}
	for {
		if kind := o.in.PeekKind(); kind == jsontext.KindBeginObject {
			if err := o.schema(); err != nil {
				return err
			}
			continue
		}
		token, err := o.in.ReadToken()
		if err != nil {
			return err
		}
		if err := o.out.WriteToken(token); err != nil || token.Kind() == jsontext.KindEndArray {
			return err
		}
	}
}

// named writes a name, then its value.
func (o opener) named(name string, value func() error) error {
	if err := o.out.WriteToken(jsontext.String(name)); err != nil {
		return err
	}
	return value()
}

// value copies a value as it is.
func (o opener) value() error {
	value, err := o.in.ReadValue()
	if err != nil {
		return err
	}
	return o.out.WriteValue(value)
}
