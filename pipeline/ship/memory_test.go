package ship_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go"

	"tributary/envelopes"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/redact"
	"tributary/pipeline/ship"
)

// edgeProgram ships the logs of a machine once, in a process of its own, and then waits.
const edgeProgram = "edge"

type edgeArguments struct {
	URL, Root, Offsets string
	Mode               redact.Mode
	Memory             int64 // GOMEMLIMIT
}

func runEdge(ctx context.Context, arguments []byte, ready func()) error {
	var a edgeArguments
	if err := json.Unmarshal(arguments, &a); err != nil {
		return err
	}
	debug.SetMemoryLimit(a.Memory)
	nc, err := nats.Connect(a.URL)
	if err != nil {
		return err
	}
	defer nc.Close()
	r, err := redact.New(redact.Config{Mode: a.Mode, Key: redact.Key("a key of the tests, of no value")})
	if err != nil {
		return err
	}
	s, err := ship.New(nc, ship.Config{
		Roots:    []ship.Root{{Source: envelopes.ClaudeCode, Dir: a.Root, Suffixes: []string{".jsonl", ".jsonl.zst"}}},
		Offsets:  a.Offsets,
		Once:     true,
		Redactor: r,
	})
	if err != nil {
		return err
	}
	if err := s.Run(ctx); err != nil {
		return err
	}
	sum := s.Summary()
	fmt.Fprintf(os.Stderr, "shipped %d records, refused %v\n", sum.Records, sum.Refusals)
	ready()
	<-ctx.Done()
	return nil
}

// unitMemory reads the limits of memory that a unit sets: GOMEMLIMIT, and the one at which the kernel ends the process.
func unitMemory(tb testing.TB, unit string) (target, limit int64) {
	tb.Helper()
	text := string(must(os.ReadFile(filepath.Join("..", "..", "deploy", "systemd", unit))))
	find := func(expression string) int64 {
		m := regexp.MustCompile(expression).FindStringSubmatch(text)
		if m == nil {
			tb.Fatalf("%s has no %s", unit, expression)
		}
		return must(strconv.ParseInt(m[1], 10, 64)) << 20
	}
	return find(`GOMEMLIMIT=(\d+)MiB\n`), find(`MemoryMax=(\d+)M\n`)
}

// large returns a record of about size bytes.
func large(session string, n, size int) string {
	return strings.Replace(prompt(session, n), "water", largeText(n, size), 1)
}

// largeText returns at least size bytes of text as agents write it, with JSON in its strings.
func largeText(n, size int) string {
	text := make([]byte, 0, size+64)
	for random := rand.New(rand.NewPCG(1, uint64(n))); len(text) < size; {
		text = append(strconv.AppendUint(text, random.Uint64()>>20, 10), ` water \"the\\nbed\" `...)
	}
	return string(text)
}

// An edge sends everything that a machine has and stays below the memory of its unit, whatever its logs are.
func TestLogsOfLargeRecordsTakeTheMemoryOfTheUnit(t *testing.T) {
	if testing.Short() {
		t.Skip("needs processes of their own, of which the race detector sees nothing")
	}
	for name, logs := range map[string]struct {
		count, size int
		packed      bool
	}{
		"lines":  {scaled(4, 4), scaled(30_000_000, 60_000_000), false},
		"many":   {scaled(16, 64), scaled(12_000_000, 20_000_000), false},
		"packed": {scaled(8, 8), scaled(25_000_000, 60_000_000), true}, // and each refers back as far as it may
	} {
		for _, mode := range redact.Modes {
			if mode != redact.Secrets && !*limitsLarge {
				continue
			}
			t.Run(name+"/"+string(mode), func(t *testing.T) {
				e := newEdge(t)
				r := redactor(t, mode)
				want := map[[sha256.Size]byte]int{}
				text := largeText(1, logs.size)
				var pack packer
				for n := range logs.count {
					id := fmt.Sprintf("s%d", n)
					records := []string{prompt(id, 0), strings.Replace(prompt(id, 1), "water", text, 1), prompt(id, 2)}
					name, content := "garden/"+id+".jsonl", lines(records...)
					if logs.packed {
						name, content = name+".zst", pack.wide(t, content)
					}
					e.write(name, content)
					for _, record := range records {
						sent := []byte(record)
						if mode == redact.MetadataOnly {
							sent = must1(r.Record(sent))
						}
						want[sha256.Sum256(sent)]++
					}
				}
				target, limit := unitMemory(t, "tributary-ship.service")
				p := pipelinetest.StartProcess(t, edgeProgram, edgeArguments{e.server.URL(), e.root, e.offsets, mode, target})
				pipelinetest.LimitMemory(t, p.PID(), limit)
				p.AwaitReady()
				peak := pipelinetest.PeakMemory(p.PID())
				if code := p.Stop(); code != 0 {
					t.Errorf("the edge ended with %d:\n%s", code, p.Output())
				}
				t.Logf("the edge took %d MiB at its peak", peak>>20)
				if peak == 0 || peak > limit {
					t.Errorf("the edge took %d MiB at its peak", peak>>20)
				}
				got := map[[sha256.Size]byte]int{}
				raw := e.tap()
				for range e.count() {
					if r := raw.next(1)[0]; !r.Origin.End {
						got[sha256.Sum256(r.Data)]++
					}
				}
				if !maps.Equal(got, want) {
					t.Errorf("%d records are stored, want %d:\n%s", len(got), len(want), p.Output())
				}
			})
		}
	}
}

// scaled returns the small size, with -limits.large the full one.
func scaled(small, full int) int {
	if *limitsLarge {
		return full
	}
	return small
}

// packer packs logs one after the other with the same memory.
type packer struct{ writer *zstd.Encoder }

// wide packs a log so that whoever reads it needs memory for 128 MiB.
func (p *packer) wide(tb testing.TB, content string) string {
	tb.Helper()
	if p.writer == nil {
		p.writer = must(zstd.NewWriter(nil, zstd.WithWindowSize(128<<20),
			zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest)))
	}
	var b bytes.Buffer
	p.writer.Reset(&b)
	_, err := io.WriteString(p.writer, content)
	if err := errors.Join(err, p.writer.Close()); err != nil {
		tb.Fatal(err)
	}
	return b.String()
}

// A large record that is written in parts while the edge follows its log is sent whole and once, and small ones before
// and behind it are not held up.
func TestLargeRecordThatIsWrittenInPartsIsSentOnce(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	record := large("one", 2, 3_000_000)
	e.write("garden/one.jsonl", lines(prompt("one", 1))+record[:1_500_000])
	p := e.tap()
	f := e.follow()
	p.expect(prompt("one", 1))
	f.until("the part is held back", func(s ship.Summary) bool { return len(s.Held) == 1 && s.Held[0].Bytes == 1_500_000 })
	e.append("garden/one.jsonl", record[1_500_000:2_500_000])
	e.write("garden/two.jsonl", lines(large("two", 1, 2_000_000))) // which needs room
	p.expect(large("two", 1, 2_000_000))
	e.append("garden/one.jsonl", record[2_500_000:]+"\n"+lines(prompt("one", 3)))
	p.expect(record, prompt("one", 3))
}
