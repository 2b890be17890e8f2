package load

import (
	"bytes"
	_ "embed"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
)

// kindsTable has the agents of the generated mix: the share of their records, in thousandths, and
// the sizes of records at [sizeRanks], in bytes, the most frequent agent first. They are those of
// 46,005 records of 445 public sessions, which have 2.9 KB in the mean and 1 KB in the median.
//
//go:embed mix.tsv
var kindsTable string

var sizeRanks = [...]float64{0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1}

// kind is an agent in the mix.
type kind struct {
	source envelopes.Source
	share  int
	sizes  [len(sizeRanks)]float64
}

// kinds reads the table once.
var kinds = sync.OnceValue(func() []kind {
	var list []kind
	for line := range strings.Lines(kindsTable) {
		fields := strings.Fields(line)
		if fields[0] == "source" {
			continue
		}
		k := kind{source: envelopes.Source(fields[0])}
		_, err := fmt.Sscan(fields[1], &k.share)
		for i := range k.sizes {
			if err == nil {
				_, err = fmt.Sscan(fields[2+i], &k.sizes[i])
			}
		}
		if err != nil {
			panic(fmt.Sprintf("mix.tsv: %v", err)) // a mistake in the table
		}
		list = append(list, k)
	}
	return list
})

// The number of records in a session: median and spread of a log-normal distribution.
const (
	sessionMedian = 20
	sessionSpread = 1.8
)

// Mix returns n generated records. They come in turn from the given number of sessions; if sessions is 0, from
// sessions as long as real ones, 32 at a time. They have the shapes of the built-in samples, with strings extended to
// the sizes of real records.
func Mix(n, sessions int) ([]core.Record, error) {
	m := &mix{random: rand.New(rand.NewPCG(1, 2)), samples: make(map[envelopes.Source][]core.Record)}
	if err := m.readSamples(); err != nil {
		return nil, err
	}
	open := make([]*session, live)
	if sessions > 0 {
		open = make([]*session, sessions)
	}
	out := make([]core.Record, n)
	for i := range out {
		s := &open[i%len(open)]
		if *s == nil || sessions == 0 && (*s).left == 0 {
			*s = m.newSession()
		}
		out[i] = m.next(*s)
	}
	return out, nil
}

// immediateSessions and immediateBytes are the number of sessions in [Immediate] and the size of its largest record.
const (
	immediateSessions = 200
	immediateBytes    = 256 << 10
)

// Immediate returns n generated records whose events wait for no other record, to measure latency: of one agent and
// many sessions, each in one message.
func Immediate(n int) ([]core.Record, error) {
	all, err := Mix(2*n+immediateSessions, immediateSessions)
	all = slices.DeleteFunc(all, func(r core.Record) bool {
		return r.Source != kinds()[0].source || len(r.Data) > immediateBytes
	})
	return Repeat(all, n), err
}

// mix generates records.
type mix struct {
	random   *rand.Rand
	samples  map[envelopes.Source][]core.Record
	sessions int
}

// session is a session that is being generated: it repeats the sample with other ids.
type session struct {
	kind   int
	id     string
	next   int // index in the sample
	repeat int
	left   int // records until it ends
}

// readSamples reads the first sample log of each agent.
func (m *mix) readSamples() error {
	for _, v := range normalizers.Vendors() {
		err := fs.WalkDir(v.Samples(), ".", func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || m.samples[v.Source] != nil {
				return err
			}
			data, err := fs.ReadFile(v.Samples(), path)
			m.samples[v.Source] = slices.DeleteFunc(frame(path, data), func(r core.Record) bool {
				return r.Source != v.Source || r.Origin.End || r.Origin.Digest != ""
			})
			if len(m.samples[v.Source]) == 0 {
				delete(m.samples, v.Source) // a document
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	for _, k := range kinds() {
		if m.samples[k.source] == nil {
			return fmt.Errorf("there is no sample of %s", k.source)
		}
	}
	return nil
}

func (m *mix) newSession() *session {
	m.sessions++
	s := &session{
		id:   fmt.Sprintf("mix-%d", m.sessions),
		left: 1 + int(sessionMedian*math.Exp(sessionSpread*m.random.NormFloat64())),
	}
	draw := m.random.IntN(1000)
	for draw >= kinds()[s.kind].share {
		draw -= kinds()[s.kind].share
		s.kind++
	}
	return s
}

// next returns the next record of a session.
func (m *mix) next(s *session) core.Record {
	is := kinds()[s.kind]
	sample := m.samples[is.source]
	r := core.Record{Source: is.source, Session: s.id, Data: slices.Clone(sample[s.next].Data)}
	if s.repeat > 0 {
		r.Data = otherIDs(r.Data, fmt.Sprintf("-%d", s.repeat))
	}
	r.Data = extend(r.Data, m.size(s.kind))
	s.left--
	if s.next++; s.next == len(sample) {
		s.next, s.repeat = 0, s.repeat+1
	}
	return r
}

// size draws the size of a record of a kind.
func (m *mix) size(kind int) int {
	rank := m.random.Float64()
	i := 1
	for rank > sizeRanks[i] {
		i++
	}
	sizes := kinds()[kind].sizes
	part := (rank - sizeRanks[i-1]) / (sizeRanks[i] - sizeRanks[i-1])
	return int(sizes[i-1] * math.Pow(sizes[i]/sizes[i-1], part))
}

// idNames are the names of members whose strings identify a record, a message or a call.
var idNames = []string{
	"id", "uuid", "parentUuid", "leafUuid", "messageId", "message_id", "messageID", "tool_use_id", "call_id", "callId", "callID",
	"toolCallId", "partID", "item_id", "parentId", "requestId", "run_id", "interactionId", "turn_id",
}

// otherIDs returns a record with a suffix added to its ids.
func otherIDs(data []byte, suffix string) []byte {
	return edited(data, func(name string, from, to int) (at int, text string) {
		if slices.Contains(idNames, name) {
			return to - 1, suffix
		}
		return 0, ""
	})
}

// filler is text as agents write and read it, escaped for JSON.
const filler = `\tif err := run(ctx, \"go test ./...\"); err != nil {\n\t\treturn fmt.Errorf(\"build: %w\", err)\n\t}\n` +
	`The test fails because the ledger rounds each line before it adds them up. I change the order, and run it again.\n`

// extend returns a record of about size bytes, extending its longest string.
func extend(data []byte, size int) []byte {
	missing := size - len(data)
	if missing <= 0 {
		return data
	}
	longest, end := 0, 0
	edited(data, func(name string, from, to int) (int, string) {
		if to-from > longest && !slices.Contains(idNames, name) {
			longest, end = to-from, to-1
		}
		return 0, ""
	})
	if end == 0 {
		return data
	}
	text := strings.Repeat(filler, 1+missing/len(filler))
	if cut := strings.LastIndexByte(text[:missing], ' '); cut >= 0 {
		text = text[:cut]
	} else {
		text = ""
	}
	return slices.Insert(data, end, []byte(text)...)
}

// edited returns JSON with insertions. by is called for each string value, and returns what to insert and where.
func edited(data []byte, by func(name string, from, to int) (at int, text string)) []byte {
	var out []byte
	done := 0
	name := ""
	d := jsontext.NewDecoder(bytes.NewBuffer(data), jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	for {
		token, err := d.ReadToken()
		if err != nil {
			return append(out, data[done:]...)
		}
		if token.Kind() != jsontext.KindString {
			continue
		}
		to := int(d.InputOffset())
		if in, n := d.StackIndex(d.StackDepth()); in == '{' && n%2 == 1 {
			name = token.String()
			continue
		}
		from := bytes.LastIndexByte(data[:to-1], '"')
		for from > 0 && data[from-1] == '\\' { // an escaped quote inside the string
			from = bytes.LastIndexByte(data[:from], '"')
		}
		if at, text := by(name, from, to); text != "" {
			out = append(append(out, data[done:at]...), text...)
			done = at
		}
	}
}
