package normalizers_test

import (
	"io/fs"
	"sync"
	"testing"

	"tributary/envelopes"
	"tributary/envelopes/schema"
	"tributary/normalizers"
	"tributary/normalizers/normalizerstest"
)

// checkProjections holds every entry and every ACP message of a log to the schemas of producers
// and of consumers. It returns how many there are.
func checkProjections(t *testing.T, name string, events []envelopes.AgentEventV1) (entries, messages int) {
	t.Helper()
	check := func(form schema.Form, line []byte, err error) {
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, v := range validators()[form] {
			for _, violation := range v.Check(line) {
				t.Errorf("%s, %s: %s %s", name, form, violation.Pointer, violation.Reason)
			}
		}
	}
	type key struct {
		source  envelopes.Source
		session string
	}
	type projection struct {
		entries envelopes.EntryProjection
		acp     envelopes.ACPProjection
	}
	sessions := map[key]*projection{}
	each := func(list []envelopes.ACPMessage) {
		for i := range list {
			messages++
			line, err := list[i].MarshalJSON()
			check(schema.ACP, line, err)
		}
	}
	for i := range events {
		e := &events[i]
		p := sessions[key{e.Source, e.SessionID}]
		if p == nil {
			p = &projection{}
			sessions[key{e.Source, e.SessionID}] = p
		}
		if entry, ok := p.entries.Project(e); ok {
			entries++
			line, err := entry.AppendJSON(nil)
			check(schema.Entries, line, err)
		}
		each(p.acp.Project(e))
	}
	for _, p := range sessions {
		each(p.acp.End())
	}
	return entries, messages
}

// validators are the validators of both views of each form.
var validators = sync.OnceValue(func() map[schema.Form][]*schema.Validator {
	out := map[schema.Form][]*schema.Validator{}
	for _, form := range schema.Forms {
		for _, document := range [][]byte{form.Producer(), form.Consumer()} {
			v, err := schema.NewValidator(document)
			if err != nil {
				panic(err) // the document is part of the program
			}
			out[form] = append(out[form], v)
		}
	}
	return out
})

func TestProjectionsOfSamplesObeyTheirSchemas(t *testing.T) {
	t.Parallel()
	for _, vendor := range normalizers.Vendors() {
		entries, messages := 0, 0
		err := fs.WalkDir(vendor.Samples(), ".", func(name string, file fs.DirEntry, err error) error {
			if err != nil || file.IsDir() {
				return err
			}
			data, err := fs.ReadFile(vendor.Samples(), name)
			n, m := checkProjections(t, name, eventsOf(t, vendor.Source, name, data))
			entries, messages = entries+n, messages+m
			return err
		})
		if err != nil || entries == 0 || messages == 0 {
			t.Errorf("the samples of %s have %d entries and %d messages: %v", vendor.Source, entries, messages, err)
		}
	}
}

func TestProjectionsOfCorpusObeyTheirSchemas(t *testing.T) {
	t.Parallel()
	for _, s := range suites {
		t.Run(string(s.Source), func(t *testing.T) {
			t.Parallel()
			for _, file := range normalizerstest.Corpus(t, s) {
				steps := normalizerstest.Fold(normalizers.Normalize, normalizerstest.Frame(normalizerstest.FileNamed(s.Source, file.Name), file.Data))
				checkProjections(t, file.Name, normalizerstest.Events(steps))
			}
		})
	}
}
