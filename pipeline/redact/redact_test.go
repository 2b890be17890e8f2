package redact_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/redact"
)

var key = redact.Key("a key of the tests, of no value")

func newRedactor(tb testing.TB, mode redact.Mode) *redact.Redactor {
	tb.Helper()
	r, err := redact.New(redact.Config{Mode: mode, Key: key})
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// quote returns s as a JSON string.
func quote(s string) string {
	b, err := jsontext.AppendQuote(nil, s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// places are the places of a record where a secret may stand.
var places = map[string]func(s string) string{
	"prompt":      func(s string) string { return `{"text":` + quote("please use "+s+" for it") + `,"n":1.50e3}` },
	"tool output": func(s string) string { return `{"output":` + quote("line one\n\t"+s+"\r\nline \"three\" ü\n") + `}` },
	"name":        func(s string) string { return `{` + quote(s) + `:true,"b":[1,2]}` },
	"list":        func(s string) string { return `["a",` + quote(s) + `,"b"]` },
	"lines of a list": func(s string) string {
		return `{"lines":["` + strings.Join(strings.Split(strings.Trim(quote(s), `"`), `\n`), `" , "`) + `"]}`
	},
	"json in a string": func(s string) string {
		return `{"arguments":` + quote(`{"cmd":`+quote("echo '\n"+s+"'")+`}`) + `}`
	},
	"json in json in a string": func(s string) string {
		return `{"a":` + quote(`{"b":`+quote(`{"c":`+quote("x\n"+s+"\n")+`}`)+`}`) + `}`
	},
	"base64": func(s string) string {
		return `{"x":` + quote("data "+base64.StdEncoding.EncodeToString([]byte("export "+s+"\n"))+" end") + `}`
	},
	"base64 that is wrapped": func(s string) string {
		return `{"x":` + quote("data:\n"+wrapped(base64.StdEncoding.EncodeToString([]byte("export "+s+"\n")), 64, "\n")+"\nend") + `}`
	},
	"base64 that is wrapped and indented": func(s string) string {
		return `{"x":` + quote("  "+wrapped(base64.StdEncoding.EncodeToString([]byte("export "+s+"\n")), 76, " \r\n\t")+"\r\n") + `}`
	},
	"base64 in JSON in a string, wrapped": func(s string) string {
		return `{"a":` + quote(`{"b":`+quote("x\n"+wrapped(base64.StdEncoding.EncodeToString([]byte("export "+s+"\n")), 60, "\n"))+`}`) + `}`
	},
	"base64 behind 1": func(s string) string {
		return `{"x":"/` + base64.RawStdEncoding.EncodeToString([]byte("export "+s+"\n")) + `"}`
	},
	"base64 behind 2": func(s string) string {
		return "k/" + base64.RawURLEncoding.EncodeToString([]byte("export "+s+"\n")) + " x"
	},
	"base64 behind 3": func(s string) string {
		return "at/" + base64.StdEncoding.EncodeToString([]byte("export "+s+"\n")) + "\n"
	},
	"base64 of UTF-16": func(s string) string {
		return `{"cmd":"powershell -EncodedCommand ` + base64.StdEncoding.EncodeToString(utf16Of("echo "+s+"\n", false)) + `"}`
	},
	"base64 of UTF-16 of the other order": func(s string) string {
		return `{"cmd":"x ` + base64.StdEncoding.EncodeToString(utf16Of("\ufeffecho "+s+"\n", true)) + `"}`
	},
	"UTF-16":     func(s string) string { return `{"x":` + quote(string(utf16Of(" "+s+"\n", false))) + `}` },
	"zero width": func(s string) string { return `{"x":` + quote("see "+invisibly(s, "\u200b")+" there") + `}` },
	"byte orders": func(s string) string {
		return `{"x":` + quote(`{"y":`+quote("see "+invisibly(s, "\ufeff\u2060")+" there")+`}`) + `}`
	},
	"unicode":     func(s string) string { return `{"x":"` + unicodeEscaped(s) + `"}` },
	"plain text":  func(s string) string { return "● Ran: echo " + s + "\n" },
	"broken json": func(s string) string { return `{"x":` + quote("see "+s+" there") + `,"y":"unfinished` },
}

// invisibly returns s with something between its letters and digits.
func invisibly(s, between string) string {
	return regexp.MustCompile(`[A-Za-z0-9]{3}`).ReplaceAllString(s, "$0"+between)
}

// wrapped returns s in lines of a width.
func wrapped(s string, width int, lineEnd string) string {
	var lines []string
	for ; len(s) > width; s = s[width:] {
		lines = append(lines, s[:width])
	}
	return strings.Join(append(lines, s), lineEnd)
}

// utf16Of returns s in UTF-16, of the big or the little end first.
func utf16Of(s string, big bool) (b []byte) {
	for _, c := range utf16.Encode([]rune(s)) {
		if big {
			c = c<<8 | c>>8
		}
		b = append(b, byte(c), byte(c>>8))
	}
	return b
}

// unicodeEscaped returns s with every character escaped.
func unicodeEscaped(s string) string {
	var b strings.Builder
	for _, c := range s {
		fmt.Fprintf(&b, `\u%04x`, c)
	}
	return b.String()
}

func TestEverySecretIsReplacedAtEveryPlace(t *testing.T) {
	t.Parallel()
	r := newRedactor(t, redact.Secrets)
	for _, s := range pipelinetest.Secrets() {
		for name, place := range places {
			record := place(s.Text)
			data, hits := r.Record([]byte(record))
			core := strings.Split(s.Core, "\n")
			left := plain(string(data))
			for _, part := range core {
				if len(hits) == 0 || strings.Contains(left, part) {
					t.Errorf("%s in %s: %s", s.Kind, name, left)
					break
				}
			}
			if again, _ := r.Record(data); string(again) != string(data) {
				t.Errorf("%s in %s: redacted twice: %s", s.Kind, name, again)
			}
			if json := jsontext.Value(record); json.IsValid() {
				sameStructure(t, s.Kind+" in "+name, record, string(data))
			}
		}
	}
}

// plain returns a text without escapes and with what is base64 in it.
func plain(s string) string {
	var all strings.Builder
	for text, level := s, 0; level < 5; level++ {
		all.WriteString(text + "\n")
		text = strings.NewReplacer("\x00", "", `\u0000`, "", "\u200b", "", "\ufeff", "", "\u2060", "", `\n`, "\n", `\"`, `"`, `\\`, `\`).Replace(text)
	}
	words := func(s string) {
		for _, word := range strings.FieldsFunc(s, func(c rune) bool { return strings.ContainsRune(" =\"\\", c) }) {
			word = strings.NewReplacer("-", "+", "_", "/").Replace(word)
			for from := range min(4, len(word)) {
				b, _ := base64.RawStdEncoding.DecodeString(word[from:])
				all.Write(b)
				all.WriteString(strings.ReplaceAll(string(b), "\x00", ""))
			}
		}
	}
	words(s)
	words(strings.NewReplacer("\n", "", "\r", "", "\t", "", `\n`, "", `\r`, "", `\t`, "", `\\n`, "").Replace(s))
	var decoded any
	if json.Unmarshal([]byte(s), &decoded) == nil {
		fmt.Fprint(&all, decoded)
	}
	return all.String()
}

// sameStructure checks that two records differ in strings alone, and that what stands before and
// behind the placeholders is the same.
func sameStructure(tb testing.TB, what, before, after string) {
	tb.Helper()
	kinds := func(s string) (list []string) {
		dec := jsontext.NewDecoder(strings.NewReader(s))
		for {
			t, err := dec.ReadToken()
			if err != nil {
				if err.Error() != "EOF" {
					tb.Errorf("%s: %v: %s", what, err, s)
				}
				return list
			}
			if t.Kind() == '"' {
				list = append(list, "string")
			} else {
				list = append(list, t.String())
			}
		}
	}
	if diff := cmp.Diff(kinds(before), kinds(after)); diff != "" {
		tb.Errorf("%s: %s", what, diff)
	}
}

// A secret that a terminal has wrapped is replaced, wherever it is cut.
func TestWrappedSecretIsReplaced(t *testing.T) {
	t.Parallel()
	r := newRedactor(t, redact.Secrets)
	for _, s := range pipelinetest.Secrets() {
		at := strings.Index(s.Text, s.Core)
		if strings.Contains(s.Core, "\n") || strings.Contains(s.Text, "\n") {
			continue // a key of many lines
		}
		for cut := at + 1; cut < min(at+len(s.Core)+1, len(s.Text)); cut++ {
			for name, record := range map[string]string{
				"lines":                 `{"x":` + quote("use "+s.Text[:cut]+"\n"+s.Text[cut:]+" for it") + `}`,
				"lines of a plain text": "● " + s.Text[:cut] + "  \r\n  " + s.Text[cut:] + "\n",
				"lines of JSON in text": `{"x":` + quote(`{"y":`+quote("> "+s.Text[:cut]+"\n"+s.Text[cut:]+"\nend")+`}`) + `}`,
			} {
				if cut%5 != 0 && (testing.Short() || name != "lines") {
					continue
				}
				out, hits := r.Record([]byte(record))
				kept := 0
				for _, part := range []string{s.Text[at:cut], s.Text[cut:max(cut, at+len(s.Core))]} {
					if len(part) > 8 && strings.Contains(string(out), part) {
						kept++
					}
				}
				if len(hits) == 0 || kept > 0 {
					t.Errorf("%s in %s, cut at %d of %d: %q", s.Kind, name, cut-at, len(s.Core), out)
				}
			}
		}
	}
	for _, text := range []string{
		"API_KEY=" + mixed[:24] + "\nOTHER_KEY=abc\n", mixed[:20] + "/a.go\n" + mixed[3:20] + "/b.go",
	} {
		once, _ := r.Record([]byte(text))
		if behind := text[strings.IndexByte(text, '\n'):]; !strings.HasSuffix(string(once), behind) {
			t.Errorf("%q became %q", text, once)
		}
	}
}

func TestBytesAroundASecretStay(t *testing.T) {
	t.Parallel()
	r := newRedactor(t, redact.Secrets)
	secret := pipelinetest.Secrets()[0].Text
	const before, behind = `{ "é":1.0e+2, "text":"\u00e9\/ \ud83d\ude00 `, ` \u000A","dup":1,"dup":2 }` + "\r\n"
	data, hits := r.Record([]byte(before + secret + behind))
	if len(hits) != 1 || hits[0].Rule != "aws-access-token" || hits[0].Offset != len(before) {
		t.Fatalf("hits %+v", hits)
	}
	if want := before + hits[0].Placeholder + behind; string(data) != want {
		t.Errorf("%s, want %s", data, want)
	}
}

func TestEqualSecretsHaveEqualPlaceholdersUnderOneKeyOnly(t *testing.T) {
	t.Parallel()
	r := newRedactor(t, redact.Secrets)
	pem := pipelinetest.Secrets()[12].Text
	placeholder := func(r *redact.Redactor, record string) string {
		_, hits := r.Record([]byte(record))
		if len(hits) != 1 {
			t.Fatalf("%d hits in %s", len(hits), record)
		}
		return hits[0].Placeholder
	}
	want := placeholder(r, places["prompt"](pem))
	for name, place := range places {
		if !strings.HasPrefix(name, "base64") {
			if got := placeholder(r, place(pem)); got != want {
				t.Errorf("%s: %s, want %s", name, got, want)
			}
		}
	}
	other, err := redact.New(redact.Config{Mode: redact.Secrets, Key: redact.Key("another key of the tests")})
	if err != nil {
		t.Fatal(err)
	}
	if placeholder(other, places["prompt"](pem)) == want || other.Fingerprint() == r.Fingerprint() {
		t.Error("two keys have the same placeholder or fingerprint")
	}
}

func TestIDsAndDigestsAreNoSecrets(t *testing.T) {
	t.Parallel()
	r := newRedactor(t, redact.Secrets)
	blob := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("\x89PNG\x00\xffkey=AKIA", 300)))
	for _, record := range []string{
		`{"uuid":"0d3a8e6f-290f-4105-a327-a2496e5e2a83","sessionId":"0198f1c2-7b7e-7c51-b0f0-3c1f5b8f0a11","tool_use_id":"toolu_01A2b3C4d5E6f7G8h9J0kLmN"}`,
		`{"key":"0d3a8e6f-290f-4105-a327-a2496e5e2a83","token":"9f3b7c1e5a8d2064b9e7f1c3a5d80e24f6b1c9d7","auth":"sha256:9f3b7c1e5a8d2064b9e7f1c3a5d80e24f6b1c9d7e3a52048"}`,
		`{"call_id":"call_9xQ2mZ7kW4vB1nT8","message":{"id":"msg_01XyZ9kQ2mW4vB1nT8rL5cD3"},"commit":"9f3b7c1e5a8d2064b9e7f1c3a5d80e24f6b1c9d7"}`,
		`{"type":"thinking","thinking":"","signature":"` + blob + `"}`,
		`{"encrypted_content":"gAAAAAB` + blob[:900] + `","source":{"type":"base64","media_type":"image/png","data":"` + blob + `"}}`,
		`{"input_tokens":1200,"cache_key":"prompt-cache","apiKeySource":"none","text":"the password is in the vault; token=$TOKEN, key: <your key>"}`,
		`{"url":"https://example.com/a?b=c","remote":"git@github.com:ada/garden.git","db":"postgres://user:password@localhost/db"}`,
	} {
		if _, hits := r.Record([]byte(record)); len(hits) > 0 {
			t.Errorf("%+v in %.200s", hits, record)
		}
	}
}

func TestMetadataOnlyKeepsNothingElse(t *testing.T) {
	t.Parallel()
	r := newRedactor(t, redact.MetadataOnly)
	const record = `{"type":"assistant","uuid":"u-1","sessionId":"s-1","timestamp":"2026-03-01T10:00:00.000Z","cwd":"/home/ada/garden","version":"2.1.0",` +
		`"message":{"role":"assistant","model":"claude-opus","id":"msg_1","content":[{"type":"text","text":"water the roses"},` +
		`{"type":"tool_use","id":"toolu_1","name":"Bash","input":{"command":"cat /home/ada/diary","name":"diary"}}],"usage":{"input_tokens":12.0,"output_tokens":3}},` +
		`"toolUseResult":{"stdout":"dear diary","exitCode":7,"files":{"/home/ada/diary":1}},"arguments":"{\"id\":\"diary\",\"exit_code\":3}","output":"Exit code 2\ndear diary"}`
	data, _ := r.Record([]byte(record))
	sameStructure(t, "metadata_only", record, string(data))
	for _, gone := range []string{"roses", "diary", "cat "} {
		if strings.Contains(string(data), gone) {
			t.Errorf("%s is left in %s", gone, data)
		}
	}
	for _, kept := range []string{`"assistant"`, `"u-1"`, `"s-1"`, "2026-03-01T10:00:00.000Z", "/home/ada/garden", "claude-opus", `"Bash"`, "toolu_1", "12.0", `"exitCode":7`, `exit_code\":3`, `Exit code 2\n[redacted:content:`} {
		if !strings.Contains(string(data), kept) {
			t.Errorf("%s is gone from %s", kept, data)
		}
	}
	if again, _ := r.Record(data); string(again) != string(data) {
		t.Errorf("redacted twice: %s", again)
	}
	for _, broken := range []string{`{"type":"user","text":"water the`, "● water the roses\n"} {
		if data, _ := r.Record([]byte(broken)); strings.Contains(string(data), "water") {
			t.Errorf("%q became %q", broken, data)
		}
	}
}

func TestFullChangesNothing(t *testing.T) {
	t.Parallel()
	record := []byte(places["prompt"](pipelinetest.Secrets()[0].Text))
	for _, r := range []*redact.Redactor{nil, newRedactor(t, redact.Full)} {
		if data, hits := r.Record(record); &data[0] != &record[0] || hits != nil {
			t.Errorf("%s, %v", data, hits)
		}
	}
}

func TestBadConfigurationIsNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rules := func(content string) string {
		path := filepath.Join(dir, fmt.Sprintf("%x.toml", len(content)))
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		config redact.Config
		want   string
	}{
		{redact.Config{Mode: "loud", Key: key}, `redact="loud": write one of full, redacted, metadata_only`},
		{redact.Config{Mode: redact.Secrets}, "redaction has no key: set TRIBUTARY_REDACT_KEY, or TRIBUTARY_REDACT_KEY_FILE"},
		{redact.Config{Mode: redact.Secrets, Key: key, Rules: dir + "/none"}, "read the rules of redaction: open " + dir + "/none: no such file or directory"},
		{redact.Config{Mode: redact.Secrets, Key: key, Rules: rules("[[rules]]\nid = \"x\"\nregex = '''(['''\n")}, `.toml: rule 1 "x": error parsing regexp: missing closing ]:`},
		{redact.Config{Mode: redact.Secrets, Key: key, Rules: rules("[[rules]]\nid = \"A rule\"\nregex = '''x'''\n")}, `rule 1 "A rule": its id is not of a-z, 0-9, - and _, at most 64`},
		{redact.Config{Mode: redact.Secrets, Key: key, Rules: rules("[[rules]]\nid = \"nothing\"\n")}, `rule 1 "nothing": it has no regex`},
		{redact.Config{Mode: redact.Secrets, Key: key, Rules: rules("a = 1\nb = = 2\n")}, ".toml:2: "},
	} {
		if _, err := redact.New(c.config); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}

func TestRulesOfTheUserAddToTheBuiltIn(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rules.toml")
	if err := os.WriteFile(path, []byte("[[rules]]\nid = \"garden-code\"\nregex = '''\\bGC-([0-9]{6})\\b'''\n[[rules.allowlists]]\nregexes = ['''^000000$''']\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := redact.New(redact.Config{Mode: redact.Secrets, Key: key, Rules: path})
	if err != nil {
		t.Fatal(err)
	}
	data, hits := r.Record([]byte(`{"a":"GC-123456 and GC-000000 and ` + pipelinetest.Secrets()[0].Text + `"}`))
	if len(hits) != 2 || hits[0].Rule != "garden-code" || !strings.HasPrefix(string(data), `{"a":"GC-[redacted:garden-code:`) || !strings.Contains(string(data), "GC-000000") {
		t.Errorf("%s, %+v", data, hits)
	}
}

// A pseudonym is the same under one key, and another one under another key, of another name or of another kind. Nothing of
// the name is in it.
func TestPseudonymBelongsToNameKindAndKey(t *testing.T) {
	t.Parallel()
	other := redact.Key("another key of the tests")
	want := key.Pseudonym("user", "ada")
	if !regexp.MustCompile(`^user-[0-9a-f]{12}$`).MatchString(want) || key.Pseudonym("user", "ada") != want {
		t.Errorf("pseudonym %s", want)
	}
	_, digest, _ := strings.Cut(want, "-")
	for _, p := range []string{other.Pseudonym("user", "ada"), key.Pseudonym("user", "Ada"), key.Pseudonym("host", "ada")} {
		if strings.HasSuffix(p, digest) {
			t.Errorf("pseudonym %s is that of another", p)
		}
	}
}

func TestKeyIsMadeOnceAndPrivate(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "data", "redact.key")
	keys := make(chan redact.Key, 8)
	for range cap(keys) {
		go func() {
			k, err := redact.ReadOrCreateKey(path)
			if err != nil {
				t.Error(err)
			}
			keys <- k
		}()
	}
	first := <-keys
	for range cap(keys) - 1 {
		if k := <-keys; string(k) != string(first) {
			t.Error("two keys")
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 || len(first) != 64 {
		t.Errorf("%v %v, key of %d bytes", info, err, len(first))
	}
	if s := fmt.Sprintf("%v %+v %#v %s", first, first, first, first); strings.Contains(s, string(first)) {
		t.Error("a key is printed")
	}
	if _, err := redact.NewKey([]byte("short\n")); err == nil {
		t.Error("a short key is taken")
	}
}

// BenchmarkRecord redacts a record with source code as the output of a tool.
//
//	go test -run='^$' -bench=Record -count=6 ./pipeline/redact
func BenchmarkRecord(b *testing.B) {
	output := quote(strings.Repeat("for i, line := range lines {\n\t\tif strings.TrimSpace(line) == \"\" {\n\t\t\tcontinue // nothing to count\n\t\t}\n\t\tcount[line]++\n\t}\n", 13) +
		"func (s *Server) handle(w http.ResponseWriter, r *http.Request) {\n\ttoken := r.Header.Get(\"Authorization\") // key of the api\n")
	record := []byte(`{"type":"user","uuid":"0d3a8e6f-290f-4105-a327-a2496e5e2a83","cwd":"/home/ada/garden","message":{"role":"user","content":` + output + `}}`)
	for _, mode := range []redact.Mode{redact.Secrets, redact.MetadataOnly} {
		b.Run("mode="+string(mode), func(b *testing.B) {
			r := newRedactor(b, mode)
			b.SetBytes(int64(len(record)))
			for b.Loop() {
				if _, hits := r.Record(record); (len(hits) > 0) != (mode == redact.MetadataOnly) {
					b.Fatal(hits)
				}
			}
		})
	}
}

// Of what is exported by OpenTelemetry, metadata_only keeps the attributes that are metadata by their names, times and
// numbers; it replaces all other texts, also those in values of values.
func TestMetadataOnlyOfTelemetry(t *testing.T) {
	t.Parallel()
	r := newRedactor(t, redact.MetadataOnly)
	const placeholder = `\[redacted:content:[0-9a-f]{12}\]`
	const p = `"` + placeholder + `"`
	for record, want := range map[string]string{
		`{"timeUnixNano":"1760000000000000000","body":{"stringValue":"secret"},"traceId":"0af7651916cd43dd8448eb211c80319c"}`:                         `{"timeUnixNano":"1760000000000000000","body":{"stringValue":` + p + `},"traceId":"0af7651916cd43dd8448eb211c80319c"}`,
		`[{"key":"session.id","value":{"stringValue":"one"}}, {"key":"prompt","value":{"stringValue":"secret"}}]`:                                     `[{"key":"session.id","value":{"stringValue":"one"}},{"key":"prompt","value":{"stringValue":` + p + `}}]`,
		`{"key":"event.name","value":{"stringValue":"tool_result"}}`:                                                                                  `{"key":"event.name","value":{"stringValue":"tool_result"}}`,
		`{"key":"input_tokens","value":{"intValue":"42"}}`:                                                                                            `{"key":"input_tokens","value":{"intValue":"42"}}`,
		`{"key":"input_tokens","value":{"intValue":"secret"}}`:                                                                                        `{"key":"input_tokens","value":{"intValue":` + p + `}}`,
		`{ "key" : "user.email" , "value" : { "stringValue" : "secret" } }`:                                                                           `{"key":"user.email","value":{"stringValue":` + p + `}}`,
		`{"key":"tool_parameters","value":{"stringValue":"{\"command\":\"secret\"}"}}`:                                                                `{"key":"tool_parameters","value":{"stringValue":"{\"command\":\"` + placeholder + `\"}"}}`,
		`{"key":"a","value":{"kvlistValue":{"values":[{"key":"call_id","value":{"stringValue":"c"}},{"key":"b","value":{"stringValue":"secret"}}]}}}`: `{"key":"a","value":{"kvlistValue":{"values":[{"key":"call_id","value":{"stringValue":"c"}},{"key":"b","value":{"stringValue":` + p + `}}]}}}`,
		`{"key":"a","value":{"kvlistValue":{"values":[{"key":"call_id","value":{"stringValue":"c"}}]}},"stringValue":"secret"}`:                       `{"key":"a","value":{"kvlistValue":{"values":[{"key":"call_id","value":{"stringValue":"c"}}]}},"stringValue":` + p + `}`,
		`{"key":"session.id","value":"secret"}`:                                                                                                       `{"key":` + p + `,"value":` + p + `}`,
		`{"key":"/secret/id","value":{"stringValue":"secret"}}`:                                                                                       `{"key":` + p + `,"value":{"stringValue":` + p + `}}`,
		`{"input":{"key":"session.id","value":{"stringValue":"secret"}}}`:                                                                             `{"input":{"key":` + p + `,"value":{"stringValue":` + p + `}}}`,
	} {
		got, _ := r.Record([]byte(record))
		if !regexp.MustCompile(`^` + bracketed(want) + `$`).Match(got) {
			t.Errorf("%s:\n got %s\nwant %s", record, got, want)
		}
	}
}

// Of messages by the conventions for generative AI, metadata_only keeps roles, types, ids and the names of tools. In what
// a tool gets and returns nothing stays, in either form of a value.
func TestMetadataOnlyOfMessages(t *testing.T) {
	t.Parallel()
	r := newRedactor(t, redact.MetadataOnly)
	const messages = `[{"role":"assistant","parts":[{"type":"text","content":"hidden"},{"type":"uri","uri":"hidden"},` +
		`{"type":"tool_call","id":"c1","name":"read_file","arguments":{"path":"hidden","name":"hidden","id":["hidden"]}},` +
		`{"type":"tool_call_response","id":"c1","response":{"type":"hidden"},"result":{"name":"hidden","more":[{"id":"hidden"}]}}]}]`
	for _, name := range []string{"gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions"} {
		got, _ := r.Record([]byte(`{"key":"` + name + `","value":{"stringValue":` + quote(messages) + `}}`))
		requireHidden(t, got, `\"role\":\"assistant\"`, `\"type\":\"text\"`, `\"id\":\"c1\",\"name\":\"read_file\"`)
	}
	text := func(name, value string) string {
		return `{"key":"` + name + `","value":{"stringValue":"` + value + `"}}`
	}
	list := func(name string, of ...string) string {
		return `{"key":"` + name + `","value":{"kvlistValue":{"values":[` + strings.Join(of, ",") + `]}}}`
	}
	for _, record := range []string{
		text("gen_ai.tool.call.arguments", `{\"name\":\"hidden\"}`), text("gen_ai.tool.call.result", "hidden"),
		list("gen_ai.tool.call.arguments", text("name", "hidden")), list("gen_ai.tool.call.result", list("status", text("id", "hidden"))),
	} {
		got, _ := r.Record([]byte(record))
		requireHidden(t, got, `"key":"gen_ai.tool.call.`)
	}
	part := list("parts", text("type", "tool_call"), text("content", "hidden"), text("name", "read_file"), list("arguments", text("name", "hidden")))
	got, _ := r.Record([]byte(`{"eventName":"gen_ai.user.message","body":` + list("gen_ai.input.messages", text("role", "user"), part) + `}`))
	requireHidden(t, got, `"eventName":"gen_ai.user.message"`, text("role", "user"), text("type", "tool_call"), text("name", "read_file"))
}

// Of the chat of an editor, metadata_only keeps kinds, ids, times, models, codes of errors and the names of tools, and in
// its journal the paths of changes. In what a human attaches or is typing, and in what a part of an answer or a result of
// a tool has below it, nothing stays.
func TestMetadataOnlyOfChats(t *testing.T) {
	t.Parallel()
	r := newRedactor(t, redact.MetadataOnly)
	const parts = `[{"value":"hidden","baseUri":{"path":"/hidden","scheme":"file"}},"hidden","\n` + "```" + `\n",` +
		`{"kind":"inlineReference","name":"hidden","inlineReference":{"name":"hidden","kind":"hidden","uri":{"path":"/hidden"}}},` +
		`{"kind":"thinking","value":["hidden"],"id":"th1"},{"kind":"autoModeResolution","resolved":{"id":"m-1","name":"hidden"}},` +
		`{"kind":"elicitationSerialized","title":"hidden","acceptedResult":{"name":"hidden","id":"hidden"}},` +
		`{"kind":"toolInvocationSerialized","toolCallId":"c1","toolId":"copilot_readFile","isConfirmed":{"type":1},` +
		`"invocationMessage":{"value":"hidden","uris":{"file:///hidden":{"id":"hidden"}}},"resultDetails":{"input":"hidden","output":[{"type":"hidden","value":"hidden"}]},` +
		`"toolSpecificData":{"kind":"hidden","commandLine":{"original":"hidden"},"cwd":"hidden","todoList":[{"id":"hidden","status":"hidden"}]}}]`
	const result = `{"errorDetails":{"code":"canceled","message":"hidden"},"metadata":{"resolvedModel":"m-2","toolCallRounds":[{"response":"hidden","thinking":{"id":"hidden"},` +
		`"toolCalls":[{"name":"read_file","arguments":"{\"name\":\"hidden\"}","id":"c1__x-1"}]}],` +
		`"toolCallResults":{"c1__x-1":{"content":[{"value":"ERROR while calling tool: hidden"},{"value":{"node":{"children":[{"text":"hidden","name":"hidden","id":"hidden"}]}}}]}}}}`
	const request = `{"requestId":"r1","timestamp":7,"modelId":"m-3","message":{"text":"hidden","parts":[{"kind":"dynamic","id":"hidden"}]},"response":` + parts +
		`,"variableData":{"variables":[{"name":"hidden","id":"hidden","kind":"hidden"}]},"result":` + result + `}`
	const whole = `{"responderUsername":"hidden","sessionId":"s1","customTitle":"hidden","inputState":{"inputText":"hidden","attachments":[{"name":"hidden","id":"hidden"}]},"requests":[` + request + `]}`
	ofParts := []string{`"\n` + "```" + `\n"`, `"kind":"thinking"`, `"id":"th1"`, `"id":"m-1"`, `"toolCallId":"c1","toolId":"copilot_readFile","isConfirmed":{"type":1}`}
	ofResult := []string{`"code":"canceled"`, `"resolvedModel":"m-2"`, `"name":"read_file"`, `"id":"c1__x-1"`, `"c1__x-1":{"content":[{"value":"ERROR while calling tool: [redacted:`}
	ofWhole := slices.Concat([]string{`"sessionId":"s1"`, `"requestId":"r1","timestamp":7,"modelId":"m-3"`}, ofParts, ofResult)
	for _, entry := range []struct {
		record string
		stays  []string
	}{
		{whole, ofWhole},
		{`{"kind":0,"v":` + whole + `}`, ofWhole},
		{`{"kind":2,"k":["requests"],"v":[` + request + `],"i":3}`, append(ofWhole[1:], `{"kind":2,"k":["requests"],"v":[`, `"i":3`)},
		{`{"kind":2,"k":["requests",4,"response"],"v":` + parts + `}`, append(ofParts, `"k":["requests",4,"response"]`)},
		{`{"kind":1,"k":["requests",4,"response",0],"v":{"kind":"thinking","name":"hidden","value":"hidden"}}`, []string{`"kind":"thinking"`}},
		{`{"kind":1,"k":["requests",4,"result"],"v":` + result + `}`, append(ofResult, `"k":["requests",4,"result"]`)},
		{`{"kind":1,"k":["requests",4,"modelId"],"v":"m-4"}`, []string{`"v":"m-4"`}},
		{`{"kind":1,"k":["customTitle"],"v":"hidden"}`, []string{`"k":["customTitle"]`}},
		{`{"kind":1,"k":["inputState","mode"],"v":{"id":"hidden"}}`, []string{`"k":["inputState","mode"]`}},
		{`{"kind":1,"k":["inputState","x","id"],"v":"hidden"}`, []string{`"k":["inputState","x","id"]`}},
		{`{"kind":1,"k":["editedFileEvents","file:///hidden",{"id":"hidden"}],"v":"hidden"}`, []string{`"k":["editedFileEvents","[redacted:content:`}},
		{`{"kind":1,"k":["a"],"v":{"k":["hidden"]}}`, nil},
		{`{"type":"user","k":["hidden"],"v":"hidden"}`, []string{`"type":"user"`}},
	} {
		got, _ := r.Record([]byte(entry.record))
		requireHidden(t, got, entry.stays...)
		if again, _ := r.Record(got); string(again) != string(got) {
			t.Errorf("redacted twice: %s", again)
		}
	}
}

// Of the events of an agent's session, metadata_only keeps what joins them with its log: ids, names of tools, decisions,
// tokens, and the last lines of a shell's output. Prompts, answers, arguments, requests and errors are hidden.
func TestMetadataOnlyOfEvents(t *testing.T) {
	t.Parallel()
	r := newRedactor(t, redact.MetadataOnly)
	text := func(name, value string) string {
		return `{"key":"` + name + `","value":{"stringValue":` + quote(value) + `}}`
	}
	stays := []string{
		text("session.id", "one"), text("event.name", "qwen-code.tool_call"), text("event.timestamp", "2026-11-09T09:00:03.000Z"),
		text("function_name", "run_shell_command"), text("call_id", "call_1"), text("prompt_id", "one########0"), text("response_id", "chatcmpl-1"),
		text("decision", "reject"), text("status", "cancelled"), text("model", "coder-1"), `{"key":"success","value":{"boolValue":false}}`,
		`{"key":"input_token_count","value":{"intValue":1200}}`,
	}
	const output = "hidden\nExit Code: 3\nSignal: (none)\nProcess Group PGID: (none)"
	attributes := append(slices.Clone(stays),
		text("prompt", "hidden"), text("response_text", "hidden"), text("error", output), text("error.message", output), text("error_message", "hidden"),
		text("function_args", `{ "command": "hidden", "id": "hidden", "name": "hidden" }`), text("user.email", "hidden@example.com"),
		text("request_text", `[{"role":"user","parts":[{"text":"hidden"},{"functionCall":{"name":"hidden","args":{"path":"hidden"}}}]}]`))
	got, _ := r.Record([]byte(`{"body":{"stringValue":"hidden"},"attributes":[` + strings.Join(attributes, ",") + `]}`))
	requireHidden(t, got, append(stays, `\nExit Code: 3\nSignal: (none)`)...)
}

// Of the span of an agent, metadata_only keeps who asked, what was decided and how it failed. It hides what a tool got,
// what the definitions of tools say, and messages of errors.
func TestMetadataOnlyOfSpans(t *testing.T) {
	t.Parallel()
	r := newRedactor(t, redact.MetadataOnly)
	text := func(name, value string) string {
		return `{"key":"` + name + `","value":{"stringValue":"` + value + `"}}`
	}
	kept := []string{
		text("agent.initiator", "sub-agent"), text("agent.permission.kind", "shell"), text("agent.permission.result", "denied"),
		text("agent.user.message.source", "user"), text("error.type", "denied"), text("agent.error_code", "failure"),
		text("gen_ai.conversation.id", "c1"), text("gen_ai.tool.type", "function"), text("gen_ai.response.id", "r1"), text("gen_ai.response.model", "m1"), text("agent.interaction_id", "i1"),
		`{"key":"gen_ai.usage.input_tokens","value":{"intValue":"7"}}`,
	}
	hidden := []string{
		text("agent.tool.parameters.command", "hidden"), text("agent.tool.parameters.file_path", "hidden"), text("exception.message", "hidden"),
		text("gen_ai.tool.definitions", `[{\"type\":\"function\",\"name\":\"hidden\"}]`), text("gen_ai.tool.description", "hidden"),
		text("agent.message", "hidden"), text("agent.permission.result", "hidden"+strings.Repeat(".", 256)),
	}
	got, _ := r.Record([]byte(`{"name":"permission","startTimeUnixNano":"1","attributes":[` + strings.Join(slices.Concat(kept, hidden), ",") +
		`],"status":{"message":"hidden","code":2}}`))
	requireHidden(t, got, append(kept, `"name":"permission"`, `"startTimeUnixNano":"1"`)...)
}

// Of the spans of a case, metadata_only hides every text of a human, a model and a tool.
func TestMetadataOnlyOfACase(t *testing.T) {
	t.Parallel()
	r := newRedactor(t, redact.MetadataOnly)
	for vendor, texts := range map[string][]string{
		"copilot": {"ledger", "total.go", "I look", "It has", "other", "Permission denied", "no such model", "You are", "2026-11-27"},
		"vscode": {
			"otals", "I look", "go test", "rounded", "taxes", "socket hang up", "check.sh", "terminal was", "2 matches", "total.go", "It is right",
			"Claude's own", "Ask Claude", "A summary",
		},
	} {
		archive, err := txtar.ParseFile("../../normalizers/" + vendor + "/testdata/telemetry.txtar")
		if err != nil {
			t.Fatal(err)
		}
		raw := archive.Files[0].Data
		for _, text := range texts {
			if !bytes.Contains(raw, []byte(text)) {
				t.Errorf("%q is not in the case of %s", text, vendor)
			}
		}
		for line := range bytes.Lines(raw) {
			got, _ := r.Record(bytes.TrimSuffix(line, []byte("\n")))
			for _, text := range texts {
				if bytes.Contains(got, []byte(text)) {
					t.Errorf("%q stays: %s", text, got)
				}
			}
		}
	}
}

// requireHidden checks that a record has no text that is to be hidden, and what stays.
func requireHidden(t *testing.T, record []byte, stays ...string) {
	t.Helper()
	if strings.Contains(string(record), "hidden") {
		t.Errorf("a text stays: %s", record)
	}
	for _, s := range stays {
		if !strings.Contains(string(record), s) {
			t.Errorf("%s is missing: %s", s, record)
		}
	}
}

// bracketed quotes the brackets and braces of JSON in an expression, except for those of placeholders.
func bracketed(s string) string {
	const placeholder = `\[redacted:content:[0-9a-f]{12}\]`
	parts := strings.Split(s, placeholder)
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return strings.Join(parts, placeholder)
}
