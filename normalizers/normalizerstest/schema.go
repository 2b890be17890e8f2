package normalizerstest

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"tributary/envelopes"
)

var compileSchema = sync.OnceValues(func() (*jsonschema.Schema, error) {
	return envelopes.CompileSchema(envelopes.ProducerSchema())
})

// schemaError validates the JSON of an event against the schema that producers meet.
func schemaError(event []byte) error {
	schema, err := compileSchema()
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(event))
	if err != nil {
		return fmt.Errorf("no JSON: %w", err)
	}
	return schema.Validate(v)
}
