package normalizers_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/normalizers/normalizerstest"
)

// The memory that a record makes the normalizer allocate is bounded by its length, however deep
// and wide it is. The test does not run beside others, whose memory would count.
func TestMemoryIsBoundedByTheRecord(t *testing.T) {
	const size = 2 << 20
	blob := `"` + strings.Repeat("QUFB", 2000) + `"`
	fill := strings.TrimSuffix(strings.Repeat(`"aaaaaaaaaa",`, size/13), ",")
	within := func(before, inner, after string) string {
		return `{"type":"of-tomorrow","x":` + strings.Repeat(before, 60) + inner + strings.Repeat(after, 60) + "}"
	}
	names := make([]string, size/16)
	for i := range names {
		names[i] = fmt.Sprintf(`"n%08d":"%s"`, i, "\xff")
	}
	for _, c := range []struct{ name, data string }{
		{"a blob at the bottom", within("[", blob+","+fill, "]")},
		{"a blob at the bottom of objects", within(`{"type":"a/b","x":`, "["+blob+","+fill+"]", "}")},
		{"a name twice at the bottom", within("[", `{"a":1,"a":2},`+fill, "]")},
		{"not UTF-8 at the bottom of objects", within(`{"a":0,"a":`, `["`+"\xff"+`",`+fill+"]", "}")},
		{"a long string at the bottom", within("[", `"`+strings.Repeat("word ", size/10)+`",`+fill, "]")},
		{"blobs of a long media type", `{"type":"of-tomorrow","x":{"mimeType":"a/` + strings.Repeat("b", size/2) + `"` + strings.Repeat(`,"x":`+blob, 64) + "}}"},
		{"names that are not UTF-8", `{"type":"of-tomorrow","x":{` + strings.Join(names, ",") + "}}"},
		{"a tool's arguments at the bottom", `{"type":"assistant","uuid":"u","message":{"role":"assistant","content":[{"type":"tool_use","id":"i","name":"Tool","input":{"x":` +
			strings.Repeat("[", 60) + `"` + strings.Repeat("word ", size/10) + `",` + fill + strings.Repeat("]", 60) + `}}]}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := normalizers.NewSession(envelopes.ClaudeCode, "s")
			r := normalizerstest.Single(suites[0], []byte(c.data))[0].Record
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			result, err := normalizers.Normalize(s, r)
			runtime.ReadMemStats(&after)
			if err != nil || len(result.Events) != 1 {
				t.Fatalf("%d events, %v", len(result.Events), err)
			}
			if b, err := normalizerstest.Encode(result.Events[0].Event); err != nil || len(b) > core.MaxEventBytes {
				t.Errorf("an event of %d bytes, %v", len(b), err)
			}
			allocated := after.TotalAlloc - before.TotalAlloc
			t.Logf("%d MiB for %d MiB", allocated>>20, len(c.data)>>20)
			// The buffers that others have left for it make it from 3 to 35 times its length.
			if most := uint64(100 * len(c.data)); allocated > most {
				t.Errorf("%d MiB allocated, more than %d, for a record of %d MiB", allocated>>20, most>>20, len(c.data)>>20)
			}
		})
	}
}

// The media type of a blob is that of the nearest object around it, unless an array is in
// between.
func TestBlobHasTheMediaTypeOfItsObject(t *testing.T) {
	t.Parallel()
	blob := `"` + strings.Repeat("QUFB", 2000) + `"`
	for _, c := range []struct{ value, want string }{
		{`{"data":B,"mimeType":"image/png"}`, `"image/png"`},
		{`{"type":"base64","media_type":"image/gif","data":B}`, `"image/gif"`},
		{`{"mime_type":"a/b","x":{"data":B}}`, `"a/b"`},
		{`{"mime_type":"a/b","x":{"data":B,"mime_type":"c/d"}}`, `"c/d"`},
		{`{"mime_type":"a/b","x":[B]}`, `null`},
		{`{"mime_type":"a/b","x":[{"y":B}]}`, `null`},
		{`{"x":[{"y":B}],"mime_type":"a/b"}`, `null`},
		{`{"type":"text","data":B}`, `null`},
	} {
		data := `{"type":"of-tomorrow","x":` + strings.Replace(c.value, "B", blob, 1) + `}`
		st := normalizerstest.Fold(normalizers.Normalize, normalizerstest.Single(suites[0], []byte(data)))[0]
		if st.Err != nil {
			t.Fatal(st.Err)
		}
		raw := string(st.Result.Events[0].Event.Raw)
		_, got, ok := strings.Cut(raw, `"media_type":`)
		if _, behind, two := strings.Cut(got, `"media_type":`); two {
			got = behind // the first one is the vendor's
		}
		if !ok || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %s, want %s", c.value, normalizerstest.Clip(raw), c.want)
		}
	}
}

// Of a record with many events of one id each event has an id of its own, and none is emitted
// twice.
func TestRevisionsOfOneIDAreDistinct(t *testing.T) {
	t.Parallel()
	const n = 10_000 // more than a session remembers
	var blocks strings.Builder
	for i := range n {
		for range 2 { // the second is the same event
			fmt.Fprintf(&blocks, `{"type":"tool_use","id":"same","name":"Bash","input":{"command":"%d"}},`, i)
		}
	}
	data := `{"type":"assistant","uuid":"u","message":{"role":"assistant","content":[` + strings.TrimSuffix(blocks.String(), ",") + `]}}`
	st := normalizerstest.Fold(normalizers.Normalize, normalizerstest.Single(suites[0], []byte(data)))[0]
	if st.Err != nil {
		t.Fatal(st.Err)
	}
	seen := make(map[string]bool)
	last := ""
	for _, e := range st.Result.Events {
		if seen[e.Event.EventID] || e.Event.Supersedes != last {
			t.Fatalf("event %s supersedes %q, want %q; seen before: %v", e.Event.EventID, e.Event.Supersedes, last, seen[e.Event.EventID])
		}
		last = e.Event.EventID
		seen[last] = true
	}
	if len(seen) != n {
		t.Errorf("%d events, want %d", len(seen), n)
	}
}

// A record that is too deep is a dead letter with that reason, for every vendor. Depth within a
// string, as in the arguments of tools, is read like any text.
func TestTooDeepRecordIsADeadLetter(t *testing.T) {
	t.Parallel()
	nested := map[string][]byte{} // records share it, which never change their bytes
	for _, levels := range []int{core.MaxDepth + 1, 10_000, 10_000_000} {
		for _, open := range []string{"[", `{"a":`} {
			nested[fmt.Sprintf("%d levels of %s", levels, open)] = []byte(`{"type":` + strings.Repeat(open, levels/len(open)+core.MaxDepth))
		}
	}
	deep := encoded(t,
		strings.Repeat("[", 20_000), strings.Repeat(`{"a":`, 9000)+"1"+strings.Repeat("}", 9000),
		strings.Repeat("[", 9000)+strings.Repeat("]", 9000), `{"command":`+strings.Repeat("[", 500)+strings.Repeat("]", 500)+"}",
	)
	for _, s := range suites {
		t.Run("source="+string(s.Source), func(t *testing.T) {
			t.Parallel()
			for name, data := range nested {
				st := normalizerstest.Fold(normalizers.Normalize, normalizerstest.Single(s, data))[0]
				if reason, _ := core.Reason(st.Err); reason != "too_deep" {
					t.Errorf("%s: %v", name, st.Err)
				}
			}
			places := placesOf(t, s)
			for i, p := range places {
				if testing.Short() && i%10 != 0 {
					continue
				}
				session := normalizers.NewSession(s.Source, "s")
				before, after := p.in.around(t, p.path)
				r := normalizerstest.Single(s, slices.Concat(before, deep[i%len(deep)], after))[0].Record
				result, err := normalizers.Normalize(session, r)
				if err != nil && !s.Refuses(err) || err == nil && len(result.Events) == 0 && result.Skip == "" {
					t.Errorf("%s: %v, %d events", p.name, err, len(result.Events))
				}
				for _, e := range result.Events {
					if b, err := normalizerstest.Encode(e.Event); err != nil || len(b) > core.MaxEventBytes {
						t.Errorf("%s: %s of %d bytes, %v", p.name, e.Event.EventType, len(b), err)
					}
				}
			}
		})
	}
}
