// Package pages runs the steps of the pages with the real programs. Each NAME.sh is a subtest: bash runs it in a root
// with only /usr and the devices, with processes and a network of its own, so that the script uses the paths and ports
// of the pages and leaves nothing behind.
//
// The commands are the code blocks of the pages: "run deploy/README.md#start-a-broker" runs the first block of that
// section, "... 2" the second. A script that uses a section runs every block of it, or gives a reason with
// "leave PAGE#SECTION NUMBER REASON". In a block with lines "$ command", the other lines are output. frame.bash has
// the other functions of scripts.
//
// A line "# tools: nats-server nats nk" names the programs of a script: they are built from the modules in ../tools,
// with the versions there, to /root/go/bin, as "go install" does; tributary is always there. tributary-next is the same
// source with the next revision of the normalizers, consumer is testdata/consumer.go. To add a tool, run "go get -tool"
// in one of the modules, or in a new one if its libraries conflict. The checkout is /src, read-only.
//
// A script with a line "# long: REASON" runs only with the flag -long. A line "# systemd: yes" makes systemd the first
// process of the root, which runs the script as a unit: systemctl works, with the sandboxes of units; it needs root. A
// script that cannot run here prints the reason and ends with "exit 77".
package pages

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var (
	long     = flag.Bool("long", false, "run the scripts that take minutes, too")
	programs = flag.String("programs", "", "folder for the programs: those that it has are not built again")
)

// repository is the folder of the checkout.
const repository = "../../.."

// Exit codes of a script, and of the preparation of its root.
const (
	exitSkipped = 77
	exitNoRoot  = 78
)

// TestMain prepares the root of a script where runScript has started this process for that.
func TestMain(m *testing.M) {
	if os.Getenv(rootVariable) != "" {
		fmt.Fprintln(os.Stderr, "cannot prepare the root of a script:", enter())
		os.Exit(exitNoRoot)
	}
	os.Exit(m.Run())
}

// TestPages runs the scripts.
func TestPages(t *testing.T) {
	t.Parallel()
	scripts, err := filepath.Glob("*.sh")
	if err != nil || len(scripts) == 0 {
		t.Fatal("no scripts", err)
	}
	b := newBuilder(t)
	for _, script := range scripts {
		t.Run(strings.TrimSuffix(script, ".sh"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(script)
			if err != nil {
				t.Fatal(err)
			}
			if reason := header(string(text), "long"); len(reason) > 0 && !*long {
				t.Skip("needs -long:", strings.Join(reason, " "))
			}
			b.build(t, "tributary")
			for _, tool := range header(string(text), "tools") {
				b.build(t, tool)
			}
			runScript(t, script, b.folder, header(string(text), "systemd") != nil)
		})
	}
}

// header returns the words of a line "# name: words" of a script.
func header(script, name string) []string {
	m := regexp.MustCompile(`(?m)^# ` + name + `: (.+)$`).FindStringSubmatch(script)
	if m == nil {
		return nil
	}
	return strings.Fields(m[1])
}

// runScript runs a script in a new root, and checks that it has used whole sections.
func runScript(t *testing.T, script, programs string, systemd bool) {
	t.Helper()
	root := t.TempDir()
	blocks := writeBlocks(t, filepath.Join(root, "page"))
	ctx := t.Context()
	if end, ok := t.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end.Add(-10*time.Second)) // time to print the output
		defer cancel()
	}
	source, err := filepath.Abs(repository)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = []string{rootVariable + "=" + root, "PAGES_SOURCE=" + source, "PAGES_PROGRAMS=" + programs, "SCRIPT=" + script}
	cmd.SysProcAttr = ownRoot()
	if systemd {
		cgroup := newCgroup(t)
		cmd.Env = append(cmd.Env, cgroupVariable+"="+cgroup.Name())
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(cgroup.Fd())
	}
	out, err := cmd.CombinedOutput()
	if systemd {
		script, _ := os.ReadFile(filepath.Join(root, "var/log/page.out")) // missing where systemd did not start
		out = append(out, script...)
	}
	exit, _ := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		t.Logf("%s", out)
		requireWhole(t, blocks, filepath.Join(root, "page"))
	case exit == nil && errors.Is(err, syscall.EPERM), exit != nil && exit.ExitCode() == exitNoRoot:
		t.Skipf("no namespaces here, which root or a user who may make them has: %v\n%s", err, out)
	case exit != nil && exit.ExitCode() == exitSkipped:
		t.Skipf("%s", out)
	default:
		t.Errorf("%v\n%s", err, out)
	}
}

// requireWhole checks that a script has run or left each block of the sections that it uses.
func requireWhole(t *testing.T, blocks map[string]int, folder string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "done"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	done := map[string]bool{}
	var sections []string
	for line := range strings.Lines(string(text)) {
		place := strings.TrimSpace(line) // PAGE#SECTION NUMBER
		done[place] = true
		sections = append(sections, strings.Fields(place)[0])
	}
	slices.Sort(sections)
	for _, section := range slices.Compact(sections) {
		for n := 1; n <= blocks[section]; n++ {
			if place := fmt.Sprintf("%s %d", section, n); !done[place] {
				t.Errorf("the script uses %s, and neither runs nor leaves its block %d", section, n)
			}
		}
	}
}

// writeBlocks writes the code blocks of all pages to files folder/PAGE#SECTION/NUMBER, and returns how many a section
// has.
func writeBlocks(t *testing.T, folder string) map[string]int {
	t.Helper()
	counts := map[string]int{}
	err := filepath.WalkDir(repository, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || len(d.Name()) > 2 && d.Name()[0] == '.') {
			return fs.SkipDir
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		page, err := filepath.Rel(repository, path)
		if err != nil {
			return err
		}
		for _, b := range codeBlocks(string(text)) {
			section := page + "#" + b.section
			counts[section]++
			file := filepath.Join(folder, section, fmt.Sprint(counts[section]))
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(file, []byte(b.text), 0o644); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return counts
}

// codeBlock is a block of code of a page.
type codeBlock struct {
	section string // the anchor of its heading
	text    string // the commands, if there are lines with "$ ", or all lines
}

// codeBlocks returns the blocks of a page that are indented by four spaces, or fenced.
func codeBlocks(page string) []codeBlock {
	var found []codeBlock
	section, fenced, blank := "", false, true
	var lines []string
	end := func() {
		if text := strings.TrimRight(strings.Join(lines, "\n"), "\n"); text != "" {
			found = append(found, codeBlock{section, commands(text)})
		}
		lines = nil
	}
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "```"):
			fenced = !fenced
			end()
		case fenced:
			lines = append(lines, line)
		case strings.HasPrefix(line, "    ") && (blank || lines != nil):
			lines = append(lines, line[4:])
		case line == "" && lines != nil:
			lines = append(lines, line)
		case line != "":
			end()
			if heading := strings.TrimLeft(line, "#"); heading != line && strings.HasPrefix(heading, " ") {
				kept := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(heading[1:]), "")
				section = strings.ReplaceAll(kept, " ", "-")
			}
		}
		blank = line == ""
	}
	end()
	return found
}

// commands returns the lines that begin with "$ ", without it, and those that continue them; all lines if there are
// none.
func commands(text string) string {
	if !strings.HasPrefix(text, "$ ") && !strings.Contains(text, "\n$ ") {
		return text + "\n"
	}
	var kept strings.Builder
	continued := false
	for line := range strings.Lines(text + "\n") {
		command, ok := strings.CutPrefix(line, "$ ")
		if ok || continued {
			kept.WriteString(command)
			continued = strings.HasSuffix(command, "\\\n")
		}
	}
	return kept.String()
}

// builder builds programs into one folder, each once.
type builder struct {
	folder string
	mu     sync.Mutex
	built  map[string]bool
}

func newBuilder(t *testing.T) *builder {
	t.Helper()
	b := &builder{folder: *programs, built: map[string]bool{}}
	if b.folder == "" {
		b.folder = t.TempDir()
	}
	return b
}

// build builds tributary, tributary-next, the consumer, or a tool of one of the modules in ../tools.
func (b *builder) build(t *testing.T, name string) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.built[name] {
		return
	}
	if _, err := os.Stat(filepath.Join(b.folder, name)); err == nil {
		b.built[name] = true
		return
	}
	module, path, overlay := repository, "./cmd/tributary", ""
	switch name {
	case "tributary":
	case "tributary-next":
		overlay = nextRevision(t)
	case "consumer":
		path = "./deploy/checks/pages/testdata/consumer.go" // in the module of the program, which has its libraries
	default:
		module, path = tool(t, name)
	}
	cmd := exec.CommandContext(t.Context(), "go", "-C", module, "build", "-overlay", overlay, "-o", filepath.Join(b.folder, name), path)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cannot build %s: %v\n%s", name, err, out)
	}
	b.built[name] = true
}

// nextRevision returns an overlay for go build that raises the revision of the normalizers by one.
func nextRevision(t *testing.T) string {
	t.Helper()
	file, err := filepath.Abs(filepath.Join(repository, "normalizers/normalizer.go"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	next := regexp.MustCompile(`(?m)^const Revision = \d+$`).ReplaceAll(text, []byte("$0 + 1"))
	if slices.Equal(next, text) {
		t.Fatal("no constant Revision in ", file)
	}
	folder := t.TempDir()
	replaced, overlay := filepath.Join(folder, "normalizer.go"), filepath.Join(folder, "overlay.json")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {file: replaced}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(replaced, next, 0o644), os.WriteFile(overlay, list, 0o644)); err != nil {
		t.Fatal(err)
	}
	return overlay
}

// tool returns the module of ../tools that has a tool, and its path.
func tool(t *testing.T, name string) (module, path string) {
	t.Helper()
	files, err := filepath.Glob("../tools/*/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		out, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json", file).Output()
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		var module struct{ Tool []struct{ Path string } }
		if err := json.Unmarshal(out, &module); err != nil {
			t.Fatal(err)
		}
		for _, tool := range module.Tool {
			if regexp.MustCompile(`/` + regexp.QuoteMeta(name) + `(/v\d+)?$`).MatchString(tool.Path) {
				return filepath.Dir(file), tool.Path
			}
		}
	}
	t.Fatalf("no module of deploy/checks/tools has the tool %s: add one with go get -tool", name)
	return "", ""
}

// TestToolsHaveTheVersionsOfTheProgram checks that the scripts use the server of the tests of the program.
func TestToolsHaveTheVersionsOfTheProgram(t *testing.T) {
	t.Parallel()
	version := func(file string) string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(`github.com/nats-io/nats-server/v2 (v\S+)`).FindStringSubmatch(string(text))
		if m == nil {
			t.Fatal("no nats-server in ", file)
		}
		return m[1]
	}
	if tools, program := version("../tools/nats/go.mod"), version(repository+"/go.mod"); tools != program {
		t.Errorf("nats-server is %s in deploy/checks/tools/nats, %s in the module of the program", tools, program)
	}
}

// TestCodeBlocks splits a page into its blocks.
func TestCodeBlocks(t *testing.T) {
	t.Parallel()
	page := "# a: Title\n\n    one\n\n    two \\\n      more\n\ntext\n    no code\n\n## Set up, now\n\n- item\n\n" +
		"    $ first \\\n        continued\n    output\n    $ second\n\n```\nfenced\n```\n"
	want := []codeBlock{
		{"a-title", "one\n\ntwo \\\n  more\n"},
		{"set-up-now", "first \\\n    continued\nsecond\n"},
		{"set-up-now", "fenced\n"},
	}
	if got := codeBlocks(page); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}
