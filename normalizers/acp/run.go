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
	maxStreamed = 64 // messages of a run's stream that a session remembers
)

// runs are the runs of a session.
type runs struct {
	Run   string           `json:"run,omitzero"`   // the current run: the last one named by a record
	Agent string           `json:"agent,omitzero"` // agent of the run
	Runs  core.Window[run] `json:"runs,omitzero"`
}

func (rs *runs) size() int {
	n := len(rs.Run) + len(rs.Agent)
	for _, r := range rs.Runs {
		n += 64 + 8*len(r.Streamed)
	}
	return n
}

// run is what a session remembers about a run.
type run struct {
	Run  core.Fingerprint `json:"r"`
	From int              `json:"f,omitzero"` // the messages From ..
	Next int              `json:"n,omitzero"` // .. Next-1 came in the stream; Next is the number of the next one
	// Streamed are the content hashes of the last of these; zero if unknown.
	Streamed core.Window[core.Fingerprint] `json:"s,omitzero"`
	Last     core.Fingerprint              `json:"l,omitzero"` // hash of the run as last stated
	Asked    core.Fingerprint              `json:"a,omitzero"` // question whose answer it awaits
}

// streamed returns the content hash of message i of the run, which came in the stream; zero if unknown. ok is false
// if it did not come.
func (r *run) streamed(i int) (content core.Fingerprint, ok bool) {
	if i < r.From || i >= r.Next {
		return core.Fingerprint{}, false
	}
	if at := i - (r.Next - len(r.Streamed)); at >= 0 {
		return r.Streamed[at], true
	}
	return core.Fingerprint{}, true
}

// current returns what is known about the current run; empty if it has no id.
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

// enterRun makes the run with this id the current one. The open message belongs to the previous run.
func enterRun(m *mapper, id string) {
	if id != m.st.Run {
		m.st.Open.flush(m)
		m.st.Run = id
	}
}

// noteRun notes what a run, or a request for one, states about its session.
func noteRun(m *mapper, r *wireRun) {
	m.Session.SetResumeID(string(r.SessionID))
	m.Session.SetTextExtension("agentName", r.AgentName)
	if r.AgentName != "" {
		m.st.Agent = core.Cut(string(r.AgentName), core.MaxName)
	}
}

// emitRun emits a run: the messages of its output that were not emitted, its state, and its question. A run stated
// again yields nothing.
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
	m.TS = runTime(m, &r.run) // its messages may be later
	emitState(m, r)
	is.Last, is.Asked = stated, emitQuestion(m, r.question, is.Asked)
	m.st.runs.set(is, &m.Session.Lost)
}

// endStream emits the open message. The last message of the output completes it if it begins with the open one.
func endStream(m *mapper, output []envelopes.ACPMessage) {
	if last := len(output) - 1; last >= 0 && m.st.Open.isPrefixOf(&output[last]) {
		m.st.Open.close(m, m.st.Open.emit(m, &output[last], nil))
	}
	m.st.Open.flush(m)
}

// emitOutput emits the messages of a run's output that did not come in its stream. It matches them by content hash,
// because records of the stream may be missing; by position only where the hash of the streamed message is unknown.
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
			continue // the streamed message i, whose content is unknown, counts as this message
		case ok && slices.Contains(contents, streamed):
			e.run = "" // another message has the ids of message i, so these are ordinal
		}
		m.emitOnce(&e)
	}
	if n := len(output); n > r.Next {
		r.From, r.Next, r.Streamed = n, n, nil
	}
}

// emitState emits the state of a run: an error if it failed, otherwise meta.
func emitState(m *mapper, r *record) {
	if r.run.Status == "failed" {
		m.emitError(r.value)
	} else {
		m.emitMeta()
	}
}

// emitQuestion emits the question of a run, unless it was asked before. It returns the content hash of the question;
// zero for none.
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

// runTime returns the time of the stated state of a run: the end of a finished run, the creation of a created one.
// Any other state is not earlier than the last event of the session.
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

// emitResume emits a human's answer to the question of a run.
func emitResume(m *mapper, r *record) {
	m.st.Open.flush(m)
	noteRun(m, &r.run)
	m.emitOnce(&emission{message: r.message(), speaker: human})
}

// emitRequest emits the request for a run: the repeated history as far as it was not emitted, and the prompt. The
// output of the run does not repeat the prompt.
func emitRequest(m *mapper, r *record) {
	m.st.Open.flush(m)
	noteRun(m, &r.run)
	m.setTime(r.run.CreatedAt.Ptr())
	emitHistory(m, r.messages, inRequest)
	if len(r.messages) == 0 {
		m.emitMeta()
	}
}
