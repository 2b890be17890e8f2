package envelopes

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestOutlineIsTheEventWithoutItsNativeJSON compares both readers on random events.
func TestOutlineIsTheEventWithoutItsNativeJSON(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e := anyEvent().Draw(t, "event")
		data, err := e.AppendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		want, err := DecodeAgentEvent(data)
		if err != nil {
			t.Fatal(err)
		}
		want.Raw, want.ToolMetadata, want.ToolInput, want.ToolOutput, want.Content, want.MessageMetadata = nil, nil, nil, nil, nil, nil
		if m := want.Metadata; m != nil {
			var extensions map[string]jsontext.Value
			if v, ok := m.Extensions["error"]; ok {
				extensions = map[string]jsontext.Value{"error": v}
			}
			m.Extensions = extensions
		}
		got, err := DecodeOutline(data)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

// TestFastOutlineKnowsEveryField fails when a field of the event has no reader: the fast path would
// leave it out.
func TestFastOutlineKnowsEveryField(t *testing.T) {
	t.Parallel()
	native := []string{"raw", "tool_metadata", "tool_input", "tool_output", "content", "message_metadata"}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[AgentEventV1]()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if (outlineReaders[name] != nil) == slices.Contains(native, name) {
			t.Errorf("%s: it is either native JSON or has a reader", name)
		}
	}
	for size, e := range benchEvents(t) {
		data, err := e.AppendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := readOutline(data); !ok {
			t.Errorf("the event of %s is left to the library", size)
		}
	}
}

// TestOutlineRefusesWhatIsNoEvent covers its errors.
func TestOutlineRefusesWhatIsNoEvent(t *testing.T) {
	t.Parallel()
	for _, data := range []string{``, `[]`, `{"raw":`, `{"sequence":"x"}`, `{} {}`} {
		if _, err := DecodeOutline([]byte(data)); err == nil {
			t.Errorf("%q is read", data)
		}
	}
}

// BenchmarkOutline reads events of both sizes without their native JSON.
//
//	go test ./envelopes -run '^$' -bench 'Outline|JSON' -count 6
func BenchmarkOutline(b *testing.B) {
	for size, e := range benchEvents(b) {
		data, err := e.AppendJSON(nil)
		if err != nil {
			b.Fatal(err)
		}
		b.Run("size="+size, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := DecodeOutline(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
