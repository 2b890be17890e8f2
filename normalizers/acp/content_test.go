package acp_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tributary/envelopes"
	"tributary/normalizers/normalizerstest"
)

func TestArtifactHasTheContentThatIsNotItsText(t *testing.T) {
	t.Parallel()
	blob := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("\xff", 3<<10)))
	long := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("\xff", 3<<10+1)))
	for part, want := range map[string]*envelopes.FileContent{
		`"content":"words"`: nil,
		`"content":"d29yZHM=","content_encoding":"base64"`: nil,
		`"content":"_","content_encoding":"base64"`:        {Type: "text/plain", Data: new("_")},
		`"content":""`: nil,
		`"content_type":"text/markdown","content":"# A"`:                                  {Type: "text/markdown"},
		`"content_type":"application/json","content":"{}"`:                                {Type: "application/json"},
		`"content_type":"image/png","content_url":"https://example.com/a.png"`:            {Type: "image/png", URL: new("https://example.com/a.png")},
		`"content_type":"image/png","content_encoding":"base64","content":"` + blob + `"`: {Type: "image/png", Data: &blob},
		`"content_type":"image/png","content_encoding":"base64","content":"` + long + `"`: {Type: "image/png"},
		`"content_type":"image/png"`:                                                      {Type: "image/png"},
	} {
		e := normalizerstest.SeedEvents(t, envelopes.ACP, "s.jsonl", normalizerstest.SeedLines(`{"role":"agent/a","parts":[{"name":"f",`+part+`}]}`))[0]
		if diff := cmp.Diff(want, e.Content); diff != "" {
			t.Errorf("%s (-want +got):\n%s", normalizerstest.Clip(part), diff)
		}
	}
}

// A part of a stream is buffered until its message is complete. The state has no bytes of it.
func TestBufferedArtifactHasNoData(t *testing.T) {
	t.Parallel()
	const (
		created   = `{"type":"message.created","message":{"role":"agent/a","parts":[]}}`
		part      = `{"name":"f","content_type":"image/png","content_encoding":"base64","content":"iVBO"}`
		completed = `{"type":"message.completed","message":{"role":"agent/a","parts":[` + part + `]}}`
	)
	for name, test := range map[string]struct {
		last string
		want envelopes.FileContent
	}{
		"a message that ends":         {completed, envelopes.FileContent{Type: "image/png", Data: new("iVBO")}},
		"a message that is cut short": {`{"type":"error","error":{"code":"x"}}`, envelopes.FileContent{Type: "image/png"}},
	} {
		events := normalizerstest.SeedEvents(t, envelopes.ACP, "s.jsonl", normalizerstest.SeedLines(created, `{"type":"message.part","part":`+part+`}`, test.last))
		if diff := cmp.Diff(&test.want, events[0].Content); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
