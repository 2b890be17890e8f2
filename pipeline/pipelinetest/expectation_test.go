package pipelinetest_test

import (
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// An oracle that finds nothing is worth nothing: each kind of damage is found.
func TestCompareFindsDamage(t *testing.T) {
	t.Parallel()
	top := streams.Topology{Generation: "v1", Partitions: 2}
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	pipelinetest.Publish(t, js, pipelinetest.Workload(1, 6, 400)...)
	s, err := worker.New(js, worker.Config{Topology: top})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(t.Context()) }()
	pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	s.Drain()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	content := read(t, js)

	at := func(kind string) int { // the third message of a kind
		n := 0
		return slices.IndexFunc(content, func(m *nats.Msg) bool {
			if strings.HasPrefix(m.Subject, kind) {
				n++
			}
			return n == 3
		})
	}
	event, letter, state, checkpoint := at("events."), at("deadletters."), at("states."), slices.IndexFunc(content, func(m *nats.Msg) bool {
		return strings.HasPrefix(m.Subject, "checkpoints.")
	})
	later := event + 1 + slices.IndexFunc(content[event+1:], func(m *nats.Msg) bool {
		return m.Header.Get("ce-subject") == content[event].Header.Get("ce-subject")
	})
	changed := func(i int, change func(*nats.Msg)) func([]*nats.Msg) []*nats.Msg {
		return func(list []*nats.Msg) []*nats.Msg {
			m := &nats.Msg{Subject: list[i].Subject, Data: slices.Clone(list[i].Data), Header: nats.Header{}}
			for name, values := range list[i].Header {
				m.Header[name] = slices.Clone(values)
			}
			change(m)
			list[i] = m
			return list
		}
	}
	without := func(i int) func([]*nats.Msg) []*nats.Msg {
		return func(list []*nats.Msg) []*nats.Msg { return slices.Delete(list, i, i+1) }
	}
	twice := func(of ...int) func([]*nats.Msg) []*nats.Msg {
		return func(list []*nats.Msg) []*nats.Msg {
			for _, i := range of {
				list = append(list, list[i])
			}
			return list
		}
	}
	for name, c := range map[string]struct {
		damage func([]*nats.Msg) []*nats.Msg
		says   string
		counts [3]int // missing, doubled, out of order
	}{
		"event missing":  {without(event), "is missing", [3]int{1, 0, 1}},
		"event doubled":  {twice(event), "is doubled", [3]int{0, 1, 1}},
		"events again":   {twice(event, later), "is doubled", [3]int{0, 2, 1}},
		"events swapped": {func(l []*nats.Msg) []*nats.Msg { l[event], l[later] = l[later], l[event]; return l }, "is out of order", [3]int{0, 0, 3}},
		"event changed": {changed(event, func(m *nats.Msg) {
			m.Data = []byte(strings.Replace(string(m.Data), "/home/dev", "/home/def", 1))
		}), "has other bytes", [3]int{}},
		"event of another": {changed(event, func(m *nats.Msg) { m.Header["ce-rawsequence"] = []string{"9999"} }), "is of record 9999", [3]int{}},
		"letter missing":   {without(letter), "is missing", [3]int{}},
		"letter doubled":   {twice(letter), "2 dead letters", [3]int{}},
		"letter changed":   {changed(letter, func(m *nats.Msg) { m.Data = []byte("x") }), "dead letter has other bytes", [3]int{}},
		"letter renamed":   {changed(letter, func(m *nats.Msg) { m.Header[envelopes.HeaderReason] = []string{"panic"} }), "dead letter panic, want malformed", [3]int{}},
		"letter invented":  {changed(letter, func(m *nats.Msg) { m.Header[envelopes.HeaderSequence] = []string{"1"} }), "want none", [3]int{}},
		"state missing":    {without(state), "state is missing", [3]int{}},
		"state of before":  {changed(state, func(m *nats.Msg) { m.Data = empty(t, m.Data) }), "state differs", [3]int{}},
		"no checkpoint":    {without(checkpoint), "has no checkpoint", [3]int{}},
		"state archived":   {changed(state, func(m *nats.Msg) { archive(t, m, m.Data) }), "", [3]int{}},
		"archive of before": {changed(state, func(m *nats.Msg) {
			archive(t, m, empty(t, m.Data))
		}), "state differs", [3]int{}},
		"archive behind": {func(list []*nats.Msg) []*nats.Msg {
			old := &nats.Msg{Subject: list[state].Subject, Data: list[state].Data, Header: nats.Header{}}
			archive(t, old, empty(t, old.Data))
			return append(list, old)
		}, "", [3]int{}},
		"state and change": {func(list []*nats.Msg) []*nats.Msg {
			return append(list, change(t, list[state], state+1))
		}, "", [3]int{}},
		"change of before": {func(list []*nats.Msg) []*nats.Msg {
			return append(list, change(t, list[state], state))
		}, "", [3]int{}},
		"change of a lost state": {func(list []*nats.Msg) []*nats.Msg {
			return append(list, change(t, list[state], len(list)))
		}, "is a change of message", [3]int{}},
		"second state": {twice(state), "second state of a session", [3]int{}},
		"nothing":      {func(l []*nats.Msg) []*nats.Msg { return l }, "", [3]int{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			other := pipelinetest.NewServer(t).Provision(top)
			pipelinetest.Publish(t, other, pipelinetest.Workload(1, 6, 400)...)
			stream, err := other.Stream(t.Context(), streams.EventsStream("v1"))
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.Purge(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, m := range c.damage(slices.Clone(content)) {
				if _, err := other.PublishMsg(t.Context(), m); err != nil {
					t.Fatal(err)
				}
			}
			// Messages without a rollup are not what a killed server leaves.
			r, err := pipelinetest.Expectation{Topology: top, Killed: true}.Compare(t.Context(), other)
			if err == nil {
				err = r.Err()
			}
			switch {
			case c.says == "" && err != nil:
				t.Error(err)
			case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
				t.Errorf("found %v, want %q", err, c.says)
			}
			if r == nil { // what the events stream holds cannot be read
				return
			}
			if counts := [3]int{r.Missing, r.Doubled, r.OutOfOrder}; counts != c.counts {
				t.Errorf("missing, doubled, out of order: %d, want %d", counts, c.counts)
			}
		})
	}
}

// archive makes the message of a state that of an archive with another state of its session.
func archive(tb testing.TB, m *nats.Msg, state []byte) {
	tb.Helper()
	e, err := zstd.NewWriter(nil)
	if err != nil {
		tb.Fatal(err)
	}
	var name string
	m.Subject, name = envelopes.ArchiveOf(m.Subject)
	plain := append(binary.AppendUvarint(nil, uint64(len(name))), name...)
	plain = binary.AppendUvarint(plain, 7)
	plain = append(binary.AppendUvarint(plain, uint64(len(state))), state...)
	m.Data = e.EncodeAll(plain, []byte{1})
}

// empty returns the state of the session of a state before its first record.
func empty(tb testing.TB, state []byte) []byte {
	tb.Helper()
	s := decode(tb, state)
	return normalizers.NewSession(s.Source(), s.ID()).Encode()
}

func decode(tb testing.TB, state []byte) *core.Session {
	tb.Helper()
	s, err := normalizers.DecodeSession(state)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// change returns a message that nothing has changed of a state since it was stored at a sequence.
func change(tb testing.TB, state *nats.Msg, sequence int) *nats.Msg {
	tb.Helper()
	s := decode(tb, state.Data)
	s.Mark()
	return &nats.Msg{
		Subject: envelopes.ChangeSubject(state.Subject), Header: nats.Header{},
		Data: append(binary.AppendUvarint(nil, uint64(sequence)), s.EncodeChange()...),
	}
}

// read reads all that a generation holds, without the headers of its batches. A state is one
// message, at the place of its change where it has one: the messages get other sequences when they are published again.
func read(t *testing.T, js jetstream.JetStream) []*nats.Msg {
	t.Helper()
	stream, err := js.Stream(t.Context(), streams.EventsStream("v1"))
	if err != nil {
		t.Fatal(err)
	}
	var out []*nats.Msg
	var sequences []uint64 // of out
	for n := uint64(1); n <= stream.CachedInfo().State.LastSeq; n++ {
		m, err := stream.GetMsg(t.Context(), n)
		if err != nil {
			continue
		}
		c := &nats.Msg{Subject: m.Subject, Data: m.Data, Header: nats.Header{}}
		for name, values := range m.Header {
			if !strings.HasPrefix(name, "Nats-") {
				c.Header[name] = values
			}
		}
		if state := envelopes.StateOf(c.Subject); state != c.Subject {
			base, width := binary.Uvarint(c.Data)
			i := slices.IndexFunc(out, func(m *nats.Msg) bool { return m.Subject == state })
			if i < 0 || sequences[i] != base {
				continue
			}
			changed, err := normalizers.DecodeChanged(out[i].Data, c.Data[width:])
			if err != nil {
				t.Fatal(err)
			}
			out, sequences = slices.Delete(out, i, i+1), slices.Delete(sequences, i, i+1)
			c.Subject, c.Data = state, changed.Encode()
		}
		out, sequences = append(out, c), append(sequences, m.Sequence)
	}
	if len(out) < 100 {
		t.Fatal("only " + strconv.Itoa(len(out)) + " messages")
	}
	return out
}
