package genai_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"tributary/envelopes"
	"tributary/pipeline/genai"
)

// place returns a change of an event that is of a machine and of a state of version control.
func place(edge *envelopes.Edge, vcs *envelopes.VCS) func(*envelopes.AgentEventV1) {
	return func(e *envelopes.AgentEventV1) { e.Edge, e.VCS = edge, vcs }
}

// TestTurnHasThePlaceOfItsLastEvent has a turn that opens a pull request, and one whose repository has no host.
func TestTurnHasThePlaceOfItsLastEvent(t *testing.T) {
	t.Parallel()
	edge := &envelopes.Edge{Host: "anvil", User: "ada", Labels: map[string]string{"team": "payments", "env": "ci"}}
	d := draft{source: envelopes.ClaudeCode}
	d.add(envelopes.UserMessage, "fix it", place(edge, &envelopes.VCS{Branch: "main"}))
	d.add(envelopes.AssistantMessage, "done", place(edge, &envelopes.VCS{Branch: "fix/total"}))
	d.add(envelopes.Meta, "", place(edge, &envelopes.VCS{
		Repository: "github.com/acme/shop", Branch: "fix/total", Commit: "0f0e0d0c", PullRequest: "https://github.com/acme/shop/pull/7",
	}))
	d.add(envelopes.UserMessage, "more", place(nil, &envelopes.VCS{Repository: "acme/shop"}))
	d.add(envelopes.UserMessage, "and more")
	s := genai.New(false)
	for i := range d.events {
		s.Add(&d.events[i])
	}
	var got []map[string]string
	for _, span := range s.Spans() {
		if span.Depth() > 0 {
			continue
		}
		turn := map[string]string{}
		for _, a := range span.Attributes {
			switch a.Key {
			case "gen_ai.operation.name", "gen_ai.conversation.id", "gen_ai.agent.name", "gen_ai.provider.name":
			default:
				turn[string(a.Key)] = a.Value.AsString()
			}
		}
		got = append(got, turn)
	}
	want := []map[string]string{
		{
			"host.name": "anvil", "user.name": "ada", "tributary.label.env": "ci", "tributary.label.team": "payments",
			"vcs.repository.url.full": "https://github.com/acme/shop", "vcs.owner.name": "acme", "vcs.repository.name": "shop",
			"vcs.ref.head.name": "fix/total", "vcs.ref.head.revision": "0f0e0d0c", "vcs.change.id": "7",
		},
		{"vcs.owner.name": "acme", "vcs.repository.name": "shop"},
		{},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
