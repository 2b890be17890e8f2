package ship_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"tributary/envelopes"
	"tributary/pipeline/ship"
)

// looks lets a Ship look at its stream twice. The second look begins after the first has ended.
func looks(t *testing.T, c chan<- time.Time) {
	t.Helper()
	for range 2 {
		select {
		case c <- time.Time{}:
		case <-time.After(patience):
			t.Error("the ship does not look at the stream")
			return
		}
	}
}

// A dry run has no connection, and lasts as long as it has to.
func TestDryRunOutlastsTheLooksAtTheStream(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const files = 40
	for n := range files {
		session := fmt.Sprintf("s%d", n)
		if err := os.WriteFile(filepath.Join(dir, session+".jsonl"), []byte(lines(prompts(session, 1, 3)...)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := make(chan time.Time)
	var once sync.Once
	s, err := ship.New(nil, ship.Config{
		Paths: []string{dir}, DryRun: true,
		Progress: func(ship.Summary) { once.Do(func() { looks(t, c) }) }, // in the middle of the run
	})
	if err != nil {
		t.Fatal(err)
	}
	ship.LookWhen(s, c)
	if err := s.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if sum := s.Summary(); sum.Files != files || sum.Records != 3*files || len(sum.Refusals) > 0 {
		t.Errorf("%+v", sum)
	}
}

func TestDryRunOfAnInputOutlastsTheLooksAtTheStream(t *testing.T) {
	t.Parallel()
	in, out := io.Pipe()
	s, err := ship.New(nil, ship.Config{Input: in, Source: envelopes.ClaudeCode, DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	c := make(chan time.Time)
	ship.LookWhen(s, c)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(context.WithoutCancel(t.Context())) }()
	for n := range 3 {
		if _, err := io.WriteString(out, lines(prompt("one", n))); err != nil {
			t.Fatal(err)
		}
		looks(t, c)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if sum := s.Summary(); sum.Records != 3 {
		t.Errorf("%+v", sum)
	}
}
