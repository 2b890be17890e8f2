package pipeline

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A filter never denies a session of its archive, and of those that are not there it lets few pass, up to as many sessions
// as an archive has after a year.
func TestSessionFilterLetsFewPass(t *testing.T) {
	t.Parallel()
	if newSessionFilter(nil).mayHave("s") {
		t.Error("an empty archive may have a session")
	}
	for sessions, most := range map[int]int{1: 30, 9: 10, 100: 10, 512: 10, 820: 25, 5000: 900} { // of a thousand
		a := make(archive)
		for i := range sessions {
			a[fmt.Sprintf("claude_code.%08x-0000-4000-8000-%012d", i*7919, i)] = archivedState{}
		}
		f := newSessionFilter(a)
		if len(f) > maxFilterBytes {
			t.Errorf("filter of %d sessions has %d bytes", sessions, len(f))
		}
		for name := range a {
			if !f.mayHave(name) {
				t.Fatalf("%s of %d sessions is denied", name, sessions)
			}
		}
		passed := 0
		for i := range 1000 {
			if f.mayHave(fmt.Sprintf("claude_code.%08x-1111-4000-8000-%012d", i*7919, i)) {
				passed++
			}
		}
		if passed > most {
			t.Errorf("of 1000 others, %d pass the filter of %d sessions", passed, sessions)
		}
	}
}

// A reference is read as it was written, and one that is cut off is damaged.
func TestArchiveReference(t *testing.T) {
	t.Parallel()
	r := archiveReference{"v1-1/2/3/name", sha256.Sum256([]byte("content")), sessionFilter{1, 2, 3}}
	data := r.encode()
	got, err := decodeArchiveReference(data)
	if diff := cmp.Diff(r, got, cmp.AllowUnexported(archiveReference{})); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for n := range 1 + len(r.sum) + 1 + len(r.object) {
		if _, err := decodeArchiveReference(data[:n]); !errors.Is(err, errArchive) {
			t.Errorf("%d bytes of a reference: %v", n, err)
		}
	}
}
