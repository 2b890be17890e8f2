package worker

import (
	"encoding/binary"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/pipeline/broker"
	"tributary/pipeline/states"
)

// Of what a stream has of a session, the state that was stored last counts, and a change belongs to
// the whole that it names alone. What a server that was killed has brought back is older than the archive.
func TestStateThatWasStoredLastCounts(t *testing.T) {
	t.Parallel()
	subject := envelopes.StateSubject("v1", 0, envelopes.Codex, "s")
	archived, name := envelopes.ArchiveOf(subject)
	session := normalizers.NewSession(envelopes.Codex, "s")
	session.SetModel("one")
	whole := session.Encode()
	session.Mark()
	session.SetModel("two")
	two := session.Encode()
	change := session.EncodeChange()
	session.SetModel("three")
	three := session.Encode()

	at := func(sequence uint64, data []byte) *broker.Stored {
		return &broker.Stored{Sequence: sequence, Data: data}
	}
	changeOf := func(base uint64) []byte { return append(binary.AppendUvarint(nil, base), change...) }
	inArchive := func(sequence uint64) *broker.Stored {
		e, err := zstd.NewWriter(nil)
		if err != nil {
			t.Fatal(err)
		}
		return at(90, states.Archive{name: {Sequence: sequence, State: three}}.Encode(e))
	}
	for what, c := range map[string]struct {
		whole, change, archive *broker.Stored
		archivedTo             uint64
		want                   []byte // nil for a new session
		damaged                bool
	}{
		"nothing":                           {},
		"whole":                             {whole: at(10, whole), want: whole},
		"whole and change":                  {whole: at(10, whole), change: at(20, changeOf(10)), want: two},
		"change of the whole before":        {whole: at(30, whole), change: at(20, changeOf(10)), want: whole},
		"change without whole":              {change: at(20, changeOf(10)), damaged: true},
		"change of a newer whole":           {whole: at(10, whole), change: at(40, changeOf(30)), damaged: true},
		"damaged change":                    {whole: at(10, whole), change: at(40, []byte{10}), damaged: true},
		"empty change":                      {whole: at(10, whole), change: at(40, nil), damaged: true},
		"archive alone":                     {archive: inArchive(40), archivedTo: 40, want: three},
		"archive behind":                    {whole: at(50, whole), archive: inArchive(40), archivedTo: 60, want: whole},
		"archive behind a change":           {whole: at(10, whole), change: at(50, changeOf(10)), archive: inArchive(40), archivedTo: 60, want: two},
		"brought back":                      {whole: at(10, whole), archive: inArchive(40), archivedTo: 40, want: three},
		"brought back with its change":      {whole: at(10, whole), change: at(20, changeOf(10)), archive: inArchive(40), archivedTo: 40, want: three},
		"change brought back alone":         {change: at(40, changeOf(10)), archive: inArchive(40), archivedTo: 40, want: three},
		"not removed yet":                   {whole: at(40, three), archive: inArchive(40), archivedTo: 40, want: three},
		"younger than all that is archived": {whole: at(50, whole), archive: at(90, []byte("unreadable")), archivedTo: 40, want: whole},
		"unreadable archive":                {archive: at(90, []byte("unreadable")), archivedTo: 40, damaged: true},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			stream := map[string]*broker.Stored{subject: c.whole, envelopes.ChangeSubject(subject): c.change, archived: c.archive}
			read := states.Reader(func(subjects []string) (map[string]broker.Stored, error) {
				found := make(map[string]broker.Stored)
				for s, m := range maps.All(stream) {
					if m != nil && slices.Contains(subjects, s) {
						found[s] = *m
					}
				}
				return found, nil
			})
			states, err := read.States([]string{subject}, c.archivedTo)
			if err != nil {
				t.Fatal(err)
			}
			state, ok := states[subject]
			if !ok {
				if c.want != nil || c.damaged {
					t.Error("no state is found")
				}
				return
			}
			s, err := state.Decode()
			if (err != nil) != c.damaged {
				t.Fatalf("damaged: %v", err)
			}
			if err == nil {
				if diff := cmp.Diff(c.want, s.Encode()); diff != "" {
					t.Errorf("state (-want +got):\n%s", diff)
				}
			}
		})
	}
}
