package kilo

import (
	"testing"

	"github.com/go-json-experiment/json"

	"tributary/normalizers/chat"
)

// A session of a task that was stored before this package read rows can be carried on.
func TestStateOfATaskIsThatOfAPlainLog(t *testing.T) {
	t.Parallel()
	for _, want := range []chat.State{{}, {Values: map[string]string{"shown": "yes"}}} {
		stored, err := json.Marshal(&want)
		if err != nil {
			t.Fatal(err)
		}
		var s state
		if err := json.Unmarshal(stored, &s); err != nil {
			t.Fatal(err)
		}
		again, err := json.Marshal(&s)
		if err != nil {
			t.Fatal(err)
		}
		if string(again) != string(stored) || len(s.Tasks.Values) != len(want.Values) {
			t.Errorf("%s became %s", stored, again)
		}
	}
}
