package cursor_test

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/cursor/cursortest"
	"tributary/normalizers/normalizerstest"
)

// TestGeneratedStreamsMatchTheirBytes compares generated streams with their raw bytes:
// interleavings of deltas, repeats and tools that no file of the corpus has.
func TestGeneratedStreamsMatchTheirBytes(t *testing.T) {
	t.Parallel()
	s := cursortest.Suite
	rapid.Check(t, func(rt *rapid.T) {
		data := bytes.Join(s.Lines(rt, "s1"), []byte("\n"))
		if found := normalizerstest.CheckTruth(s, normalizers.Normalize, normalizerstest.FileNamed(s.Source, "s1.jsonl"), data, normalizerstest.NewReport()); len(found) > 0 {
			rt.Fatalf("%s\nof the file\n%s", strings.Join(found, "\n"), data)
		}
	})
}

// TestGeneratedStreamsOfSubagentsMatchTheirBytes is the same for files that lie where the transcripts of subagents do.
func TestGeneratedStreamsOfSubagentsMatchTheirBytes(t *testing.T) {
	t.Parallel()
	s := cursortest.Subagents
	rapid.Check(t, func(rt *rapid.T) {
		data := bytes.Join(s.Lines(rt, "s1"), []byte("\n"))
		file := normalizerstest.FileNamed(s.Source, "s1.jsonl")
		file.Folder = "/home/ada/.cursor/projects/home-ada-src-ledger/agent-transcripts/p1/subagents"
		if found := normalizerstest.CheckTruth(s, normalizers.Normalize, file, data, normalizerstest.NewReport()); len(found) > 0 {
			rt.Fatalf("%s\nof the file\n%s", strings.Join(found, "\n"), data)
		}
	})
}

// The records of a transcript do not state that it is one of a subagent, which its folder shows.
func TestTranscriptOfASubagentHasItsParentsPrompts(t *testing.T) {
	t.Parallel()
	const (
		log = `{"role":"user","message":{"content":[{"type":"text","text":"<user_query>\nCount the files\n</user_query>"}]}}` + "\n" +
			`{"role":"user","message":{"content":[{"type":"text","text":"<system_notification>\nx\n</system_notification>"}]}}` + "\n" +
			`{"role":"assistant","message":{"content":[{"type":"text","text":"Two."}]}}` + "\n"
		parent = "b8e41d07-2c6f-4f19-9d53-7a0e6c1b2f84"
		all    = "/home/ada/.cursor/projects/home-ada-src-ledger/agent-transcripts/"
	)
	for folder, isChild := range map[string]bool{
		all + parent + "/subagents":                               true,
		all + parent:                                              false,
		all + "subagents":                                         false,
		"/home/ada/" + parent + "/subagents":                      false,
		"agent-transcripts/" + parent + "/subagents":              true,
		"C:/Users/ada/agent-transcripts/" + parent + "/subagents": true,
	} {
		for _, source := range []envelopes.Source{envelopes.Cursor, ""} {
			framed := normalizerstest.Frame(normalizers.File{Source: source, Folder: folder, Name: "5f0c.jsonl"}, []byte(log))
			events := normalizerstest.Events(normalizerstest.Fold(normalizers.Normalize, framed))
			origins := []envelopes.Origin{"", envelopes.OriginInjected, ""}
			if isChild {
				origins[0] = envelopes.OriginAgent
			}
			for i, e := range events {
				agent, stated := "", "null"
				if isChild {
					agent, stated = "5f0c", `"`+parent+`"`
				}
				is := "null"
				if e.Metadata != nil {
					is = string(e.Metadata.Extensions["parentSessionId"])
				}
				if e.SessionID != "5f0c" || normalizerstest.Value(e.AgentID) != agent || e.IsInternal != isChild || e.Origin != origins[i] || is != stated {
					t.Errorf("%s: event %d of session %s, agent %q, internal %t, origin %q, parent %s",
						folder, i+1, e.SessionID, normalizerstest.Value(e.AgentID), e.IsInternal, e.Origin, is)
				}
			}
		}
	}
}
