package lenient_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"tributary/normalizers/lenient"
)

type watchedRecord struct {
	Type  lenient.Text                           `json:"type"`
	Inner lenient.Object[watchedPart]            `json:"inner"`
	List  lenient.List[watchedPart]              `json:"list"`
	Map   lenient.Object[map[string]watchedPart] `json:"map"`
	Whole jsontext.Value                         `json:"whole"` // not looked into
	Later jsontext.Value                         `json:"later"` // read afterwards
	Text  lenient.Text                           `json:"text"`  // JSON in a string
	Input lenient.Object[watchedInput]           `json:"input"`
	Usage lenient.Object[watchedUsage]           `json:"usage"`
}

type watchedPart struct {
	A lenient.Text `json:"a"`
}

type watchedInput struct {
	lenient.Data

	Path  lenient.Text              `json:"path"`
	Parts lenient.List[watchedPart] `json:"parts"`
}

type watchedUsage struct {
	A      lenient.Number `json:"a"`
	Others jsontext.Value `json:",embed"`
}

const watchedJSON = `{"type":"x","new":1,"inner":{"a":"","b":{"c":1}},"list":[{"a":"","d":1},{"d":2},7],
	"map":{"of a user":{"a":"","e":1}},"whole":{"f":1},"later":{"a":"","g":1},"text":"{\"a\":1,\"h\":1}",
	"input":{"path":"p","i":1,"parts":[{"a":"","k":1}]},"usage":{"a":1,"j":1},"a b":1,"second":2,"":3}`

// readWatched reads a record as vendors do: into a struct, its parts later, and its members into a second struct.
func readWatched(record []byte) {
	var r watchedRecord
	lenient.ReadObject(record, &r)
	var later, text watchedPart
	lenient.ReadObject(r.Later, &later)
	lenient.ReadObject(jsontext.Value(r.Text), &text)
	var second struct {
		Second lenient.Number `json:"second"`
	}
	lenient.ReadObject(record, &second)
}

// A member is unread if its object was read into structs and none of them names it. What other goroutines read
// meanwhile does not count.
func TestUnreadMembers(t *testing.T) {
	t.Parallel()
	stop := make(chan struct{})
	var others sync.WaitGroup
	others.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				readWatched([]byte(`{"second":1,"elsewhere":1}`))
			}
		}
	})
	record := []byte(watchedJSON)
	got := lenient.Unread(record, func() { readWatched(record) })
	close(stop)
	others.Wait()
	want := []lenient.Field{{"inner.b", 1}, {"later.g", 1}, {"list[].d", 2}, {"map.*.e", 1}, {"new", 1}, {"other", 2}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := lenient.Unread(record, func() {}); len(got) > 0 {
		t.Errorf("of a record that nothing read: %v", got)
	}
}

// A record can have any number of members, of any name and depth.
func TestUnreadMembersAreBounded(t *testing.T) {
	t.Parallel()
	const n = 100_000
	var b strings.Builder
	b.WriteString(`{"type":"x"`)
	for i := range n {
		fmt.Fprintf(&b, `,"name%d":{"%s":1}`, i, strings.Repeat("x", i%200))
	}
	b.WriteString(`}`)
	record := []byte(b.String())
	total := 0
	got := lenient.Unread(record, func() { readWatched(record) })
	for _, f := range got {
		total += f.Count
	}
	if total != n || len(got) > 257 {
		t.Errorf("%d paths count %d", len(got), total)
	}
	deep := []byte(strings.Repeat(`{"a":`, 100) + `{"type":"x","new":1}` + strings.Repeat(`}`, 100))
	inner := deep[5*100 : len(deep)-100]
	if got := lenient.Unread(deep, func() { readWatched(inner) }); len(got) != 1 || got[0].Path != "other" {
		t.Errorf("of a deep record: %v", got)
	}
}
