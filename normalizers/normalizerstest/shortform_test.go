package normalizerstest

import (
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
)

// longEvent has every field set, each free text longer than a line.
func longEvent() envelopes.AgentEventV1 {
	long := strings.Repeat(`"long" = é `, 100)
	e := envelopes.AgentEventV1{
		Raw:             jsontext.Value(`{"a":1}`),
		Metadata:        &envelopes.Metadata{SessionID: new(long), Extensions: map[string]jsontext.Value{"permissionMode": jsontext.Value(`{"x":"` + strings.Repeat("long ", 100) + `"}`)}},
		ToolMetadata:    jsontext.Value(`{"x":"` + strings.Repeat("long ", 100) + `"}`),
		MessageMetadata: jsontext.Value(`[]`),
		ToolInput:       jsontext.Value(`{}`),
		ToolOutput:      &envelopes.ToolOutput{Stdout: &long},
		Content:         &envelopes.FileContent{Type: long},
		Usage:           &envelopes.Usage{Key: long},
		Files:           []envelopes.File{{Path: long, Op: envelopes.OpMove}},
		Edge:            &envelopes.Edge{Host: long, User: long, Labels: map[string]string{"team": long}},
		VCS:             &envelopes.VCS{Repository: long, Branch: long, Commit: long, PullRequest: long},
	}
	v := reflect.ValueOf(&e).Elem()
	for _, f := range v.Fields() {
		switch {
		case f.Kind() == reflect.String:
			f.SetString(long)
		case f.Kind() == reflect.Pointer && f.Type().Elem().Kind() == reflect.String:
			f.Set(reflect.New(f.Type().Elem()))
			f.Elem().SetString(long)
		case f.Kind() == reflect.Pointer && f.Type().Elem().Kind() == reflect.Int64:
			f.Set(reflect.New(f.Type().Elem()))
		}
	}
	e.Source, e.EventType = envelopes.ClaudeCode, envelopes.AssistantMessage // no free text
	return e
}

func TestShortFormHasLinesUnder200Bytes(t *testing.T) {
	t.Parallel()
	for l := range strings.Lines(ShortForms(t, []envelopes.AgentEventV1{longEvent()})[0]) {
		if len(l) >= 200 {
			t.Errorf("a line of %d bytes: %s", len(l), l)
		}
	}
}

func TestShortFormChangesWithEveryField(t *testing.T) {
	t.Parallel()
	v := reflect.TypeFor[envelopes.AgentEventV1]()
	for i := range v.NumField() {
		t.Run(v.Field(i).Name, func(t *testing.T) {
			t.Parallel()
			e := longEvent()
			before := ShortForms(t, []envelopes.AgentEventV1{e})[0]
			switch f := reflect.ValueOf(&e).Elem().Field(i); f.Kind() {
			case reflect.Bool:
				f.SetBool(true)
			case reflect.Uint64:
				f.SetUint(7)
			default:
				f.SetZero()
			}
			if after := ShortForms(t, []envelopes.AgentEventV1{e})[0]; after == before {
				t.Errorf("the short form stays\n%s", after)
			}
		})
	}
}
