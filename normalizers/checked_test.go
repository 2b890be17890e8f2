package normalizers_test

import (
	"bytes"
	"testing"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/normalizerstest"
)

// An event in JSON is the same whether its native JSON is parsed again or trusted as checked.
func TestCheckedJSONIsStrictAndCompact(t *testing.T) {
	t.Parallel()
	checked := 0
	for _, suite := range suites {
		for _, g := range normalizerstest.Goldens(t, suite) {
			for _, f := range normalizerstest.Fold(normalizers.Normalize, normalizerstest.Frame(g.File(suite.Source), g.Raw)) {
				for i := range f.Result.Events {
					e := &f.Result.Events[i]
					want, err := e.Event.AppendJSON(nil)
					if err != nil {
						t.Fatalf("%s: %v", g.Path, err)
					}
					if got, err := e.Event.AppendCheckedJSON(nil, e.Checked); err != nil || !bytes.Equal(got, want) {
						t.Errorf("%s: event %s differs, %v", g.Path, e.Event.EventID, err)
					}
					if e.Checked != (envelopes.Checked{}) {
						checked++
					}
				}
			}
		}
	}
	if checked < 100 {
		t.Errorf("%d events were checked", checked)
	}
}
