package browser

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// root is the folder of the repository.
const root = "../.."

// program is tributary, which the first test that needs it builds.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "browser-test-")
	if err != nil {
		return "", err
	}
	atEnd(func() { _ = os.RemoveAll(dir) }) // a folder for temporary files
	path := filepath.Join(dir, "tributary")
	cmd := exec.Command("go", "build", "-o", path, "./cmd/tributary")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the program: %w\n%s", err, out)
	}
	return path, nil
})

// server is a process of the program that shows the console. It ends with the tests.
type server struct {
	dir    string // of what it stores
	logs   string // folder that it follows; empty for the samples
	site   string // address of the console
	broker string
	stderr *buffer
}

// buffer can be read while it is written to.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// ofSamples is up with the built-in samples. Nothing is added to them.
var ofSamples = sync.OnceValues(func() (*server, error) {
	near, far, err := openTerminal() // where its output is none, it ends by itself
	if err != nil {
		return nil, err
	}
	s, err := startServer(far, nil, "up", "--samples", "--quiet", "--listen", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	_ = far.Close()                                  // the process has it
	go func() { _, _ = io.Copy(io.Discard, near) }() // until the process ends
	return s, s.await("all samples are processed")
})

// ofLogs is up with a folder in which tests write logs, each those of its own sessions. Its console may change things.
var ofLogs = sync.OnceValues(func() (*server, error) {
	return startServer(nil, []string{"TRIBUTARY_CONSOLE_WRITE=true"}, "up", "--quiet", "--listen", "127.0.0.1:0")
})

// startServer starts the program, and returns when its console answers.
func startServer(stdout *os.File, environment []string, args ...string) (*server, error) {
	path, err := program()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "browser-test-")
	if err != nil {
		return nil, err
	}
	s := &server{dir: dir, stderr: &buffer{}}
	if stdout == nil {
		s.logs = filepath.Join(dir, "logs")
		if err := os.Mkdir(s.logs, 0o755); err != nil {
			return nil, err
		}
		args = append(args, "--data", filepath.Join(dir, "data"), s.logs)
	}
	ctx, kill := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, path, args...)
	if shell, err := exec.LookPath("sh"); err == nil {
		// A program that takes too much memory ends with the stacks of what it does, and the machine goes on.
		cmd = exec.CommandContext(ctx, shell, append([]string{"-c", `ulimit -v 6000000; exec "$0" "$@"`, path}, args...)...)
	}
	cmd.Env = append([]string{"HOME=" + dir, "TMPDIR=" + dir, "TZ=UTC", "TERM=xterm", "TRIBUTARY_IDENTITY=off", "TRIBUTARY_CONSOLE_LISTEN=127.0.0.1:0"}, environment...)
	cmd.Stderr = s.stderr
	if stdout != nil {
		cmd.Stdout = stdout
	}
	if err := cmd.Start(); err != nil {
		kill()
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	atEnd(func() {
		select {
		case err := <-ended:
			fmt.Printf("the program has ended: %v\n%.20000s\n", err, s.stderr)
		default:
			kill()
			<-ended //nolint:errcheck // it was killed
		}
		_ = os.RemoveAll(dir)
	})
	address := regexp.MustCompile(`console at (http://\S+)`)
	if err := s.await("console at http"); err != nil {
		return nil, err
	}
	s.site = address.FindStringSubmatch(s.stderr.String())[1]
	if m := regexp.MustCompile(`broker at (nats://\S+?),? `).FindStringSubmatch(s.stderr.String()); m != nil {
		s.broker = m[1]
	}
	return s, nil
}

// await waits for a text on standard error.
func (s *server) await(text string) error {
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	limit := time.After(patience)
	for !strings.Contains(s.stderr.String(), text) {
		select {
		case <-look.C:
		case <-limit:
			return fmt.Errorf("no %q on standard error:\n%s", text, s.stderr)
		}
	}
	return nil
}

// openSamples opens a tab on the console of the samples.
func openSamples(t *testing.T) *tab {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("it needs a terminal of Linux")
	}
	browserOf(t)
	s, err := ofSamples()
	if err != nil {
		t.Fatal(err)
	}
	return open(t, s.site)
}

// openLogs opens a tab on the console of the logs that tests write.
func openLogs(t *testing.T) (*tab, *server) {
	t.Helper()
	browserOf(t)
	s, err := ofLogs()
	if err != nil {
		t.Fatal(err)
	}
	return open(t, s.site), s
}

// endings are what is to be done when the tests are over.
var endings struct {
	mu   sync.Mutex
	list []func()
}

func atEnd(do func()) {
	endings.mu.Lock()
	defer endings.mu.Unlock()
	endings.list = append(endings.list, do)
}
