package envelopes

import (
	"errors"
	"strings"
	"testing"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// plainProvenance is a provenance with every field set.
func plainProvenance() Provenance {
	return Provenance{
		Generation: "v1", Partition: 7, RawStream: "RAW", RawSequence: 1 << 40,
		Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Tracestate: "vendor=a b",
	}
}

// attributesOf returns the attributes of a CloudEvent by their names.
func attributesOf(t *testing.T, ce event.Event) map[string]string {
	t.Helper()
	attributes, err := cloudEventAttributes(ce)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, a := range attributes {
		got[a.name()] = a.value
	}
	return got
}

func TestCloudEventHasTheAttributesOfItsEvent(t *testing.T) {
	t.Parallel()
	e := plainToolResult()
	e.EventID, e.SessionID = "\u00a0call_x\nfc_y 100%", "a/b c?é\ufffe "
	ce, err := e.CloudEvent(plainProvenance())
	if err != nil {
		t.Fatal(err)
	}
	if err := ce.Validate(); err != nil {
		t.Errorf("the library's own check: %v", err)
	}
	want := map[string]string{
		"specversion": "1.0", "type": "agtrace.event.v1.tool_result",
		"id": "%C2%A0call_x%0Afc_y 100%25", "source": "/v1/codex/a%2Fb%20c%3F%C3%A9%EF%BF%BE%20",
		"subject": "a/b c?é%EF%BF%BE%20", "sessionid": "a/b c?é%EF%BF%BE%20", "partitionkey": "a/b c?é%EF%BF%BE%20",
		"time": "2025-11-26T12:51:28.09Z", "datacontenttype": "application/json", "dataschema": "urn:agtrace:event:v1",
		"sequence": "00000000000000000013", "generation": "v1", "partition": "7", "rawstream": "RAW", "rawsequence": "1099511627776",
		"model": "gpt-5-codex", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "vendor=a b",
	}
	if diff := cmp.Diff(want, attributesOf(t, ce)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if ce.Extensions()["partition"] != int32(7) {
		t.Errorf("partition is %T", ce.Extensions()["partition"])
	}
	data, err := e.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	if string(ce.Data()) != string(data) || ce.DataBase64 {
		t.Errorf("data is not the event in JSON: %s", ce.Data())
	}
}

func TestCloudEventOmitsUnknownAttributes(t *testing.T) {
	t.Parallel()
	e := plainUserMessage()
	ce, err := e.CloudEvent(Provenance{Generation: "v1", Partition: -1, Traceparent: "00-\n", Tracestate: "a=b"})
	if err != nil {
		t.Fatal(err)
	}
	got := attributesOf(t, ce)
	for _, name := range []string{"partition", "rawstream", "rawsequence", "model", "traceparent", "tracestate"} {
		if value, ok := got[name]; ok {
			t.Errorf("%s is %q", name, value)
		}
	}
	e.Model = new(strings.Repeat("m", maxModelBytes+1))
	p := plainProvenance()
	p.Tracestate = strings.Repeat("x", maxTraceBytes+1)
	ce, err = e.CloudEvent(p)
	if err != nil {
		t.Fatal(err)
	}
	got = attributesOf(t, ce)
	for _, name := range []string{"model", "tracestate"} {
		if _, ok := got[name]; ok {
			t.Errorf("%s does not fit a header", name)
		}
	}
	if got["traceparent"] != p.Traceparent {
		t.Errorf("traceparent is %q", got["traceparent"])
	}
}

func TestCloudEventRejectsInvalidEvents(t *testing.T) {
	t.Parallel()
	e := plainUserMessage()
	if _, err := e.CloudEvent(Provenance{Generation: "current"}); !errors.Is(err, errInvalidSubject) {
		t.Errorf("generation: %v", err)
	}
	e.Raw = []byte("{")
	if _, err := e.CloudEvent(plainProvenance()); !errors.Is(err, ErrInvalidEvent) {
		t.Errorf("raw: %v", err)
	}
	e.TS = "yesterday"
	if _, err := e.CloudEvent(plainProvenance()); !errors.Is(err, ErrInvalidEvent) {
		t.Errorf("ts: %v", err)
	}
}

func TestFromCloudEventRejectsContradictions(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*event.Event)
		want   error
	}{
		"nothing":              {func(ce *event.Event) { *ce = event.Event{} }, ErrInvalidCloudEvent},
		"old specversion":      {func(ce *event.Event) { ce.SetSpecVersion("0.3") }, ErrInvalidCloudEvent},
		"type of others":       {func(ce *event.Event) { ce.SetType("com.example") }, ErrInvalidCloudEvent},
		"type of another kind": {func(ce *event.Event) { ce.SetType("agtrace.event.v1.tool_call") }, ErrInvalidCloudEvent},
		"another id":           {func(ce *event.Event) { ce.SetID("x") }, ErrInvalidCloudEvent},
		"another subject":      {func(ce *event.Event) { ce.SetSubject("x") }, ErrInvalidCloudEvent},
		"no subject":           {func(ce *event.Event) { ce.SetSubject("") }, ErrInvalidCloudEvent},
		"another source":       {func(ce *event.Event) { ce.SetSource("/v2/codex/s") }, ErrInvalidCloudEvent},
		"another sequence":     {func(ce *event.Event) { ce.SetExtension("sequence", "00000000000000000014") }, ErrInvalidCloudEvent},
		"no number":            {func(ce *event.Event) { ce.SetExtension("rawsequence", "x") }, ErrInvalidCloudEvent},
		"negative partition":   {func(ce *event.Event) { ce.SetExtension("partition", -1) }, ErrInvalidCloudEvent},
		"other data":           {func(ce *event.Event) { ce.SetDataContentType("text/plain") }, ErrInvalidCloudEvent},
		"no data":              {func(ce *event.Event) { ce.DataEncoded = nil }, ErrInvalidEvent},
		"broken data":          {func(ce *event.Event) { ce.DataEncoded = []byte(`{"s3cr3t"`) }, ErrInvalidEvent},
	} {
		e := plainToolResult()
		ce, err := e.CloudEvent(plainProvenance())
		if err != nil {
			t.Fatal(err)
		}
		test.change(&ce)
		got, p, err := FromCloudEvent(ce)
		if !errors.Is(err, test.want) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v", name, err)
		}
		if got.EventID != "" || p != (Provenance{}) {
			t.Errorf("%s: an error comes with %+v, %+v", name, got, p)
		}
	}
}

func TestEventSurvivesCloudEvent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e, p := anyEvent().Draw(t, "event"), anyProvenance().Draw(t, "provenance")
		ce, err := e.CloudEvent(p)
		if err != nil {
			t.Fatal(err)
		}
		if err := ce.Validate(); err != nil {
			t.Fatal(err)
		}
		if _, err := cloudEventAttributes(ce); err != nil {
			t.Fatal(err)
		}
		gotEvent, gotProvenance, err := FromCloudEvent(ce)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(e, gotEvent); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(p, gotProvenance); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

func TestSourceAndIDOfACloudEventAreUnique(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		key := func(label string) (AgentEventV1, string) {
			e := plainUserMessage()
			e.SessionID, e.EventID = anyID().Draw(t, label+" session"), anyID().Draw(t, label+" event")
			ce, err := e.CloudEvent(plainProvenance())
			if err != nil {
				t.Fatal(err)
			}
			return e, ce.Source() + "\n" + ce.ID()
		}
		a, keyA := key("a")
		b, keyB := key("b")
		if same := a.SessionID == b.SessionID && a.EventID == b.EventID; (keyA == keyB) != same {
			t.Fatalf("%q and %q", keyA, keyB)
		}
	})
}
