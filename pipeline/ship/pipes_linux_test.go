package ship_test

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"tributary/pipeline/ship"
)

// Anything below a root that is no regular file is ignored: opening a pipe would block.
func TestPipesAndLinksBelowARootAreIgnored(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.write("garden/one.jsonl", lines(prompt("one", 1)))
	e.mkdir("garden/folder.jsonl")
	e.write("garden/folder.jsonl/two.jsonl", lines(prompt("two", 1)))
	if err := errors.Join(
		syscall.Mkfifo(e.path("garden/pipe.jsonl"), 0o600),
		os.Symlink("pipe.jsonl", e.path("garden/to-pipe.jsonl")),
		os.Symlink("nowhere", e.path("garden/dangling.jsonl")),
		os.Symlink("..", e.path("garden/up")),
		os.Symlink("loop.jsonl", e.path("garden/loop.jsonl")),
	); err != nil {
		t.Fatal(err)
	}
	got := e.once()
	if got.Files != 2 || got.Records != 2 || len(got.Refusals) != 1 || got.Refusals[0].Path != e.path("garden/loop.jsonl") {
		t.Errorf("shipped %+v", got)
	}
}

// A pipe that takes the path of a log blocks neither reading nor the check whether the log
// is gone.
func TestPipeInPlaceOfALogDoesNotBlock(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	raw := e.tap()
	e.write("garden/one.jsonl", lines(prompt("one", 1)))
	e.write("garden/two.jsonl", lines(prompt("two", 1)))
	f := e.follow(func(c *ship.Config) { c.Parallel = 1 })
	raw.expect(prompt("one", 1), prompt("two", 1))
	if err := os.Remove(e.path("garden/one.jsonl")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(e.path("garden/one.jsonl"), 0o600); err != nil {
		t.Fatal(err)
	}
	raw.expect("end of one")
	e.append("garden/two.jsonl", lines(prompt("two", 2)))
	raw.expect(prompt("two", 2))
	f.stop()
}
