package normalizerstest

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"tributary/envelopes/schema"
)

var compileSchema = sync.OnceValues(func() (*jsonschema.Schema, error) {
	return schema.Compile(schema.Events.Producer())
})

// schemaError validates the JSON of an event against the producers' schema.
func schemaError(event []byte) error {
	compiled, err := compileSchema()
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(event))
	if err != nil {
		return fmt.Errorf("no JSON: %w", err)
	}
	return compiled.Validate(v)
}
