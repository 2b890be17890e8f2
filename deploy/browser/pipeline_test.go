package browser

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// command runs the program at the broker of a server.
func (s *server) command(t *testing.T, args ...string) {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = []string{"HOME=" + s.dir, "TMPDIR=" + s.dir, "NATS_URL=" + s.broker, "TRIBUTARY_IDENTITY=off", "TRIBUTARY_DATA=" + t.TempDir()}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

// TestPipelineIsLiveAndChangedFromItsPages has a dead letter and a generation appear in the open page, compares, requeues,
// promotes and rolls back. It has a server of its own, because it changes the live generation.
func TestPipelineIsLiveAndChangedFromItsPages(t *testing.T) {
	t.Parallel()
	browserOf(t)
	s, err := startServer(nil, []string{"TRIBUTARY_CONSOLE_WRITE=true"}, "up", "--quiet", "--listen", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := open(t, s.site)
	p.visit("/pipeline")
	p.shows("Lag by partition", "every record is done")
	p.eval("window.stayed = true", nil)
	p.eval("document.querySelector('[data-section=partitions] summary').click()", nil)

	broken := filepath.Join(t.TempDir(), "broken.jsonl")
	if err := os.WriteFile(broken, []byte("{broken <script>window.pwned = 1</script>\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.command(t, "ship", "--once", "--source", "codex", broken)
	p.until("document.querySelector('[data-section=summary] a').innerText === '1'")
	s.command(t, "replay", "start", "b")
	p.until("document.querySelector('a[href=\"/pipeline/generations/b/promote\"]') && document.querySelector('[data-section=generations]').innerText.includes('ready')")
	p.until("window.stayed && document.querySelector('[data-section=partitions] details').open")
	p.accessible("pipeline-generations")

	p.follow("[data-section=generations] a[href^='/pipeline/diff']")
	p.click("form[data-diff] button")
	p.shows("Nothing was compared")
	p.accessible("pipeline-diff")

	p.visit("/pipeline/letters")
	p.shows("malformed")
	p.accessible("pipeline-letters")
	p.follow("table a[href^='/pipeline/letters/v1/']")
	p.shows("{broken <script>window.pwned = 1</script>")
	p.accessible("pipeline-letter")
	p.follow("a.button.primary")
	p.shows("is published to the raw stream again")
	p.accessible("pipeline-confirm")
	p.follow("main form button")
	p.settled()
	p.until("window.pwned === undefined")

	if err := os.WriteFile(broken, []byte("{broken again\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.command(t, "ship", "--once", "--source", "codex", broken)
	p.awaitPage("/pipeline/letters", "Requeue all that are selected")
	p.follow("main .actions a")
	p.follow("main form button")
	p.shows("Outcome", "requeued")
	p.accessible("pipeline-requeued")

	p.visit("/pipeline/generations/b/promote")
	p.shows("b becomes the live generation")
	p.follow("main form button")
	p.shows("The generation is live.", "Generation b")
	p.visit("/pipeline/generations/v1/rollback")
	p.follow("main form button")
	p.shows("The generation is live again.", "Generation v1")
	p.accessible("pipeline-generation")
}
