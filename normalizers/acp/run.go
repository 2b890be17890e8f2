package acp

import (
	"slices"
	"time"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

const (
	maxRuns     = 8  // runs that a session remembers
	maxStreamed = 64 // messages of a run's stream that it remembers
)

// runs are the runs of a session.
type runs struct {
	Run   string           `json:"run,omitzero"`   // the current run: the last one that a record named
	Agent string           `json:"agent,omitzero"` // that runs
	Runs  core.Window[run] `json:"runs,omitzero"`
}

func (rs *runs) size() int {
	n := len(rs.Run) + len(rs.Agent)
	for _, r := range rs.Runs {
		n += 64 + 8*len(r.Streamed)
	}
	return n
}

// run is what a session remembers of a run.
type run struct {
	Run  core.Fingerprint `json:"r"`
	From int              `json:"f,omitzero"` // messages From ..
	Next int              `json:"n,omitzero"` // .. Next-1 came in the stream; the next one there is Next
	// Streamed are the content hashes of the last of these; zero where one is not known.
	Streamed core.Window[core.Fingerprint] `json:"s,omitzero"`
	Last     core.Fingerprint              `json:"l,omitzero"` // the run, as it was last stated
	Asked    core.Fingerprint              `json:"a,omitzero"` // the question that it awaits the answer to
}

// streamed returns the content hash of the message that came in the stream as the i-th of
// the run, zero where it is not known. ok is false when none came.
func (r *run) streamed(i int) (content core.Fingerprint, ok bool) {
	if i < r.From || i >= r.Next {
		return core.Fingerprint{}, false
	}
	if at := i - (r.Next - len(r.Streamed)); at >= 0 {
		return r.Streamed[at], true
	}
	return core.Fingerprint{}, true
}

// current returns what is remembered of the current run: nothing where it has no id.
func (rs *runs) current() run {
	key := core.FingerprintOf(rs.Run)
	for _, r := range rs.Runs {
		if r.Run == key {
			return r
		}
	}
	return run{Run: key}
}

// set remembers the current run, unless it has no id.
func (rs *runs) set(r run, lost *uint64) {
	if rs.Run == "" {
		return
	}
	others := rs.Runs.Without(func(o run) bool { return o.Run == r.Run })
	rs.Runs = others.Push(r, maxRuns, lost)
}

// enterRun makes the run of this id the current one. The open message is of the run before.
func enterRun(m *mapper, id string) {
	if id != m.st.Run {
		m.st.Open.flush(m)
		m.st.Run = id
	}
}

// noteRun notes what a run, or the request for one, states of its session.
func noteRun(m *mapper, r *wireRun) {
	m.Session.SetResumeID(string(r.SessionID))
	m.Session.SetTextExtension("agentName", r.AgentName)
	if r.AgentName != "" {
		m.st.Agent = core.Cut(string(r.AgentName), core.MaxName)
	}
}

// emitRun emits a run: the messages of its output that were not emitted, its state, and its
// question. A run that is stated once more yields nothing.
func emitRun(m *mapper, r *record) {
	enterRun(m, core.BoundID(string(r.run.RunID)))
	noteRun(m, &r.run)
	stated := core.FingerprintOf(lenient.CompactText(r.value))
	if m.st.Run != "" && m.st.current().Last == stated {
		return
	}
	m.TS = runTime(m, &r.run)
	endStream(m, r.messages)
	is := m.st.current()
	emitOutput(m, &is, r.messages)
	m.TS = runTime(m, &r.run) // its messages may be later than it was
	emitState(m, r)
	is.Last, is.Asked = stated, emitQuestion(m, r.question, is.Asked)
	m.st.runs.set(is, &m.Session.Lost)
}

// endStream emits the open message: completed by the last message of the output where it
// begins that one.
func endStream(m *mapper, output []envelopes.ACPMessage) {
	if last := len(output) - 1; last >= 0 && m.st.Open.isPrefixOf(&output[last]) {
		m.st.Open.close(m, m.st.Open.emit(m, &output[last], nil))
	}
	m.st.Open.flush(m)
}

// emitOutput emits the messages of a run's output that did not come in its stream. They are
// matched by content hash, not by position, because records of the stream may be missing.
func emitOutput(m *mapper, r *run, output []envelopes.ACPMessage) {
	contents := make([]core.Fingerprint, len(output))
	for i := range output {
		contents[i] = contentHash(byRole, &output[i])
	}
	unmatched := slices.Clone(r.Streamed)
	for i := range output {
		e := emission{message: &output[i], run: m.st.Run, index: i}
		streamed, ok := r.streamed(i)
		switch at := slices.Index(unmatched, contents[i]); {
		case at >= 0:
			unmatched = slices.Delete(unmatched, at, at+1)
			continue
		case ok && streamed == (core.Fingerprint{}):
			continue // the i-th of the stream, as far as is known
		case ok && slices.Contains(contents, streamed):
			e.run = "" // another message of the output has the ids of the i-th: these are ordinal
		}
		m.emitOnce(&e)
	}
	if n := len(output); n > r.Next {
		r.From, r.Next, r.Streamed = n, n, nil
	}
}

// emitState emits the state of a run: an error where it failed, else meta.
func emitState(m *mapper, r *record) {
	if r.run.Status == "failed" {
		m.emitError(r.value)
	} else {
		m.emitMeta()
	}
}

// emitQuestion emits the question of a run, unless it has asked it before. It returns the
// content hash of the question, zero where there is none.
func emitQuestion(m *mapper, question *envelopes.ACPMessage, asked core.Fingerprint) core.Fingerprint {
	if question == nil {
		return core.Fingerprint{}
	}
	content := contentHash(agent, question)
	if content != asked {
		m.emitOnce(&emission{message: question, speaker: agent})
	}
	return content
}

// runTime returns when a run was in the state that it states: the end of one that has
// ended, the creation of one that was created. Another one is not earlier than the last
// event of the session.
func runTime(m *mapper, r *wireRun) string {
	created, finished := string(r.CreatedAt), string(r.FinishedAt)
	ts, ok := parseTime(&finished, &created)
	if !ok {
		return m.TS
	}
	if _, ended := parseTime(&finished); ended || r.Status == "created" || m.Session.TS == "" {
		return ts
	}
	now, err := time.Parse(time.RFC3339Nano, ts)
	last, lastErr := time.Parse(time.RFC3339Nano, m.Session.TS)
	if err == nil && lastErr == nil && now.Before(last) {
		return m.Session.TS
	}
	return ts
}

// emitResume emits the answer of a human to the question of a run.
func emitResume(m *mapper, r *record) {
	m.st.Open.flush(m)
	noteRun(m, &r.run)
	m.emitOnce(&emission{message: r.message(), speaker: human})
}

// emitRequest emits the request for a run: the history that it repeats as far as that was
// not emitted, and the prompt. The output of the run does not repeat it.
func emitRequest(m *mapper, r *record) {
	m.st.Open.flush(m)
	noteRun(m, &r.run)
	m.setTime(r.run.CreatedAt.Ptr())
	emitHistory(m, r.messages, inRequest)
	if len(r.messages) == 0 {
		m.emitMeta()
	}
}
