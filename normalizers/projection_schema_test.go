package normalizers_test

import (
	"io/fs"
	"testing"

	"tributary/envelopes"
	"tributary/envelopes/schema"
	"tributary/normalizers"
	"tributary/normalizers/normalizerstest"
)

// checkProjections holds every entry and every ACP message of a log to schemas. It returns how many
// there are.
func checkProjections(t *testing.T, name string, validators map[schema.Form][]*schema.Validator, events []envelopes.AgentEventV1) (entries, messages int) {
	t.Helper()
	check := func(form schema.Form, line []byte, err error) {
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, v := range validators[form] {
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

// validatorsOf returns validators of documents of each form.
func validatorsOf(t *testing.T, documents ...func(schema.Form) []byte) map[schema.Form][]*schema.Validator {
	t.Helper()
	out := map[schema.Form][]*schema.Validator{}
	for _, form := range schema.Forms {
		for _, document := range documents {
			v, err := schema.NewValidator(document(form))
			if err != nil {
				t.Fatal(err)
			}
			out[form] = append(out[form], v)
		}
	}
	return out
}

func TestProjectionsOfSamplesObeyTheirSchemas(t *testing.T) {
	t.Parallel()
	validators := validatorsOf(t, schema.Form.Producer, schema.Form.Consumer)
	for _, vendor := range normalizers.Vendors() {
		entries, messages := 0, 0
		err := fs.WalkDir(vendor.Samples(), ".", func(name string, file fs.DirEntry, err error) error {
			if err != nil || file.IsDir() {
				return err
			}
			data, err := fs.ReadFile(vendor.Samples(), name)
			n, m := checkProjections(t, name, validators, eventsOf(t, vendor.Source, name, data))
			entries, messages = entries+n, messages+m
			return err
		})
		if err != nil || entries == 0 || messages == 0 {
			t.Errorf("the samples of %s have %d entries and %d messages: %v", vendor.Source, entries, messages, err)
		}
	}
}

// The schemas of consumers accept what those of producers do.
func TestProjectionsOfCorpusObeyTheirSchemas(t *testing.T) {
	t.Parallel()
	validators := validatorsOf(t, schema.Form.Producer)
	for _, s := range suites {
		t.Run(string(s.Source), func(t *testing.T) {
			t.Parallel()
			for _, file := range normalizerstest.Corpus(t, s) {
				steps := normalizerstest.Fold(normalizers.Normalize, normalizerstest.Frame(normalizerstest.FileNamed(s.Source, file.Name), file.Data))
				checkProjections(t, file.Name, validators, normalizerstest.Events(steps))
			}
		})
	}
}
