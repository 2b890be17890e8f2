package envelopes

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// acpSeedRows are the acceptance rows about the model of ACP messages.
var acpSeedRows = map[string]func(*testing.T){
	"004-1 a citation keeps its kind and all its fields":     seedACPCitation,
	"004-2 a trajectory keeps its objects and their numbers": seedACPTrajectory,
	"004-3 parts are valid and invalid as in the SDK":        seedACPVerdicts,
	"004-4 an absent field and null have the same default":   seedACPDefaults,
	"004-5 a role is user, agent or agent with a name":       seedACPRoles,
	"004-6 a part has content or a URL or neither":           seedACPContent,
	"004-7 input and output of a tool are objects":           seedACPObjects,
	"004-8 a citation counts code points of the text parts":  seedACPRanges,
	"004-9 a citation without a range is an icon":            seedACPIcons,
	"004-20 only plain text parts are joined":                seedACPCompress,
}

// acpVerdicts are parts with the path of the error, empty for a valid part: the rules of the
// SDK, in cases of our own.
var acpVerdicts = map[string]struct{ part, at string }{
	"metadata without kind":           {`{"metadata":{"title":"s3cr3t"}}`, "metadata: discriminator kind missing"},
	"metadata null":                   {`{"metadata":null}`, ""},
	"kind unknown":                    {`{"metadata":{"kind":"s3cr3t"}}`, "metadata.kind"},
	"kind null":                       {`{"metadata":{"kind":null}}`, "metadata.kind"},
	"kind number":                     {`{"metadata":{"kind":3}}`, "metadata.kind"},
	"metadata text":                   {`{"metadata":"s3cr3t"}`, "metadata"},
	"range the wrong way round":       {`{"metadata":{"kind":"citation","start_index":4,"end_index":1}}`, ""},
	"range below zero":                {`{"metadata":{"kind":"citation","end_index":-4}}`, ""},
	"index as text":                   {`{"metadata":{"kind":"citation","end_index":" 12 "}}`, ""},
	"index as text of a whole":        {`{"metadata":{"kind":"citation","end_index":"12.0"}}`, ""},
	"index as text of a part":         {`{"metadata":{"kind":"citation","end_index":"12.5"}}`, "metadata.citation.end_index"},
	"index as text that is no number": {`{"metadata":{"kind":"citation","start_index":"s3cr3t"}}`, "metadata.citation.start_index"},
	"index as float":                  {`{"metadata":{"kind":"citation","start_index":3.0}}`, ""},
	"index as power":                  {`{"metadata":{"kind":"citation","start_index":3e2}}`, ""},
	"index with a fraction":           {`{"metadata":{"kind":"citation","start_index":3.25}}`, "metadata.citation.start_index"},
	"index endless":                   {`{"metadata":{"kind":"citation","start_index":1e999}}`, "metadata.citation.start_index"},
	"index very large":                {`{"metadata":{"kind":"citation","start_index":99999999999999999999}}`, ""},
	"index true":                      {`{"metadata":{"kind":"citation","start_index":true}}`, ""},
	"index an object":                 {`{"metadata":{"kind":"citation","start_index":{}}}`, "metadata.citation.start_index"},
	"url of a citation":               {`{"metadata":{"kind":"citation","url":"any text"}}`, ""},
	"title a number":                  {`{"metadata":{"kind":"citation","title":7}}`, "metadata.citation.title"},
	"citation with more":              {`{"content":"a","metadata":{"kind":"citation","more":1}}`, ""},
	"output text":                     {`{"metadata":{"kind":"trajectory","tool_output":"s3cr3t"}}`, "metadata.trajectory.tool_output"},
	"output list":                     {`{"metadata":{"kind":"trajectory","tool_output":[1]}}`, "metadata.trajectory.tool_output"},
	"input number":                    {`{"metadata":{"kind":"trajectory","tool_input":5}}`, "metadata.trajectory.tool_input"},
	"tool name a list":                {`{"metadata":{"kind":"trajectory","tool_name":[]}}`, "metadata.trajectory.tool_name"},
	"content and url":                 {`{"content":"s3cr3t","content_url":"https://example.com/"}`, "Only one of content or content_url can be provided"},
	"empty content and url":           {`{"content":"","content_url":"https://example.com/"}`, "Only one of content or content_url can be provided"},
	"nothing":                         {`{}`, ""},
	"other encoding":                  {`{"content_encoding":"s3cr3t"}`, "content_encoding"},
	"encoding and type null":          {`{"content_encoding":null,"content_type":null}`, ""},
	"text for a url":                  {`{"content_url":"s3cr3t words"}`, "content_url"},
	"path for a url":                  {`{"content_url":"/s3cr3t"}`, "content_url"},
	"url without host":                {`{"content_url":"http://"}`, "content_url"},
	"url with a wrong port":           {`{"content_url":"http://x:s3cr3t/"}`, "content_url"},
	"url of data":                     {`{"content_url":"data:text/plain,a"}`, ""},
	"url with user and port":          {`{"content_url":"https://u:p@[::1]:8080/a?b#c"}`, ""},
	"more members":                    {`{"content":"a","more":1}`, ""},
	"content a number":                {`{"content":7}`, "content"},
	"name a list":                     {`{"name":[]}`, "name"},
	"no object":                       {`["s3cr3t"]`, "not a JSON object"},
	"no JSON":                         {`{"s3cr3t`, "wrong syntax or not UTF-8 at byte 8"},
	"a name twice":                    {`{"s3cr3t":1,"s3cr3t":2}`, "a name stands twice in one object"},
}

// wantVerdict checks that a part is valid if at is empty, else that it is rejected there.
func wantVerdict(t *testing.T, part []byte, at string) {
	t.Helper()
	_, err := DecodeACPPart(part)
	switch {
	case at == "" && err != nil:
		t.Errorf("valid part: %v", err)
	case at != "" && !errors.Is(err, ErrInvalidACP):
		t.Errorf("error = %v, want one about %s", err, at)
	case at != "" && err.Error() != ErrInvalidACP.Error()+": "+at:
		t.Errorf("error = %v, want one about %s", err, at)
	case err != nil && strings.Contains(err.Error(), "s3cr3t"):
		t.Errorf("the error repeats a value: %v", err)
	}
	message, _ := json.Marshal(map[string]any{"parts": []any{json.RawMessage(`{}`), json.RawMessage(part)}})
	if !json.Valid(part) {
		return
	}
	if _, err := DecodeACPMessage(message); (err == nil) != (at == "") {
		t.Errorf("in a message: %v", err)
	}
}

func TestACPPartsAreValidAsInTheSDK(t *testing.T) {
	t.Parallel()
	for name, v := range acpVerdicts {
		t.Run(name, func(t *testing.T) { wantVerdict(t, []byte(v.part), v.at) })
	}
}

func seedACPVerdicts(t *testing.T) {
	t.Helper()
	var cases []struct {
		Name    string
		Part    json.RawMessage
		Valid   bool
		ErrorAt string `json:"error_at"`
	}
	unmarshal(t, goldenFile(t, "acp", "origin", "validation", "message-part.json"), &cases)
	valid := 0
	for _, c := range cases {
		if c.Valid {
			valid++
		}
		t.Run(c.Name, func(t *testing.T) { wantVerdict(t, c.Part, c.ErrorAt) })
	}
	if len(cases) != 18 || valid != 9 {
		t.Errorf("%d cases, %d valid; want 18 and 9", len(cases), valid)
	}
}

func unmarshal(t *testing.T, data []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
}

// contains reports whether got has every member of want with the same value, at every level;
// it compares numbers by their spelling.
func contains(got, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		got, ok := got.(map[string]any)
		if !ok {
			return false
		}
		for name, v := range want {
			if _, ok := got[name]; !ok || !contains(got[name], v) {
				return false
			}
		}
		return true
	case []any:
		got, ok := got.([]any)
		if !ok || len(got) != len(want) {
			return false
		}
		for i := range want {
			if !contains(got[i], want[i]) {
				return false
			}
		}
		return true
	default:
		return got == want
	}
}

// values decodes JSON and keeps the spelling of numbers.
func values(t *testing.T, data []byte) any {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// decodeAndBack decodes a message and checks that encoding it loses nothing.
func decodeAndBack(t *testing.T, data []byte) ACPMessage {
	t.Helper()
	m, err := DecodeACPMessage(data)
	if err != nil {
		t.Fatal(err)
	}
	back, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if !contains(values(t, back), values(t, data)) {
		t.Errorf("written: %s\nwant all of: %s", back, data)
	}
	again, err := DecodeACPMessage(back)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(m, again); diff != "" {
		t.Errorf("the encoded message decodes as another message:\n%s", diff)
	}
	return m
}

const citationMessage = `{"role":"agent/librarian","parts":[{"content_type":"text/plain","content":"Owls hunt at night.",
	"metadata":{"kind":"citation","url":"https://example.com/owls","title":"Owls","description":"On owls","start_index":0,"end_index":9}}]}`

func seedACPCitation(t *testing.T) {
	t.Helper()
	t.Run("own", func(t *testing.T) {
		m := decodeAndBack(t, []byte(citationMessage))
		want := &ACPCitation{
			StartIndex: new(int64(0)), EndIndex: new(int64(9)),
			URL: new("https://example.com/owls"), Title: new("Owls"), Description: new("On owls"),
		}
		if diff := cmp.Diff(ACPMetadata(want), m.Parts[0].Metadata); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("golden", func(t *testing.T) {
		m := decodeAndBack(t, goldenFile(t, "acp", "origin", "messages", "seed-citation.json"))
		if c, ok := m.Parts[0].Metadata.(*ACPCitation); !ok || *c.StartIndex != 15 || *c.EndIndex != 27 {
			t.Errorf("metadata = %v", m.Parts[0].Metadata)
		}
	})
}

func seedACPTrajectory(t *testing.T) {
	t.Helper()
	t.Run("own", func(t *testing.T) {
		m := decodeAndBack(t, []byte(`{"role":"agent","parts":[{"metadata":{"kind":"trajectory","message":"look",
			"tool_name":"lookup","tool_input":{"n":1.50,"id":18446744073709551616},"tool_output":{"e":1e3}}}]}`))
		trajectory, ok := m.Parts[0].Metadata.(*ACPTrajectory)
		if !ok {
			t.Fatalf("metadata = %v", m.Parts[0].Metadata)
		}
		if got := string(trajectory.ToolInput); got != `{"n":1.50,"id":18446744073709551616}` {
			t.Errorf("tool_input = %s", got)
		}
		back, err := json.Marshal(trajectory)
		want := `{"kind":"trajectory","message":"look","tool_name":"lookup","tool_input":{"n":1.50,"id":18446744073709551616},"tool_output":{"e":1e3}}`
		if err != nil || string(back) != want {
			t.Errorf("written: %s, %v", back, err)
		}
	})
	t.Run("spellings", func(t *testing.T) {
		// Encoding and decoding preserve a part with any spelling of strings.
		decodeAndBack(t, []byte(`{"role":"agent","parts":[{"x":"\u00e4\/","metadata":{"kind":"trajectory","tool_input":{"a\u2028":"\u0041 \"\n"}}}]}`))
	})
	for _, name := range []string{"seed-trajectory.json", "trajectory-agent.json"} {
		t.Run(name, func(t *testing.T) {
			decodeAndBack(t, goldenFile(t, "acp", "origin", "messages", name))
		})
	}
}

func seedACPDefaults(t *testing.T) {
	t.Helper()
	absent, err := DecodeACPMessage([]byte(`{"parts":[{"content":"a"},{"metadata":{"kind":"citation"}},{"metadata":{"kind":"trajectory"}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	null, err := DecodeACPMessage([]byte(`{"role":null,"created_at":null,"completed_at":null,"parts":[
		{"name":null,"content":"a","content_type":null,"content_encoding":null,"content_url":null,"metadata":null},
		{"metadata":{"kind":"citation","start_index":null,"end_index":null,"url":null,"title":null,"description":null}},
		{"metadata":{"kind":"trajectory","message":null,"tool_name":null,"tool_input":null,"tool_output":null}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(absent, null); diff != "" {
		t.Errorf("absent and null are not the same:\n%s", diff)
	}
	want := ACPMessage{Role: "user", Parts: []ACPPart{
		{ContentType: "text/plain", ContentEncoding: "plain", Content: new("a")},
		{ContentType: "text/plain", ContentEncoding: "plain", Metadata: &ACPCitation{}},
		{ContentType: "text/plain", ContentEncoding: "plain", Metadata: &ACPTrajectory{}},
	}}
	if diff := cmp.Diff(want, absent); diff != "" {
		t.Error(diff)
	}
}

func seedACPRoles(t *testing.T) {
	t.Helper()
	verdict := func(t *testing.T, role string, valid bool) {
		t.Helper()
		message, _ := json.Marshal(map[string]any{"role": role, "parts": []any{}})
		if _, err := DecodeACPMessage(message); (err == nil) != valid || !valid && !errors.Is(err, ErrInvalidACP) {
			t.Errorf("role %q: %v, want valid: %v", role, err, valid)
		}
	}
	t.Run("own", func(t *testing.T) {
		for role, valid := range map[string]bool{
			"user": true, "agent": true, "agent/a": true, "agent/A_b-9": true,
			"": false, "agent/": false, "agent/a/b": false, "agent/é": false, "agents": false, "user\n": false, "agent/a\n": false,
			"\nagent": false, "USER": false, "system": false,
		} {
			verdict(t, role, valid)
		}
	})
	t.Run("golden", func(t *testing.T) {
		var cases []struct {
			Role  string
			Valid bool
		}
		unmarshal(t, goldenFile(t, "acp", "origin", "validation", "roles.json"), &cases)
		for _, c := range cases {
			verdict(t, c.Role, c.Valid)
		}
		if len(cases) != 10 {
			t.Errorf("%d cases, want 10", len(cases))
		}
	})
}

func seedACPContent(t *testing.T) {
	t.Helper()
	t.Run("own", func(t *testing.T) {
		m := decodeAndBack(t, []byte(`{"role":"user","parts":[{"content":""},{"content_url":"https://example.com/a"},
			{"metadata":{"kind":"citation"}},{"name":"a.txt","content":"a","x-more":{"a":[1]}}]}`))
		if p := m.Parts[2]; p.Content != nil || p.ContentURL != nil || p.Metadata == nil {
			t.Errorf("metadata alone: %v", p)
		}
		if got := string(m.Parts[3].Extra["x-more"]); got != `{"a":[1]}` {
			t.Errorf("an unknown member: %s", got)
		}
	})
	t.Run("golden", func(t *testing.T) {
		m := decodeAndBack(t, goldenFile(t, "acp", "origin", "messages", "multimodal-artifact.json"))
		if p := m.Parts[1]; p.Content != nil || p.ContentURL == nil {
			t.Errorf("image: %v", p)
		}
		if p := m.Parts[3]; p.Name == nil || *p.Name != "/sources/1.url" {
			t.Errorf("artifact: %v", p)
		}
	})
}

// seedACPObjects is the half of row 004-7 about reading; the projection wraps text, see
// TestACPWrapsTextOfTools.
func seedACPObjects(t *testing.T) {
	t.Helper()
	for _, field := range []string{"tool_input", "tool_output"} {
		for value, at := range map[string]string{
			`"x"`: "metadata.trajectory." + field, `[1]`: "metadata.trajectory." + field, `1`: "metadata.trajectory." + field,
			`true`: "metadata.trajectory." + field, `{}`: "", `{"a":1}`: "", `null`: "",
		} {
			wantVerdict(t, []byte(`{"metadata":{"kind":"trajectory","`+field+`":`+value+`}}`), at)
		}
	}
}

// resolution is a resolved citation in the form of the tables.
type resolution struct {
	Part int
	Mode ACPCitationMode
	Text string
	At   int64
}

func resolve(t *testing.T, message []byte) []resolution {
	t.Helper()
	m, err := DecodeACPMessage(message)
	if err != nil {
		t.Fatal(err)
	}
	var out []resolution
	for _, r := range m.ResolveCitations() {
		if r.Citation != m.Parts[r.Part].Metadata {
			t.Errorf("part %d has another citation", r.Part)
		}
		out = append(out, resolution{r.Part, r.Mode, r.Text, r.At})
	}
	return out
}

func wantResolved(t *testing.T, message []byte, want ...resolution) {
	t.Helper()
	if diff := cmp.Diff(want, resolve(t, message)); diff != "" {
		t.Error(diff)
	}
}

func seedACPRanges(t *testing.T) {
	t.Helper()
	t.Run("own", func(t *testing.T) {
		wantResolved(t, []byte(citationMessage), resolution{Part: 0, Mode: ACPRange, Text: "Owls hunt"})
		// Base64 counts as the text that it is; an image counts nothing; 🦉 is one character.
		wantResolved(t, []byte(`{"parts":[{"content":"🦉 a"},{"content_type":"image/svg","content":"<svg/>"},
			{"content_type":"TEXT/html","content_encoding":"base64","content":"YsO8Yw=="},
			{"metadata":{"kind":"citation","start_index":2,"end_index":6}},{"metadata":{"kind":"citation","start_index":0,"end_index":1}}]}`),
			resolution{Part: 3, Mode: ACPRange, Text: "abüc"}, resolution{Part: 4, Mode: ACPRange, Text: "🦉"})
	})
	t.Run("seed", func(t *testing.T) {
		wantResolved(t, goldenFile(t, "acp", "origin", "messages", "seed-citation.json"), resolution{Part: 0, Mode: ACPRange, Text: "recent study"})
	})
	t.Run("agent", func(t *testing.T) {
		wantResolved(t, goldenFile(t, "acp", "origin", "messages", "citation-agent.json"), resolution{Part: 1, Mode: ACPRange, Text: "tipping a cow"})
	})
}

func seedACPIcons(t *testing.T) {
	t.Helper()
	t.Run("own", func(t *testing.T) {
		for metadata, want := range map[string]resolution{
			`"start_index":1,"end_index":1`:  {Mode: ACPIcon, At: 1},
			`"end_index":3`:                  {Mode: ACPIcon, At: 3},
			`"start_index":0`:                {Mode: ACPIcon, At: 0},
			`"start_index":4`:                {Mode: ACPOutOfRange},
			`"start_index":-1`:               {Mode: ACPOutOfRange},
			`"start_index":2,"end_index":1`:  {Mode: ACPOutOfRange},
			`"start_index":2,"end_index":4`:  {Mode: ACPOutOfRange},
			`"start_index":-1,"end_index":2`: {Mode: ACPOutOfRange},
			`"start_index":1e300`:            {Mode: ACPOutOfRange},
			`"title":"t"`:                    {Mode: ACPIconAtPart},
		} {
			want.Part = 1
			wantResolved(t, []byte(`{"parts":[{"content":"abc"},{"metadata":{"kind":"citation",`+metadata+`}}]}`), want)
		}
		wantResolved(t, []byte(`{"parts":[{"content_type":"image/png","content":"","metadata":{"kind":"citation"}}]}`), resolution{Mode: ACPPartContent})
	})
	t.Run("golden", func(t *testing.T) {
		var golden struct {
			Message json.RawMessage
			Want    []resolution
		}
		unmarshal(t, goldenFile(t, "acp", "origin", "messages", "citation-multipart.json"), &golden)
		if len(golden.Want) != 7 {
			t.Errorf("%d citations, want 7", len(golden.Want))
		}
		wantResolved(t, golden.Message, golden.Want...)
	})
}

func seedACPCompress(t *testing.T) {
	t.Helper()
	compressed := func(t *testing.T, parts []byte) []ACPPart {
		t.Helper()
		var m ACPMessage
		unmarshal(t, []byte(`{"parts":`+string(parts)+`}`), &m)
		before, _ := json.Marshal(m)
		out := m.Compress()
		if after, _ := json.Marshal(m); !bytes.Equal(before, after) {
			t.Error("the message itself was changed")
		}
		return out.Parts
	}
	t.Run("own", func(t *testing.T) {
		// No two of these can be joined: each would lose something, or is not plain text.
		kept := `[{"content":"a"},{"content":null},{"content":"b","metadata":{"kind":"citation"}},
			{"content":"c","metadata":{"kind":"trajectory"}},{"content":"d","name":"d.txt"},{"content":"e","more":1},
			{"content":"Zg==","content_encoding":"base64"},{"content":"g","content_type":"text/markdown"},{"content_url":"https://example.com/h"},{"content":"i"}]`
		if got := compressed(t, []byte(kept)); len(got) != 10 {
			t.Errorf("%d parts, want 10", len(got))
		}
		got := compressed(t, []byte(`[{"content":"a"},{"content":""},{"content":"ü"}]`))
		if len(got) != 1 || *got[0].Content != "aü" {
			t.Errorf("parts: %v", got)
		}
	})
	t.Run("golden", func(t *testing.T) {
		var cases []struct{ In, Out json.RawMessage }
		unmarshal(t, goldenFile(t, "acp", "origin", "compress.json"), &cases)
		if len(cases) != 2 {
			t.Errorf("%d cases, want 2", len(cases))
		}
		for _, c := range cases {
			var want []ACPPart
			unmarshal(t, c.Out, &want)
			if diff := cmp.Diff(want, compressed(t, c.In)); diff != "" {
				t.Error(diff)
			}
		}
	})
}

func TestACPCompressKeepsTextAndCitations(t *testing.T) {
	t.Parallel()
	part := rapid.Custom(func(t *rapid.T) ACPPart {
		p := ACPPart{
			ContentType:     rapid.SampledFrom([]string{"text/plain", "text/plain", "text/html", "image/png"}).Draw(t, "type"),
			ContentEncoding: "plain",
		}
		if rapid.Bool().Draw(t, "has content") {
			p.Content = new(rapid.StringN(0, 5, -1).Draw(t, "content"))
		}
		switch rapid.IntRange(0, 5).Draw(t, "with") {
		case 0:
			c := &ACPCitation{}
			if rapid.Bool().Draw(t, "has start") {
				c.StartIndex = new(rapid.Int64Range(-2, 20).Draw(t, "start"))
			}
			if rapid.Bool().Draw(t, "has end") {
				c.EndIndex = new(rapid.Int64Range(-2, 20).Draw(t, "end"))
			}
			p.Metadata = c
		case 1:
			p.Name = new("n")
		}
		return p
	})
	rapid.Check(t, func(t *rapid.T) {
		m := ACPMessage{Role: "agent", Parts: rapid.SliceOfN(part, 0, 8).Draw(t, "parts")}
		c := m.Compress()
		textOf := func(m ACPMessage) string {
			var all strings.Builder
			for _, p := range m.Parts {
				text, _ := p.Text()
				all.WriteString(text)
			}
			return all.String()
		}
		if textOf(m) != textOf(c) {
			t.Errorf("text %q, compressed %q", textOf(m), textOf(c))
		}
		before, after := m.ResolveCitations(), c.ResolveCitations()
		if len(before) != len(after) {
			t.Fatalf("%d citations, compressed %d", len(before), len(after))
		}
		for i := range before {
			before[i].Part, after[i].Part = 0, 0
		}
		if diff := cmp.Diff(before, after); diff != "" {
			t.Error(diff)
		}
		if again := c.Compress(); !cmp.Equal(again, c) {
			t.Error("a second time changes more")
		}
	})
}
