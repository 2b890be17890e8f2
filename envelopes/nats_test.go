package envelopes

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// sameCloudEvent compares CloudEvents by their attributes and data.
func sameCloudEvent(t interface {
	Helper()
	Fatalf(string, ...any)
}, want, got event.Event,
) {
	t.Helper()
	view := func(ce event.Event) map[string]any {
		m := map[string]any{
			"specversion": ce.SpecVersion(), "id": ce.ID(), "source": ce.Source(), "type": ce.Type(), "subject": ce.Subject(),
			"time": ce.Time().UTC(), "datacontenttype": ce.DataContentType(), "dataschema": ce.DataSchema(), "data": string(ce.Data()),
		}
		if isJSONData(ce.DataContentType()) { // white space around a value is no part of it
			m["data"] = strings.Trim(string(ce.Data()), " \t\r\n")
		}
		maps.Copy(m, ce.Extensions())
		return m
	}
	if diff := cmp.Diff(view(want), view(got)); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
}

func TestBinaryMessageHasTheAttributesAsHeaders(t *testing.T) {
	t.Parallel()
	e := plainToolResult()
	e.EventID, e.SessionID = "call_x\nfc_y 100%", "é"
	header, data, err := EncodeEvent(&e, plainProvenance(), Binary)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{
		"ce-specversion": {"1.0"}, "ce-type": {"agtrace.event.v1.tool_result"},
		"ce-id": {"call_x%250Afc_y%20100%2525"}, "ce-source": {"/v1/codex/%25C3%25A9"},
		"ce-subject": {"%C3%A9"}, "ce-sessionid": {"%C3%A9"}, "ce-partitionkey": {"%C3%A9"},
		"Content-Type": {"application/json"},
		"ce-time":      {"2025-11-26T12:51:28.09Z"}, "ce-datacontenttype": {"application/json"}, "ce-dataschema": {"urn:agtrace:event:v1"},
		"ce-sequence": {"00000000000000000013"}, "ce-generation": {"v1"}, "ce-partition": {"7"},
		"ce-rawstream": {"RAW"}, "ce-rawsequence": {"1099511627776"}, "ce-model": {"gpt-5-codex"},
		"ce-traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}, "ce-tracestate": {"vendor=a%20b"},
	}
	if diff := cmp.Diff(want, header); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !slices.Equal(keys(t, data), append(append([]string{}, specFields...), additiveFields...)) {
		t.Errorf("the payload is not the event: %s", data)
	}
}

func TestStructuredMessageIsOneDocument(t *testing.T) {
	t.Parallel()
	e := plainUserMessage()
	header, data, err := EncodeEvent(&e, Provenance{Generation: "v1", Partition: 2}, Structured)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string][]string{"Content-Type": {"application/cloudevents+json"}}, header); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	payload, err := e.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"specversion":"1.0","id":"e","source":"/v1/claude_code/s","type":"agtrace.event.v1.user_message","subject":"s",` +
		`"time":"2025-11-26T12:51:28Z","datacontenttype":"application/json","dataschema":"urn:agtrace:event:v1","generation":"v1",` +
		`"partition":2,"partitionkey":"s","sequence":"00000000000000000001","sessionid":"s","data":` + string(payload) + `}`
	if diff := cmp.Diff(want, string(data)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEventSurvivesMessage(t *testing.T) {
	t.Parallel()
	for _, mode := range []Mode{Binary, Structured} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			var used EventHeader // by the events before
			rapid.Check(t, func(t *rapid.T) {
				e, p := anyEvent().Draw(t, "event"), anyProvenance().Draw(t, "provenance")
				header, data, err := EncodeEvent(&e, p, mode)
				if err != nil {
					t.Fatal(err)
				}
				again, _, err := AppendEvent(nil, &used, &e, Checked{}, p, mode)
				if diff := cmp.Diff(header, again); err != nil || diff != "" {
					t.Fatalf("in memory that is used again: %v (-want +got):\n%s", err, diff)
				}
				again["Nats-Batch-Id"] = []string{"of the publisher"}
				size := 0
				for name, values := range header {
					size += len(name) + len(values[0]) + 4
					for _, c := range name + values[0] {
						if c < '!' || c > '~' {
							t.Fatalf("%s: %q", name, values[0])
						}
					}
				}
				if size > 60<<10 {
					t.Fatalf("%d bytes of headers exceed the limit of the broker", size)
				}
				gotEvent, gotProvenance, err := DecodeEvent(header, data)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(e, gotEvent); diff != "" {
					t.Fatalf("(-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(p, gotProvenance); diff != "" {
					t.Fatalf("(-want +got):\n%s", diff)
				}

				// The message of the CloudEvent is the same, and decodes as the same CloudEvent.
				ce, err := e.CloudEvent(p)
				if err != nil {
					t.Fatal(err)
				}
				ceHeader, ceData, err := Encode(ce, mode)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(ceHeader, header); diff != "" || string(ceData) != string(data) {
					t.Fatalf("Encode and EncodeEvent differ:\n%s\n%s\n%s", diff, ceData, data)
				}
				got, err := Decode(header, data)
				if err != nil {
					t.Fatal(err)
				}
				sameCloudEvent(t, ce, got)
			})
		})
	}
}

func TestHeadersOfTheLongestIDsFit(t *testing.T) {
	t.Parallel()
	e := plainToolResult()
	e.SessionID, e.EventID = strings.Repeat("\x01", MaxIDBytes), strings.Repeat("\x01", MaxIDBytes)
	e.Model = new(strings.Repeat("\x01", maxModelBytes))
	p := plainProvenance()
	p.Tracestate = strings.Repeat(" ", maxTraceBytes-1) + "x"
	if err := e.Validate(); err != nil {
		t.Fatal(err)
	}
	header, _, err := EncodeEvent(&e, p, Binary)
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	for name, values := range header {
		size += len(name) + len(values[0]) + 4
	}
	if size > 60<<10 {
		t.Errorf("%d bytes, and the broker allows 64 KiB", size)
	}
}

func TestTheLibraryReadsOurDocuments(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e, p := anyEvent().Draw(t, "event"), anyProvenance().Draw(t, "provenance")
		want, err := e.CloudEvent(p)
		if err != nil {
			t.Fatal(err)
		}
		_, document, err := Encode(want, Structured)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(document, []byte("1e400")) {
			t.Skip("the library reads no number beyond float64")
		}
		var got event.Event
		if err := stdjson.Unmarshal(document, &got); err != nil {
			t.Fatal(err)
		}
		sameCloudEvent(t, want, got)
	})
}

func TestDocumentsOfTheLibraryAreRead(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e, p := anyEvent().Draw(t, "event"), anyProvenance().Draw(t, "provenance")
		want, err := e.CloudEvent(p)
		if err != nil {
			t.Fatal(err)
		}
		document, err := want.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		got, err := Decode(map[string][]string{"Content-Type": {"application/cloudevents+json; charset=UTF-8"}}, document)
		if err != nil {
			t.Fatal(err)
		}
		sameCloudEvent(t, want, got)
	})
}

func TestDataOfOtherKindsSurvives(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(*event.Event) error{
		"none":   func(*event.Event) error { return nil },
		"struct": func(ce *event.Event) error { return ce.SetData("application/json", struct{ A int }{1}) },
		"bytes":  func(ce *event.Event) error { return ce.SetData("application/octet-stream", []byte{0, 1, 255}) },
		"text":   func(ce *event.Event) error { return ce.SetData("text/plain; charset=utf-8", "say \"hi\"\n") },
		"json bytes": func(ce *event.Event) error {
			return ce.SetData("application/json", []byte(`{"a":[1,2]}`))
		},
		"no json at all": func(ce *event.Event) error { return ce.SetData("application/json", []byte(`{"a":`)) },
	} {
		ce := event.New()
		ce.SetID("1")
		ce.SetSource("https://example.com/a?b#c")
		ce.SetType("com.example.type")
		ce.SetTime(time.Date(2025, 1, 2, 3, 4, 5, 6, time.FixedZone("", -3600)))
		ce.SetExtension("flag", true)
		ce.SetExtension("number", 42)
		ce.SetExtension("blob", []byte{1, 2, 3})
		if err := set(&ce); err != nil {
			t.Fatal(err)
		}
		_, document, err := Encode(ce, Structured)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var theirs event.Event
		if err := stdjson.Unmarshal(document, &theirs); err != nil {
			t.Fatalf("%s: the library cannot read %s: %v", name, document, err)
		}
		// In JSON and in headers binary extensions are base64 strings.
		ce.SetExtension("blob", "AQID")
		sameCloudEvent(t, ce, theirs)

		document, err = ce.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if name != "no json at all" { // the library writes an invalid document
			got, err := Decode(nil, document)
			if err != nil {
				t.Fatalf("%s: we cannot read %s: %v", name, document, err)
			}
			sameCloudEvent(t, ce, got)
		}

		header, data, err := Encode(ce, Binary)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Decode(header, data)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		ce.SetExtension("flag", "true") // headers do not hold types
		ce.SetExtension("number", "42")
		sameCloudEvent(t, ce, got)
	}
}

func TestDecodeReadsMessagesOfOtherProducers(t *testing.T) {
	t.Parallel()
	want := event.New()
	want.SetID("a b%")
	want.SetSource("/s")
	want.SetType("t")
	want.SetSubject("é")
	for name, header := range map[string]map[string][]string{
		"strict":       {"ce-specversion": {"1.0"}, "ce-id": {"a%20b%25"}, "ce-source": {"/s"}, "ce-type": {"t"}, "ce-subject": {"%C3%A9"}},
		"not encoded":  {"ce-specversion": {"1.0"}, "ce-id": {"a b%"}, "ce-source": {"/s"}, "ce-type": {"t"}, "ce-subject": {"é"}},
		"quoted":       {"ce-specversion": {`"1.0"`}, "ce-id": {`"a\ b%25"`}, "ce-source": {`"/s"`}, "ce-type": {"t"}, "ce-subject": {"%c3%a9"}},
		"canonical":    {"Ce-Specversion": {"1.0"}, "Ce-Id": {"a b%"}, "CE-SOURCE": {"/s"}, "cE-tYPE": {"t"}, "Ce-Subject": {"é"}},
		"twice":        {"ce-specversion": {"1.0", "1.0"}, "ce-id": {"a%20b%25"}, "Ce-Id": {"a b%"}, "ce-source": {"/s"}, "ce-type": {"t"}, "ce-subject": {"é"}},
		"with others":  {"ce-specversion": {"1.0"}, "ce-id": {"a b%"}, "ce-source": {"/s"}, "ce-type": {"t"}, "ce-subject": {"é"}, "Nats-Msg-Id": {"1"}, "traceparent": {"x", "y"}},
		"content type": {"ce-specversion": {"1.0"}, "ce-id": {"a b%"}, "ce-source": {"/s"}, "ce-type": {"t"}, "ce-subject": {"é"}, "content-type": {"application/json"}},
	} {
		got, err := Decode(header, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		sameCloudEvent(t, want, got)
	}

	const document = ` { "id":"a b%","source":"/s","type":"t","subject":"é","specversion":"1.0","unset":null,"BAD":null,"data_base64":null } `
	for name, header := range map[string]map[string][]string{
		"no header":    nil,
		"other header": {"Nats-Msg-Id": {"1"}},
		"strict":       {"Content-Type": {"application/cloudevents+json"}},
		"upper case":   {"CONTENT-TYPE": {"Application/CloudEvents+JSON ; charset=UTF-8"}},
		"no format":    {"content-type": {"application/cloudevents"}},
		"and a header": {"content-type": {"application/cloudevents+json"}, "ce-id": {"another"}},
	} {
		got, err := Decode(header, []byte(document))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		sameCloudEvent(t, want, got)
	}
}

func TestDecodeRejectsInvalidMessages(t *testing.T) {
	t.Parallel()
	type header = map[string][]string
	base := func(change func(header)) header {
		h := header{"ce-specversion": {"1.0"}, "ce-id": {"1"}, "ce-source": {"/s"}, "ce-type": {"t"}}
		change(h)
		return h
	}
	for name, h := range map[string]header{
		"no id":                  base(func(h header) { delete(h, "ce-id") }),
		"no specversion":         base(func(h header) { delete(h, "ce-specversion") }),
		"other specversion":      base(func(h header) { h["ce-specversion"] = []string{"0.3"} }),
		"empty id":               base(func(h header) { h["ce-id"] = []string{""} }),
		"empty source":           base(func(h header) { h["ce-source"] = []string{"#"} }),
		"empty subject":          base(func(h header) { h["ce-subject"] = []string{""} }),
		"two spellings":          base(func(h header) { h["Ce-Id"] = []string{"2"} }),
		"two other spellings":    base(func(h header) { h["Ce-X"], h["CE-X"] = []string{"1"}, []string{"s3cr3t"} }),
		"two values":             base(func(h header) { h["ce-id"] = []string{"1", "s3cr3t"} }),
		"two content types":      base(func(h header) { h["Content-Type"], h["content-type"] = []string{"a/b"}, []string{"c/d"} }),
		"invalid UTF-8":          base(func(h header) { h["ce-id"] = []string{"s3cr3t%C0%A0"} }),
		"control character":      base(func(h header) { h["ce-id"] = []string{"s3cr3t%0A"} }),
		"noncharacter":           base(func(h header) { h["ce-x"] = []string{"s3cr3t%EF%BF%BF"} }),
		"name of an attribute":   base(func(h header) { h["ce-s3cr3t_x"] = []string{"1"} }),
		"empty name":             base(func(h header) { h["ce-"] = []string{"1"} }),
		"data as attribute":      base(func(h header) { h["ce-data"] = []string{"1"} }),
		"no time":                base(func(h header) { h["ce-time"] = []string{"s3cr3t"} }),
		"time before the year 0": base(func(h header) { h["ce-time"] = []string{"0000-01-01T00:00:00+01:00"} }),
		"relative dataschema":    base(func(h header) { h["ce-dataschema"] = []string{"s3cr3t"} }),
		"no media type":          base(func(h header) { h["ce-datacontenttype"] = []string{"s3cr3t;;"} }),
		"no URI":                 base(func(h header) { h["ce-source"] = []string{"/s3cr3t%25zz"} }),
		"partition is no number": base(func(h header) { h["ce-partition"] = []string{"s3cr3t"} }),
		"partition in hex":       base(func(h header) { h["ce-partition"] = []string{"007"} }),
		"batch":                  base(func(h header) { h["Content-Type"] = []string{"application/cloudevents-batch+json"} }),
		"other event format":     base(func(h header) { h["Content-Type"] = []string{"application/cloudevents+avro"} }),
	} {
		_, err := Decode(h, []byte(`{}`))
		if !errors.Is(err, ErrInvalidCloudEvent) && !errors.Is(err, errInvalidHeader) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v", name, err)
		}
	}

	const attributes = `"specversion":"1.0","id":"1","source":"/s","type":"t"`
	for name, document := range map[string]string{
		"nothing":             "",
		"array":               "[{" + attributes + "}]",
		"cut off":             "{" + attributes,
		"trailing object":     "{" + attributes + "} {}",
		"trailing garbage":    "{" + attributes + "}s3cr3t",
		"duplicate name":      "{" + attributes + `,"id":"s3cr3t"}`,
		"same name twice":     "{" + attributes + `,"\u0069d":"s3cr3t"}`,
		"duplicate in data":   "{" + attributes + `,"data":{"s3cr3t":1,"s3cr3t":2}}`,
		"other spelling":      "{" + attributes + `,"ID":"s3cr3t"}`,
		"empty name":          "{" + attributes + `,"":"s3cr3t"}`,
		"invalid UTF-8":       "{" + attributes + ",\"x\":\"s3cr3t\xff\"}",
		"lone surrogate":      "{" + attributes + `,"data":"s3cr3t\udc00"}`,
		"object as attribute": "{" + attributes + `,"x":{"s3cr3t":1}}`,
		"fraction":            "{" + attributes + `,"x":1.5}`,
		"large integer":       "{" + attributes + `,"x":2147483648}`,
		"specversion number":  `{"specversion":1.0,"id":"1","source":"/s","type":"t"}`,
		"id is a number":      `{"specversion":"1.0","id":1,"source":"/s","type":"t"}`,
		"id is null":          `{"specversion":"1.0","id":null,"source":"/s","type":"t"}`,
		"data twice":          "{" + attributes + `,"data":"s3cr3t","data_base64":"AA=="}`,
		"no base64":           "{" + attributes + `,"data_base64":"s3cr3t!"}`,
		"base64 number":       "{" + attributes + `,"data_base64":1}`,
		"object as text":      "{" + attributes + `,"datacontenttype":"text/plain","data":{"s3cr3t":1}}`,
		"too deep":            "{" + attributes + `,"data":` + strings.Repeat("[", 130) + strings.Repeat("]", 130) + "}",
	} {
		_, err := Decode(map[string][]string{"Content-Type": {"application/cloudevents+json"}}, []byte(document))
		if !errors.Is(err, ErrInvalidCloudEvent) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestEncodeRejectsInvalidCloudEvents(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*event.Event){
		"nothing":              func(ce *event.Event) { *ce = event.Event{} },
		"old specversion":      func(ce *event.Event) { ce.SetSpecVersion("0.3") },
		"control in id":        func(ce *event.Event) { ce.SetID("s3cr3t\x00x") },
		"invalid UTF-8 in id":  func(ce *event.Event) { ce.SetID("s3cr3t\xff") },
		"control in extension": func(ce *event.Event) { ce.SetExtension("x", "s3cr3t\u0085") },
		"no type":              func(ce *event.Event) { ce.SetType(" ") },
		"large integer":        func(ce *event.Event) { ce.SetExtension("x", int64(1<<40)) },
		"content type":         func(ce *event.Event) { ce.SetDataContentType("s3cr3t;;") },
		"time":                 func(ce *event.Event) { ce.SetTime(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)) },
		"extension name": func(ce *event.Event) {
			ce.Context.(*event.EventContextV1).Extensions = map[string]any{"Bad": "s3cr3t"}
		},
		"relative dataschema": func(ce *event.Event) { ce.SetDataSchema("/s3cr3t") },
		"second id": func(ce *event.Event) {
			ce.Context.(*event.EventContextV1).Extensions = map[string]any{"id": "s3cr3t"}
		},
		"extension type": func(ce *event.Event) {
			ce.Context.(*event.EventContextV1).Extensions = map[string]any{"x": struct{}{}}
		},
	} {
		ce := event.New()
		ce.SetID("1")
		ce.SetSource("/s")
		ce.SetType("t")
		change(&ce)
		if _, _, err := Encode(ce, Binary); !errors.Is(err, ErrInvalidCloudEvent) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v", name, err)
		}
	}
	e := plainUserMessage()
	if _, _, err := EncodeEvent(&e, plainProvenance(), "batch"); !errors.Is(err, ErrInvalidCloudEvent) {
		t.Errorf("mode: %v", err)
	}
}
