package envelopes

import (
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
