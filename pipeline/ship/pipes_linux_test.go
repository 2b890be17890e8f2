package ship_test

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"tributary/pipeline/ship"
)

// What is no file below a root is left alone: nobody waits for who writes to a pipe.
func TestNoFileBelowARoot(t *testing.T) {
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

// A pipe that takes the place of a log is not waited for either, neither to read it nor
// to find out whether the log is gone.
func TestPipeInPlaceOfALog(t *testing.T) {
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
