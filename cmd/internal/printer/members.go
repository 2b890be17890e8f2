package printer

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
)

// Members selects the members of events in JSON. The zero value selects all.
type Members struct {
	only []string // only these, in this order; null if the event lacks one
	but  string   // all except this one
}

// NewMembers returns the filter of --fields and --no-raw.
func NewMembers(fields []string, noRaw bool) (Members, error) {
	known := EventFields()
	for i, name := range fields {
		switch {
		case !slices.Contains(known, name):
			return Members{}, fmt.Errorf("--fields %q: write names among %s", name, strings.Join(known, ", "))
		case slices.Contains(fields[:i], name):
			return Members{}, fmt.Errorf("--fields: %s is named twice", name)
		case noRaw && name == "raw":
			return Members{}, fmt.Errorf("pass either --no-raw or raw among --fields")
		}
	}
	f := Members{only: fields}
	if noRaw {
		f.but = "raw"
	}
	return f, nil
}

// EventFields lists the members of an event in JSON.
func EventFields() []string {
	var names []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[envelopes.AgentEventV1]()) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && len(f.Index) == 1 {
			names = append(names, name)
		}
	}
	return names
}

// apply returns a line with the selected members. Their spelling does not change.
func (f *Members) apply(line []byte) ([]byte, error) {
	if f.only == nil && f.but == "" {
		return line, nil
	}
	values := map[string]jsontext.Value{}
	names := f.only
	d := jsontext.NewDecoder(bytes.NewReader(line))
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	for d.PeekKind() != jsontext.KindEndObject {
		token, err := d.ReadToken()
		if err != nil {
			return nil, err
		}
		name := token.String()
		value, err := d.ReadValue()
		if err != nil {
			return nil, err
		}
		values[name] = value.Clone()
		if f.only == nil && name != f.but {
			names = append(names, name)
		}
	}
	out := []byte{'{'}
	for i, name := range names {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, '"'), name...), `":`...)
		if value, ok := values[name]; ok {
			out = append(out, value...)
		} else {
			out = append(out, "null"...)
		}
	}
	return append(out, '}'), nil
}
