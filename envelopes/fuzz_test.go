package envelopes

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzDecode checks the readers: they never panic, and their result is the same after it was
// written and read again. The first argument is the Content-Type. The payload is also read as
// the JSON of an event.
func FuzzDecode(f *testing.F) {
	for _, e := range []AgentEventV1{plainUserMessage(), plainToolResult()} {
		for _, mode := range []Mode{Binary, Structured} {
			header, data, err := EncodeEvent(&e, plainProvenance(), mode)
			if err != nil {
				f.Fatal(err)
			}
			contentType := ""
			if mode == Structured {
				contentType = header[headerContentType][0]
			}
			f.Add(contentType, "id", e.EventID, data)
			f.Add(contentType, "X", "%41\"", data)
		}
	}
	f.Add("application/cloudevents+json", "", "", []byte(`{"specversion":"1.0","id":"1","source":"a?b#c","type":"t","time":"2025-01-01T00:00:00+01:00","x":1,"y":true,"datacontenttype":"text/plain","data":"\u00e9"}`))
	f.Add("text/plain", "source", "//h/%7e", []byte("data"))
	f.Add("application/json", "datacontenttype", "text/plain", []byte("\xff"))
	f.Add("", "0", "0", []byte(" \"x\"\n"))
	f.Fuzz(func(t *testing.T, contentType, name, value string, payload []byte) {
		if e, err := DecodeAgentEvent(payload); err == nil {
			first, err := e.AppendJSON(nil)
			if err != nil {
				t.Fatalf("a decoded event cannot be encoded: %v", err)
			}
			again, err := DecodeAgentEvent(first)
			if err != nil {
				t.Fatalf("an encoded event cannot be decoded: %v", err)
			}
			second, err := again.AppendJSON(nil)
			if err != nil || string(first) != string(second) {
				t.Fatalf("%v\n%s\n%s", err, first, second)
			}
		}

		header := map[string][]string{"ce-specversion": {"1.0"}, "ce-id": {"1"}, "ce-source": {"/s"}, "ce-type": {"t"}}
		header["ce-"+name] = []string{value}
		if contentType != "" {
			header["Content-Type"] = []string{contentType}
		}
		ce, err := Decode(header, payload)
		if err != nil {
			return
		}
		for _, mode := range []Mode{Binary, Structured} {
			header, data, err := Encode(ce, mode)
			if err != nil {
				t.Fatalf("%s: a decoded message cannot be encoded: %v", mode, err)
			}
			got, err := Decode(header, data)
			if err != nil {
				t.Fatalf("%s: an encoded message cannot be decoded: %v", mode, err)
			}
			if mode == Structured { // headers do not hold the types of extensions
				sameCloudEvent(t, ce, got)
			}
			again, data2, err := Encode(got, mode)
			if diff := cmp.Diff(header, again); err != nil || diff != "" || string(data) != string(data2) {
				t.Fatalf("%s: %v\n%s", mode, err, diff)
			}
		}
		e, p, err := FromCloudEvent(ce)
		if err != nil {
			return
		}
		if CheckGeneration(p.Generation) != nil {
			return // of another producer
		}
		again, err := e.CloudEvent(p)
		if err != nil {
			if _, tsErr := e.Timestamp(); tsErr != nil {
				return
			}
			t.Fatalf("a decoded event cannot become a CloudEvent: %v", err)
		}
		if again.ID() != ce.ID() || again.Source() != ce.Source() || again.Subject() != ce.Subject() || again.Type() != ce.Type() {
			t.Fatalf("another event: %s %s", again.Source(), again.ID())
		}
	})
}

// FuzzToken checks the codec of tokens: every id survives it, and every accepted token is the
// token of its id.
func FuzzToken(f *testing.F) {
	for _, s := range []string{"", "a", "a.b", "~", "~~", "~Kg", "~Kh", "~~" + "0123456789abcdef", "call_x\nfc_y", "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if id, whole, err := ParseToken(s); err == nil && whole && Token(id) != s {
			t.Fatalf("%q is the token of %q, whose token is %q", s, id, Token(id))
		}
		token := Token(s)
		id, whole, err := ParseToken(token)
		if err == nil && whole && id != s {
			t.Fatalf("%q comes back as %q", s, id)
		}
		if address, err := ParseRawSubject("raw.0." + string(Codex) + "." + token); err == nil && address.Token != token {
			t.Fatalf("%q in a subject comes back as %q", token, address.Token)
		}
		if got, err := DecodeHeaderValue(EncodeHeaderValue(s)); err == nil && got != s {
			t.Fatalf("%q in a header comes back as %q", s, got)
		}
	})
}
