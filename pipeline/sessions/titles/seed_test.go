package titles_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"tributary/envelopes"
	"tributary/pipeline/sessions"
	"tributary/pipeline/sessions/titles"
)

// TestSeed runs every acceptance row about the metadata of sessions. The number of a row is
// the first word of its name. Rows that compare with recorded results need TRIBUTARY_GOLDENS.
func TestSeed(t *testing.T) {
	t.Parallel()
	t.Run("003-1 set_title_trims_and_raises_both_versions", setTitleTrims)
	t.Run("003-1 recorded_scenarios_have_their_results", recordedScenarios)
	t.Run("003-2 title_is_validated_before_anything_is_read", titleIsValidatedFirst)
	t.Run("003-3 nothing_to_change_stores_nothing", nothingToChangeStoresNothing)
	t.Run("003-4 unknown_session_is_not_found", unknownSessionIsNotFound)
	t.Run("003-5 storage_error_stores_no_change", storageErrorStoresNoChange)
	t.Run("003-6 generated_title_replaces_no_title", generatedTitleReplacesNoTitle)
	t.Run("003-7 placeholders_are_untitled", placeholdersAreUntitled)
	t.Run("003-8 change_states_the_source_of_the_title", changeStatesTheSource)
	t.Run("003-9 versions_count_changes_and_saturate", versionsCountAndSaturate)
	t.Run("003-10 updated_at_is_the_time_of_the_commit", updatedAtIsTheTimeOfTheCommit)
	t.Run("003-11 change_equals_the_record_that_is_stored_with_it", changeEqualsTheRecord)
	t.Run("003-12 renames_in_one_process_are_serialized", renamesInOneProcessAreSerialized)
	t.Run("003-13 renames_by_two_processes_are_serialized", renamesByTwoProcessesAreSerialized)
	t.Run("003-14 a_call_that_waits_delays_no_other_session", waitingCallDelaysNoOtherSession)
	t.Run("003-15 a_kill_between_record_and_change_stores_both_once", killStoresBothOnce)
	t.Run("003-16 a_rename_before_the_commit_beats_a_generated_title", renameBeatsGeneratedTitle)
	t.Run("003-17 merge_keeps_the_newer_group", mergeKeepsTheNewerGroup)
	t.Run("003-18 a_stage_changes_no_metadata", stageChangesNoMetadata)
	t.Run("003-19 a_stale_copy_cannot_unpin", staleCopyCannotUnpin)
	t.Run("003-20 get_returns_what_was_just_set", getReturnsWhatWasJustSet)
	t.Run("003-21 late_watcher_gets_the_last_title_and_pin", lateWatcherGetsTheLastState)
	t.Run("003-22 each_change_is_in_the_snapshot_or_live", changeIsInTheSnapshotOrLive)
	t.Run("003-23 watch_resumes_by_sequence_or_resets", watchResumesOrResets)
	t.Run("003-24 session_without_a_stage_has_changes", sessionWithoutAStageHasChanges)
	t.Run("003-25 partial_messages_are_no_changes", partialMessagesAreNoChanges)
	t.Run("003-26 change_has_the_keys_of_its_type", changeHasTheKeysOfItsType)
	t.Run("003-27 only_the_service_may_write_metadata", onlyTheServiceMayWrite)
	t.Run("003-28 a_stale_version_conflicts", staleVersionConflicts)
	t.Run("003-29 fallback_title_is_the_first_sentence_of_the_prompt", fallbackTitleIsTheFirstSentence)
}

// golden reads a recorded file into a value.
func golden(t *testing.T, name string, into any) {
	t.Helper()
	root := os.Getenv("TRIBUTARY_GOLDENS")
	if root == "" {
		t.Skip("TRIBUTARY_GOLDENS is not set")
	}
	data, err := os.ReadFile(filepath.Join(root, "session_metadata", "origin", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
}

// scenario is a recorded scenario.
type scenario struct {
	Name  string `json:"name"`
	Given *struct {
		ID              string `json:"id"`
		titles.Metadata `json:",inline"`
	} `json:"given"`
	Call       *scenarioCall  `json:"call"`
	Concurrent []scenarioCall `json:"concurrent"`
	Want       struct {
		Result   jsontext.Value               `json:"result"`
		Error    string                       `json:"error"`
		Session  map[string]jsontext.Value    `json:"session"`
		Events   *[]map[string]jsontext.Value `json:"events"`
		Versions []uint64                     `json:"event_title_versions_in_order"`
		Same     bool                         `json:"last_event_title_equals_session_title"`
	} `json:"want"`
}

type scenarioCall struct {
	Op      string             `json:"op"`
	ID      string             `json:"id"`
	Title   string             `json:"title"`
	Pinned  bool               `json:"pinned"`
	Source  titles.TitleSource `json:"source"`
	Force   bool               `json:"force"`
	IfMatch *uint64            `json:"if_match"`
}

// do makes the call and returns its result as the scenarios write it.
func (c scenarioCall) do(t *testing.T, f *fixture, k titles.Key) (result string, err error) {
	t.Helper()
	var options []titles.Option
	if c.IfMatch != nil {
		options = append(options, titles.IfMatch(*c.IfMatch))
	}
	var change *titles.Change
	switch c.Op {
	case "set_title":
		change, err = f.SetTitle(t.Context(), k, c.Title, options...)
	case "apply_generated_title":
		change, err = f.ApplyGeneratedTitle(t.Context(), k, c.Title, c.Source, c.Force, options...)
	case "set_pinned":
		change, err = f.SetPinned(t.Context(), k, c.Pinned, options...)
	default:
		t.Fatalf("no call %s", c.Op)
	}
	var value any
	switch {
	case err != nil || change == nil:
	case change.Type == titles.PinnedUpdated:
		value = change.Pinned
	default:
		value = map[string]any{"title": change.Title, "title_version": change.TitleVersion}
	}
	return canonical(t, value), err
}

// canonical returns the canonical JSON of a value.
func canonical(t *testing.T, value any) string {
	t.Helper()
	data, err := json.Marshal(value, json.Deterministic(true))
	if err != nil {
		t.Fatal(err)
	}
	v := jsontext.Value(data)
	if err := v.Canonicalize(jsontext.CanonicalizeRawInts(false)); err != nil {
		t.Fatal(err)
	}
	return string(v)
}

// members requires the members of want in the JSON of got.
func members(t *testing.T, what string, got any, want map[string]jsontext.Value) {
	t.Helper()
	have := map[string]jsontext.Value{}
	data, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &have); err != nil {
		t.Fatal(err)
	}
	for name, value := range want {
		if g, w := canonical(t, have[name]), canonical(t, value); g != w {
			t.Errorf("%s: %s is %s, want %s", what, name, g, w)
		}
	}
}

func recordedScenarios(t *testing.T) {
	t.Parallel()
	var scenarios []scenario
	golden(t, "service-scenarios.json", &scenarios)
	if len(scenarios) != 15 {
		t.Fatalf("%d scenarios, want 15", len(scenarios))
	}
	for _, sc := range scenarios {
		t.Run(sc.Name, func(t *testing.T) {
			t.Parallel()
			sc.run(t, newFixture(t))
		})
	}
}

func (sc scenario) run(t *testing.T, f *fixture) {
	t.Helper()
	k := titles.Key{Source: envelopes.ClaudeCode}
	if sc.Given != nil {
		k.SessionID = sc.Given.ID
		f.put(t, titles.Session{Source: k.Source, SessionID: k.SessionID, Metadata: sc.Given.Metadata})
	}
	if sc.Call != nil {
		if sc.Call.ID != "" {
			k.SessionID = sc.Call.ID
		}
		result, err := sc.Call.do(t, f, k)
		switch {
		case sc.Want.Error != "" && (err == nil || err.Error() != sc.Want.Error):
			t.Errorf("error is %v, want %s", err, sc.Want.Error)
		case sc.Want.Error == "" && err != nil:
			t.Error(err)
		case len(sc.Want.Result) > 0 && result != canonical(t, sc.Want.Result):
			t.Errorf("result is %s, want %s", result, sc.Want.Result)
		}
	}
	results := make(chan error, len(sc.Concurrent))
	for _, c := range sc.Concurrent {
		go func() {
			_, err := c.do(t, f, k)
			results <- err
		}()
	}
	for range sc.Concurrent {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	all := changes(t, f.js)
	if sc.Want.Events != nil {
		if len(all) != len(*sc.Want.Events) {
			t.Fatalf("%d changes, want %d", len(all), len(*sc.Want.Events))
		}
		for i, want := range *sc.Want.Events {
			members(t, "change", all[i], want)
		}
	}
	if sc.Want.Session != nil {
		r := f.get(t, k)
		members(t, "record", &r, sc.Want.Session)
	}
	if sc.Want.Versions != nil {
		var versions []uint64
		for _, c := range all {
			versions = append(versions, c.TitleVersion)
		}
		if diff := cmp.Diff(sc.Want.Versions, versions); diff != "" {
			t.Error(diff)
		}
	}
	if last := len(all) - 1; sc.Want.Same && (last < 0 || all[last].Title != f.get(t, k).Title) {
		t.Error("the last change does not have the title of the record")
	}
}

func placeholdersAreUntitled(t *testing.T) {
	t.Parallel()
	for title, want := range map[string]bool{
		"": true, " \t\n": true, "New Session": true, " नया सत्र ": true, "New session with Ada": true, "New Session - x": true,
		"New session": false, "new session": false, "New Session with ": false, "New Session -x": false, "A title": false,
	} {
		if got := sessions.IsUntitled(title); got != want {
			t.Errorf("IsUntitled(%q) is %v", title, got)
		}
	}
	t.Run("of_the_recorded_cases", func(t *testing.T) {
		var cases []struct {
			Title    string `json:"title"`
			Untitled bool   `json:"untitled"`
		}
		golden(t, "is-untitled.json", &cases)
		for _, c := range cases {
			if got := sessions.IsUntitled(c.Title); got != c.Untitled {
				t.Errorf("IsUntitled(%q) is %v", c.Title, got)
			}
		}
	})
}

func mergeKeepsTheNewerGroup(t *testing.T) {
	t.Parallel()
	stored := titles.Metadata{Title: "Stored", TitleVersion: 3, Pinned: true, MetadataVersion: 5}
	for name, c := range map[string]struct{ runtime, want titles.Metadata }{
		"older copy": {titles.Metadata{Title: "Stale", MetadataVersion: 4}, stored},
		"equal copy": {titles.Metadata{Title: "Stale", MetadataVersion: 5}, stored},
		"newer copy": {titles.Metadata{Title: "New", MetadataVersion: 6}, titles.Metadata{Title: "New", MetadataVersion: 6}},
	} {
		if got := titles.Merge(&stored, c.runtime); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	t.Run("of_the_recorded_cases", func(t *testing.T) {
		var cases []struct {
			Name    string                    `json:"name"`
			Disk    map[string]jsontext.Value `json:"disk"`
			Runtime map[string]jsontext.Value `json:"runtime"`
			After   map[string]jsontext.Value `json:"after"`
		}
		golden(t, "merge-scenarios.json", &cases)
		for _, c := range cases {
			after := maps.Clone(c.Runtime) // a save keeps the fields that are not of the group
			var runtime titles.Metadata
			convert(t, c.Runtime, &runtime)
			var stored *titles.Metadata
			if c.Disk != nil {
				stored = &titles.Metadata{}
				convert(t, c.Disk, stored)
			}
			merged := titles.Merge(stored, runtime)
			convert(t, &merged, &after)
			members(t, c.Name, after, c.After)
		}
	})
}

// convert converts by JSON.
func convert(t *testing.T, from, to any) {
	t.Helper()
	data, err := json.Marshal(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, to); err != nil {
		t.Fatal(err)
	}
}

func fallbackTitleIsTheFirstSentence(t *testing.T) {
	t.Parallel()
	for prompt, want := range map[string]string{
		"  Fix the\n\tparser. Then rest.": "Fix the parser",
		"```go\ncode\n```\nExplain this!": "Explain this",
		"``` open fence":                  "",
		"Look at a, b -":                  "Look at a, b",
		"":                                "",
	} {
		if got := sessions.FallbackTitle(prompt); got != want {
			t.Errorf("Fallback(%q) is %q, want %q", prompt, got, want)
		}
	}
	t.Run("of_the_recorded_cases", func(t *testing.T) {
		for name, title := range map[string]func(string) string{
			"sanitize-title.json":  sessions.SanitizeTitle,
			"heuristic-title.json": sessions.FallbackTitle,
		} {
			var cases []struct {
				In  string `json:"in"`
				Out string `json:"out"`
			}
			golden(t, name, &cases)
			for _, c := range cases {
				if got := title(c.In); got != c.Out {
					t.Errorf("%s: %q is %q, want %q", name, c.In, got, c.Out)
				}
			}
		}
	})
	t.Run("is_applied_to_an_untitled_session", func(t *testing.T) {
		f := newFixture(t)
		k := f.session(t, "s1")
		c, err := f.ApplyGeneratedTitle(t.Context(), k, sessions.FallbackTitle("Fix it. Now."), titles.SourceFallback, false)
		if err != nil || c == nil || c.Title != "Fix it" || c.TitleSource != titles.SourceFallback {
			t.Errorf("%+v, %v", c, err)
		}
	})
}

func setTitleTrims(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	k := f.session(t, "s1")
	c, err := f.SetTitle(t.Context(), k, "\t Hello\u2003 ")
	if err != nil || c == nil || c.Title != "Hello" || c.TitleVersion != 1 || c.MetadataVersion != 1 {
		t.Fatalf("%+v, %v", c, err)
	}
	if r := f.get(t, k); r.Title != "Hello" || r.TitleVersion != 1 || r.MetadataVersion != 1 || r.TitleSource != titles.SourceManual {
		t.Errorf("record %+v", r)
	}
}

func titleIsValidatedFirst(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.server.Stop() // nothing can be read
	_, err := f.SetTitle(t.Context(), titles.Key{Source: envelopes.Codex, SessionID: "missing"}, " \n")
	if !errors.Is(err, titles.ErrEmptyTitle) || err.Error() != "storage error: title cannot be empty" {
		t.Errorf("error is %v", err)
	}
	f.server.Start()
}

func nothingToChangeStoresNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	k := f.session(t, "s1")
	if _, err := f.SetTitle(t.Context(), k, "Same"); err != nil {
		t.Fatal(err)
	}
	before := lastSequence(t, f.js)
	if c, err := f.SetTitle(t.Context(), k, " Same "); c != nil || err != nil {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := f.SetPinned(t.Context(), k, false); c != nil || err != nil {
		t.Errorf("%+v, %v", c, err)
	}
	serving(t, f.Service, f.js.Conn())
	for verb, request := range map[string]string{
		"set_title":  `{"source":"claude_code","session_id":"s1","title":"Same"}`,
		"set_pinned": `{"source":"claude_code","session_id":"s1","pinned":false}`,
	} {
		if got, _ := f.request(t, verb, request); got != `{"applied":false}` {
			t.Errorf("%s answers %s", verb, got)
		}
	}
	if after := lastSequence(t, f.js); after != before {
		t.Errorf("the stream goes on from %d to %d", before, after)
	}
	if r := f.get(t, k); r.MetadataVersion != 1 || r.TitleVersion != 1 {
		t.Errorf("record %+v", r)
	}
}

func unknownSessionIsNotFound(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.session(t, "known")
	for _, k := range []titles.Key{
		{Source: envelopes.ClaudeCode, SessionID: "missing"},
		{Source: envelopes.Codex, SessionID: "known"}, // of another agent
	} {
		_, err := f.SetTitle(t.Context(), k, "x")
		if !errors.Is(err, titles.ErrNotFound) || err.Error() != "session not found: "+k.SessionID {
			t.Errorf("error is %v", err)
		}
		if _, err := f.SetPinned(t.Context(), k, true); !errors.Is(err, titles.ErrNotFound) {
			t.Errorf("error is %v", err)
		}
		if _, err := f.ApplyGeneratedTitle(t.Context(), k, "x", titles.SourceAuto, true); !errors.Is(err, titles.ErrNotFound) {
			t.Errorf("error is %v", err)
		}
		if _, err := f.Get(t.Context(), k); !errors.Is(err, titles.ErrNotFound) {
			t.Errorf("error is %v", err)
		}
	}
	serving(t, f.Service, f.js.Conn())
	if body, code := f.request(t, "get", `{"source":"codex","session_id":"known"}`); code != "404" ||
		body != `{"code":"404","error":"session not found: known"}` {
		t.Errorf("answer %s, code %s", body, code)
	}
	if n := lastSequence(t, f.js); n != 0 {
		t.Errorf("%d messages are stored", n)
	}
}
