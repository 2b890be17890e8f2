package normalizers_test

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/normalizers/normalizerstest"
)

// benchLine is a type of record in the form in which most of them come. {id} stands for
// what differs from record to record, {text} for what makes it as long as it is.
type benchLine struct {
	source envelopes.Source
	kind   string
	sizes  []int
	line   string
}

const benchClaude = `"parentUuid":"p","isSidechain":false,"userType":"external","cwd":"/home/dev/app","sessionId":"s","version":"2.1.37","gitBranch":"main","uuid":"u{id}","timestamp":"2026-03-01T09:00:00.000Z"}`

const benchCodex = `{"timestamp":"2026-03-01T09:00:00.000Z","type":"`

var benchLines = []benchLine{
	{envelopes.ClaudeCode, "user-prompt", []int{200, 20_000}, `{"type":"user","message":{"role":"user","content":"{text}"},` + benchClaude},
	{envelopes.ClaudeCode, "assistant-text", []int{2_000, 20_000}, `{"type":"assistant","requestId":"r","message":{"id":"m{id}","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[{"type":"text","text":"{text}"}],"stop_reason":null,"usage":{"input_tokens":10,"cache_creation_input_tokens":458,"cache_read_input_tokens":16028,"output_tokens":120}},` + benchClaude},
	{envelopes.ClaudeCode, "assistant-thinking", []int{2_000}, `{"type":"assistant","requestId":"r","message":{"id":"m{id}","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[{"type":"thinking","thinking":"{text}","signature":"c2ln"}],"stop_reason":null,"usage":{"input_tokens":10,"cache_creation_input_tokens":458,"cache_read_input_tokens":16028,"output_tokens":120}},` + benchClaude},
	{envelopes.ClaudeCode, "assistant-tool_use", []int{1_000}, `{"type":"assistant","requestId":"r","message":{"id":"m{id}","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[{"type":"tool_use","id":"toolu{id}","name":"Bash","input":{"command":"{text}"}}],"stop_reason":null,"usage":{"input_tokens":10,"cache_creation_input_tokens":458,"cache_read_input_tokens":16028,"output_tokens":120}},` + benchClaude},
	{envelopes.ClaudeCode, "user-tool_result", []int{2_000, 50_000, 1_000_000}, `{"type":"user","message":{"role":"user","content":[{"tool_use_id":"toolu{id}","type":"tool_result","content":"{text}","is_error":false}]},"toolUseResult":{"stdout":"{text}","stderr":"","interrupted":false,"isImage":false},` + benchClaude},
	{envelopes.ClaudeCode, "progress", []int{1_000}, `{"type":"progress","data":{"type":"bash_progress","output":"{text}","fullOutput":"{text}","elapsedTimeSeconds":2},` + benchClaude},
	{envelopes.ClaudeCode, "attachment-hook", []int{1_000}, `{"type":"attachment","attachment":{"type":"hook_success","hookName":"Stop","stdout":"{text}","stderr":"","exitCode":0,"durationMs":75},` + benchClaude},
	{envelopes.ClaudeCode, "system", []int{200}, `{"type":"system","subtype":"turn_duration","durationMs":46977,"content":"{text}",` + benchClaude},
	{envelopes.ClaudeCode, "snapshot", []int{1_000}, `{"type":"file-history-snapshot","messageId":"m{id}","snapshot":{"messageId":"m{id}","trackedFileBackups":{"{text}":{"version":1}},"timestamp":"2026-03-01T09:00:00.000Z"},"isSnapshotUpdate":false}`},
	{envelopes.ClaudeCode, "ai-title", []int{60}, `{"type":"ai-title","aiTitle":"{text}","sessionId":"s"}`},
	{envelopes.Gemini, "user", []int{200, 20_000}, `{"id":"u{id}","timestamp":"2026-03-01T09:00:00.000Z","type":"user","content":[{"text":"{text}"}]}`},
	{envelopes.Gemini, "gemini-text", []int{2_000, 20_000}, `{"id":"g{id}","timestamp":"2026-03-01T09:00:00.000Z","type":"gemini","content":"{text}","thoughts":[{"subject":"Looking","description":"at it","timestamp":"2026-03-01T09:00:00.000Z"}],"tokens":{"input":11480,"output":120,"cached":7443,"thoughts":210,"tool":0,"total":11810},"model":"gemini-3.5-flash"}`},
	{envelopes.Gemini, "gemini-toolCalls", []int{2_000, 50_000}, `{"id":"g{id}","timestamp":"2026-03-01T09:00:00.000Z","type":"gemini","content":"","thoughts":[],"tokens":{"input":11480,"output":120,"cached":7443,"thoughts":210,"tool":0,"total":11810},"model":"gemini-3.5-flash","toolCalls":[{"id":"c{id}","name":"run_shell_command","args":{"command":"ls"},"result":[{"functionResponse":{"id":"c{id}","name":"run_shell_command","response":{"output":"Output: {text}\nExit Code: 1"}}}],"status":"success","timestamp":"2026-03-01T09:00:00.000Z","resultDisplay":"{text}"}]}`},
	{envelopes.Gemini, "user-functionResponse", []int{2_000}, `{"id":"r{id}","timestamp":"2026-03-01T09:00:00.000Z","type":"user","content":[{"functionResponse":{"id":"c{id}","name":"run_shell_command","response":{"output":"{text}"}}}]}`},
	{envelopes.Gemini, "set-lastUpdated", []int{60}, `{"$set":{"lastUpdated":"2026-03-01T09:00:00.000Z"}}`},
	{envelopes.Gemini, "set-messages", []int{20_000}, `{"$set":{"messages":[{"id":"m{id}","timestamp":"2026-03-01T09:00:00.000Z","type":"user","content":[{"text":"{text}"}]}]}}`},
	{envelopes.ClaudeCode, "unknown", []int{1_000}, `{"type":"of-tomorrow","x":"{text}",` + benchClaude},
	{envelopes.Codex, "user-prompt", []int{200, 20_000}, benchCodex + `response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"{id} {text}"}]}}`},
	{envelopes.Codex, "user-duplicate", []int{200, 20_000}, benchCodex + `event_msg","payload":{"type":"user_message","message":"{id} {text}","images":[]}}`},
	{envelopes.Codex, "assistant-text", []int{2_000, 20_000}, benchCodex + `response_item","payload":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"{id} {text}"}]}}`},
	{envelopes.Codex, "assistant-duplicate", []int{2_000, 20_000}, benchCodex + `event_msg","payload":{"type":"agent_message","message":"{id} {text}"}}`},
	{envelopes.Codex, "reasoning", []int{500}, benchCodex + `response_item","payload":{"type":"reasoning","summary":[{"type":"summary_text","text":"{id} {text}"}],"content":null,"encrypted_content":"{text}{text}"}}`},
	{envelopes.Codex, "function_call", []int{1_000}, benchCodex + `response_item","payload":{"type":"function_call","name":"exec_command","arguments":"{\"cmd\":\"ls\"}","call_id":"call{id}","x":"{text}"}}`},
	{envelopes.Codex, "function_call_output", []int{2_000, 50_000, 1_000_000}, benchCodex + `response_item","payload":{"type":"function_call_output","call_id":"call{id}","output":"Chunk ID: 1f\nWall time: 0.5 seconds\nProcess exited with code 0\nOriginal token count: 4\nOutput:\n{text}"}}`},
	{envelopes.Codex, "apply_patch", []int{2_000, 20_000}, benchCodex + `response_item","payload":{"type":"custom_tool_call","status":"completed","call_id":"call{id}","name":"apply_patch","input":"*** Begin Patch\n*** Update File: a.go\n@@\n+{text}\n*** End Patch"}}`},
	{envelopes.Codex, "exec_command_end", []int{2_000}, benchCodex + `event_msg","payload":{"type":"exec_command_end","call_id":"call{id}","command":["ls"],"aggregated_output":"{text}","exit_code":0,"duration":{"secs":1,"nanos":5}}}`},
	{envelopes.Codex, "token_count", []int{200}, benchCodex + `event_msg","payload":{"type":"token_count","info":{"total_token_usage":{"input_tokens":9{id},"cached_input_tokens":0,"output_tokens":5,"reasoning_output_tokens":0,"total_tokens":95},"last_token_usage":{"input_tokens":9,"cached_input_tokens":0,"output_tokens":5,"reasoning_output_tokens":0,"total_tokens":14}},"rate_limits":{"x":"{text}"}}}`},
	{envelopes.Codex, "session_meta", []int{20_000}, benchCodex + `session_meta","payload":{"id":"s","cwd":"/home/dev/app","cli_version":"0.130.0","base_instructions":{"text":"{text}"}}}`},
	{envelopes.Codex, "turn_context", []int{500}, benchCodex + `turn_context","payload":{"cwd":"/home/dev/app","model":"gpt-5.2-codex","summary":"{text}"}}`},
	{envelopes.Codex, "compacted", []int{20_000}, benchCodex + `compacted","payload":{"message":"","replacement_history":[{"type":"message","role":"user","content":[{"type":"input_text","text":"{text}"}]}]}}`},
	{envelopes.Codex, "unknown", []int{1_000}, benchCodex + `of_tomorrow","payload":{"x":"{text}"}}`},
}

// BenchmarkNormalize is the price of one record by type and size.
//
//	go test ./normalizers -run '^$' -bench BenchmarkNormalize -benchmem -count 6
func BenchmarkNormalize(b *testing.B) {
	const distinct = 512
	const content = `the quick brown fox jumps over the \"lazy\" dog\n`
	for _, l := range benchLines {
		for _, size := range l.sizes {
			b.Run(fmt.Sprintf("source=%s/type=%s/size=%d", l.source, l.kind, size), func(b *testing.B) {
				text := strings.Repeat(content, (size+len(content)-1)/len(content))
				records := make([]core.Record, distinct)
				for i := range records {
					line := strings.NewReplacer("{id}", strconv.Itoa(i), "{text}", text).Replace(l.line)
					records[i] = core.Record{Source: l.source, Session: "s", Sequence: uint64(i + 1), Stored: normalizerstest.Modified, Data: []byte(line)}
				}
				b.SetBytes(int64(len(records[0].Data)))
				b.ReportAllocs()
				var s *core.Session
				for i := 0; b.Loop(); i++ {
					if i%distinct == 0 {
						s = normalizers.NewSession(l.source, "s")
					}
					if _, err := normalizers.Normalize(s, records[i%distinct]); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// largest is the largest file of a source in the corpus.
func largest(b *testing.B, s normalizerstest.Suite) normalizerstest.CorpusFile {
	b.Helper()
	if len(s.Folders) == 0 {
		b.Skip("the corpus has no log of it")
	}
	return slices.MaxFunc(normalizerstest.Corpus(b, s), func(x, y normalizerstest.CorpusFile) int { return len(x.Data) - len(y.Data) })
}

// BenchmarkFile is a whole file of the corpus, framed before.
//
//	TRIBUTARY_CORPUS=... go test ./normalizers -run '^$' -bench BenchmarkFile -benchmem -count 6
func BenchmarkFile(b *testing.B) {
	for _, s := range suites {
		b.Run("source="+string(s.Source), func(b *testing.B) {
			f := largest(b, s)
			records := normalizerstest.Frame(normalizerstest.FileNamed(s.Source, f.Name), f.Data)
			b.SetBytes(int64(len(f.Data)))
			b.ReportAllocs()
			for b.Loop() {
				normalizerstest.Fold(normalizers.Normalize, records)
			}
			b.ReportMetric(float64(len(records))*float64(b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
}

// BenchmarkFraming cuts a file of the corpus into records, as it comes from a disk.
//
//	TRIBUTARY_CORPUS=... go test ./normalizers -run '^$' -bench BenchmarkFraming -benchmem -count 6
func BenchmarkFraming(b *testing.B) {
	for _, s := range suites {
		for _, part := range []int{4 << 10, 64 << 10, 1 << 20} {
			b.Run(fmt.Sprintf("source=%s/write=%d", s.Source, part), func(b *testing.B) {
				f := largest(b, s)
				b.SetBytes(int64(len(f.Data)))
				b.ReportAllocs()
				for b.Loop() {
					framer := normalizers.NewFramer(normalizerstest.FileNamed(s.Source, f.Name))
					for p := range slices.Chunk(f.Data, part) {
						_, _ = framer.Write(p) // never fails by contract
						for _, ok := framer.Next(); ok; _, ok = framer.Next() {
						}
					}
					framer.Close()
					normalizerstest.Drain(framer)
				}
			})
		}
	}
}

// BenchmarkSession is the price of writing and reading a state, small and large.
//
//	TRIBUTARY_CORPUS=... go test ./normalizers -run '^$' -bench 'BenchmarkSession$' -benchmem -count 6
func BenchmarkSession(b *testing.B) {
	for _, s := range suites {
		b.Run("source="+string(s.Source), func(b *testing.B) {
			f := largest(b, s)
			records := normalizerstest.Frame(normalizerstest.FileNamed(s.Source, f.Name), f.Data)
			for _, n := range []int{10, 100, len(records)} {
				sessions := make(map[string]*core.Session)
				for _, r := range records[:min(n, len(records))] {
					normalizerstest.FoldOne(normalizers.Normalize, sessions, r)
				}
				session := sessions[records[0].Record.Session]
				encoded := session.Encode()
				b.Run(fmt.Sprintf("records=%d/op=encode", n), func(b *testing.B) {
					b.SetBytes(int64(len(encoded)))
					b.ReportAllocs()
					for b.Loop() {
						session.Encode()
					}
				})
				b.Run(fmt.Sprintf("records=%d/op=decode", n), func(b *testing.B) {
					b.SetBytes(int64(len(encoded)))
					b.ReportAllocs()
					for b.Loop() {
						if _, err := normalizers.DecodeSession(encoded); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		})
	}
}

// BenchmarkSessionSize reports how large encoded states are over the corpus: at the end
// of each session, and after every record, as they are written (goal: p50 under 1 KiB,
// p99 under 48 KiB, at most 128 KiB).
//
//	TRIBUTARY_CORPUS=... go test ./normalizers -run '^$' -bench BenchmarkSessionSize -benchtime 1x
func BenchmarkSessionSize(b *testing.B) {
	for _, s := range suites {
		b.Run("source="+string(s.Source), func(b *testing.B) {
			files := normalizerstest.Corpus(b, s)
			var ends, records []int
			for b.Loop() {
				ends, records = ends[:0], records[:0]
				for _, f := range files {
					sessions := make(map[string]*core.Session)
					for _, r := range normalizerstest.Frame(normalizerstest.FileNamed(s.Source, f.Name), f.Data) {
						normalizerstest.FoldOne(normalizers.Normalize, sessions, r)
						n := len(sessions[r.Record.Session].Encode())
						if r.Record.Origin.End {
							ends = append(ends, n)
						} else {
							records = append(records, n)
						}
					}
				}
			}
			for when, sizes := range map[string][]int{"end": ends, "record": records} {
				slices.Sort(sizes)
				at := func(percent int) float64 { return float64(sizes[(len(sizes)-1)*percent/100]) }
				b.ReportMetric(at(50), when+"-p50-bytes")
				b.ReportMetric(at(99), when+"-p99-bytes")
				b.ReportMetric(at(100), when+"-max-bytes")
			}
		})
	}
}

// BenchmarkResend is a file that has been read before: every record is a duplicate by its
// position.
//
//	TRIBUTARY_CORPUS=... go test ./normalizers -run '^$' -bench BenchmarkResend -benchmem -count 6
func BenchmarkResend(b *testing.B) {
	for _, s := range suites {
		b.Run("source="+string(s.Source), func(b *testing.B) {
			f := largest(b, s)
			records := normalizerstest.Frame(normalizerstest.FileNamed(s.Source, f.Name), f.Data)
			sessions := make(map[string]*core.Session)
			for _, r := range records {
				normalizerstest.FoldOne(normalizers.Normalize, sessions, r)
			}
			b.SetBytes(int64(len(f.Data)))
			b.ReportAllocs()
			for b.Loop() {
				for _, r := range records {
					normalizerstest.FoldOne(normalizers.Normalize, sessions, r)
				}
			}
		})
	}
}

// BenchmarkEncode is the price of an event as JSON, beside that of making it.
//
//	TRIBUTARY_CORPUS=... go test ./normalizers -run '^$' -bench BenchmarkEncode -benchmem -count 6
func BenchmarkEncode(b *testing.B) {
	for _, s := range suites {
		b.Run("source="+string(s.Source), func(b *testing.B) {
			f := largest(b, s)
			list := normalizerstest.Events(normalizerstest.Fold(normalizers.Normalize, normalizerstest.Frame(normalizerstest.FileNamed(s.Source, f.Name), f.Data)))
			var out bytes.Buffer
			b.ReportAllocs()
			for b.Loop() {
				out.Reset()
				for _, e := range list {
					line, err := normalizerstest.Encode(e)
					if err != nil {
						b.Fatal(err)
					}
					out.Write(line)
				}
			}
			b.SetBytes(int64(out.Len()))
		})
	}
}

// BenchmarkCorpus is what a worker computes for the corpus: every file of an agent, framed
// before, to messages. One core is enough: GOMAXPROCS includes the garbage collector.
//
//	TRIBUTARY_CORPUS=... GOMAXPROCS=1 go test ./normalizers -run '^$' -bench BenchmarkCorpus -benchmem -count 6
func BenchmarkCorpus(b *testing.B) {
	provenance := envelopes.Provenance{Generation: "v1", Partition: 3, RawStream: "RAW", RawSequence: 1}
	for _, s := range suites {
		b.Run("source="+string(s.Source), func(b *testing.B) {
			var records [][]normalizers.Framed
			size, count := 0, 0
			for _, f := range normalizerstest.Corpus(b, s) {
				framed := normalizerstest.Frame(normalizerstest.FileNamed(s.Source, f.Name), f.Data)
				records = append(records, framed)
				size, count = size+len(f.Data), count+len(framed)
			}
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				for _, file := range records {
					for _, r := range normalizerstest.Fold(normalizers.Normalize, file) {
						for i := range r.Result.Events {
							if _, _, err := envelopes.EncodeEvent(&r.Result.Events[i].Event, provenance, envelopes.Binary); err != nil {
								b.Fatal(err)
							}
						}
					}
				}
			}
			b.ReportMetric(b.Elapsed().Seconds()*1e5/float64(count*b.N), "s/100k-records")
		})
	}
}
