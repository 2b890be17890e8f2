package ship_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tributary/envelopes"
	"tributary/pipeline/ship"
)

// Each message states who sends it: a record, a large one, and the end of a session. The sender is no part of a message id:
// under other labels nothing is stored twice.
func TestEveryMessageStatesItsSender(t *testing.T) {
	t.Parallel()
	e := newEdge(t, smallMessages)
	e.write("garden/one.jsonl", lines(mixed("one", 5)...))
	sender := &envelopes.Edge{Host: "build 7", User: "Zoë", Labels: map[string]string{"team": "garden", "env": "ci"}}
	if got := e.once(func(c *ship.Config) { c.Edge = sender }); got.Records != 5 {
		t.Errorf("shipped %+v", got)
	}
	all := e.wantStored(append(mixed("one", 5), "end of one")...)
	for _, r := range all {
		if diff := cmp.Diff(sender, r.Origin.Edge); diff != "" {
			t.Errorf("%q is sent by (-want +got):\n%s", brief([]stored{r})[0][:10], diff)
		}
		if got := r.header.Get("Tributary-Labels"); got != "env=ci,team=garden" {
			t.Errorf("labels %s", got)
		}
	}
	again := e.once(func(c *ship.Config) { c.Again, c.Edge = true, &envelopes.Edge{Host: "other"} })
	if again.Records != 5 || again.Duplicates != 5 || e.count() != len(all) {
		t.Errorf("shipped again %+v, %d messages", again, e.count())
	}
	e.write("garden/two.jsonl", lines(prompts("two", 1, 1)...))
	e.once()
	if last := e.all()[e.count()-1]; last.Origin.Edge != nil || last.header.Get("Tributary-Host") != "" {
		t.Errorf("without a sender %v is stated", last.header)
	}
}

// A sender that a record cannot state is refused before anything is sent.
func TestSenderThatCannotBeStatedIsRefused(t *testing.T) {
	t.Parallel()
	_, err := ship.New(nil, ship.Config{Paths: []string{"."}, DryRun: true, Edge: &envelopes.Edge{User: "a\x07b"}})
	if err == nil || !strings.Contains(err.Error(), "user is not 1 to 255 bytes") {
		t.Errorf("error %v", err)
	}
}
