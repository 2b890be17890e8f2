package envelopes

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// benchEvents returns events of about 2 and 64 KB of JSON: one half text, one half raw.
func benchEvents(tb testing.TB) map[string]*AgentEventV1 {
	tb.Helper()
	events := map[string]*AgentEventV1{}
	for size, lines := range map[string]int{"2k": 12, "64k": 680} {
		e := plainToolResult()
		e.Text = new(strings.Repeat("ok  \ttributary/envelopes\t0.038s <cached>\n", lines))
		e.Raw = jsontext.Value(`{"type":"response_item","payload":{"type":"function_call_output","call_id":"call_7","output":"` +
			strings.Repeat(`ok  \ttributary/envelopes\t0.038s <cached>\n`, lines) + `"}}`)
		events[size] = &e
	}
	return events
}

// BenchmarkValidate checks events of both sizes.
//
//	go test ./envelopes -run '^$' -bench Validate -count 6
func BenchmarkValidate(b *testing.B) {
	for size, e := range benchEvents(b) {
		b.Run("size="+size, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := e.Validate(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkJSON writes and reads events.
//
//	go test ./envelopes -run '^$' -bench JSON -count 6
func BenchmarkJSON(b *testing.B) {
	for size, e := range benchEvents(b) {
		data, err := e.AppendJSON(nil)
		if err != nil {
			b.Fatal(err)
		}
		b.Run("op=append/size="+size, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			dst := make([]byte, 0, len(data))
			for b.Loop() {
				if _, err := e.AppendJSON(dst); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("op=decode/size="+size, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := DecodeAgentEvent(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkNATS writes and reads messages, including the JSON of the event. Only via=cloudevent
// goes through an event of the CloudEvents library; the pipeline uses via=event.
//
//	go test ./envelopes -run '^$' -bench NATS -count 6
func BenchmarkNATS(b *testing.B) {
	for size, e := range benchEvents(b) {
		for _, mode := range []Mode{Binary, Structured} {
			header, data, err := EncodeEvent(e, plainProvenance(), mode)
			if err != nil {
				b.Fatal(err)
			}
			suffix := "/mode=" + string(mode) + "/size=" + size
			b.Run("op=encode/via=event"+suffix, func(b *testing.B) {
				b.SetBytes(int64(len(data)))
				b.ReportAllocs()
				for b.Loop() {
					if _, _, err := EncodeEvent(e, plainProvenance(), mode); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run("op=encode/via=cloudevent"+suffix, func(b *testing.B) {
				b.SetBytes(int64(len(data)))
				b.ReportAllocs()
				for b.Loop() {
					ce, err := e.CloudEvent(plainProvenance())
					if err != nil {
						b.Fatal(err)
					}
					if _, _, err := Encode(ce, mode); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run("op=decode"+suffix, func(b *testing.B) {
				b.SetBytes(int64(len(data)))
				b.ReportAllocs()
				for b.Loop() {
					if _, _, err := DecodeEvent(header, data); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkSubject writes and reads subjects of events.
//
//	go test ./envelopes -run '^$' -bench Subject -count 6
func BenchmarkSubject(b *testing.B) {
	e := plainToolResult()
	for name, session := range map[string]string{"plain": e.SessionID, "encoded": "run 1/é", "digest": strings.Repeat("é", 100)} {
		e.SessionID = session
		subject := EventSubject("v1", &e)
		b.Run("op=write/id="+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				EventSubject("v1", &e)
			}
		})
		b.Run("op=parse/id="+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ParseEventSubject(subject); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
