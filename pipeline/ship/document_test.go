package ship_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tributary/envelopes"
	"tributary/pipeline/ship"
)

// conversation is a session of Gemini CLI as one document, which is rewritten with each
// message. Documents that differ only in mood have the same length.
func conversation(messages int, mood string) string {
	var b strings.Builder
	b.WriteString(`{"sessionId":"g","projectHash":"77aa","startTime":"2026-03-01T10:00:00.000Z","messages":[`)
	for n := range messages {
		if n > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "\n"+`{"id":"m%d","timestamp":"2026-03-01T10:00:%02d.000Z","type":"user","content":"%s"}`, n, n, strings.Repeat("water the bed ", 20))
	}
	b.WriteString(`],"mood":"` + mood + `"}`)
	return b.String()
}

func TestDocumentIsShippedWholeWithEveryChange(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	raw := e.tap()
	path := filepath.Join(t.TempDir(), "session.json")
	write := func(content string) {
		t.Helper()
		// Atomically, as Gemini CLI does.
		if err := os.WriteFile(path+".new", []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	inPlace := func(content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	follow := func(c *ship.Config) { c.Paths = []string{path} }

	inPlace(conversation(5, "calm"))
	f := e.follow(follow)
	got := raw.expect(conversation(5, "calm"))
	if r := got[0]; r.Source != envelopes.Gemini || r.Session != "g" || r.Origin.Digest == "" {
		t.Errorf("document is of %s of %s, digest %q", r.Session, r.Source, r.Origin.Digest)
	}
	inPlace(conversation(7, "calm"))
	raw.expect(conversation(7, "calm"))
	inPlace(conversation(7, "glad"))
	raw.expect(conversation(7, "glad"))
	f.stop()
	inPlace(conversation(9, "calm"))
	f = e.follow(follow)
	raw.expect(conversation(9, "calm"))
	inPlace(conversation(9, "calm")[:1500])
	f.until("the incomplete document waits", func(s ship.Summary) bool { return s.Waiting > 0 })
	inPlace(conversation(9, "glad"))
	raw.expect(conversation(9, "glad"))
	f.stop()
	write(conversation(2, "calm"))
	once := func(c *ship.Config) { c.Paths = []string{path} }
	e.once(once)
	raw.expect(conversation(2, "calm"), "end of g")
	if got := e.once(once); got.Records != 0 {
		t.Errorf("nothing has changed, but %+v was shipped", got)
	}
}
