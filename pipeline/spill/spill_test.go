package spill_test

import (
	"errors"
	"os"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"tributary/pipeline/spill"
)

// grouper collects numbers by key.
func grouper(dir string, limit int, done func(string, *[]int) error) *spill.Grouper[*[]int, int] {
	return &spill.Grouper[*[]int, int]{
		Dir: dir, Limit: limit,
		New:  func(string) *[]int { return new([]int) },
		Add:  func(s *[]int, n *int) int { *s = append(*s, *n); return 8 },
		Done: done,
	}
}

// TestGroupsDoNotDependOnTheMemory groups random items within limits of every size: each key is
// done once, with its items in their order, and no file is left.
func TestGroupsDoNotDependOnTheMemory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		want, got := map[string][]int{}, map[string][]int{}
		g := grouper(dir, rapid.IntRange(0, 2000).Draw(t, "limit"), func(key string, s *[]int) error {
			if _, twice := got[key]; twice {
				t.Errorf("%q is done twice", key)
			}
			got[key] = *s
			return nil
		})
		for i, key := range rapid.SliceOfN(rapid.IntRange(0, 300), 0, 1000).Draw(t, "keys") {
			name := strconv.Itoa(key)
			want[name] = append(want[name], i)
			if err := g.Put(name, &i); err != nil {
				t.Fatal(err)
			}
		}
		if err := g.Finish(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("files are left: %v, %v", left, err)
		}
	})
}

// TestErrorsEndTheGrouping covers an error of Done in a file, and a folder that does not exist.
func TestErrorsEndTheGrouping(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var done []string
	wrong := errors.New("wrong")
	g := grouper(dir, 1, func(key string, _ *[]int) error {
		if done = append(done, key); len(done) == 5 {
			return wrong
		}
		return nil
	})
	for i := range 100 {
		if err := g.Put(strconv.Itoa(i), &i); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.Finish(); !errors.Is(err, wrong) || len(done) != 5 {
		t.Errorf("finish: %v after %d", err, len(done))
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
	g = grouper(dir+"/missing", 1, nil)
	one := 1
	if err := errors.Join(g.Put("a", &one), g.Put("b", &one)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a folder: %v", err)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
}
