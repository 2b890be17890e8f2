package envelopes

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes/jsonscan"
)

// appendPlain is the fast path of [AgentEventV1.AppendJSON]: it writes the fields one by one, and native JSON
// unchanged. It returns false for an event that the library must write or refuse: it has strings that are not UTF-8,
// or native JSON that is not strict, not compact or of a rare kind. What is appended then is invalid. BenchmarkJSON
// compares both.
func (e *AgentEventV1) appendPlain(dst []byte, c Checked) ([]byte, bool) {
	w := plainWriter{b: dst, ok: true}
	w.text(`{"schema_version":`, e.SchemaVersion)
	w.text(`,"source":`, string(e.Source))
	w.text(`,"project_hash":`, e.ProjectHash)
	textOrNull(&w, `,"project_root":`, e.ProjectRoot)
	w.text(`,"session_id":`, e.SessionID)
	w.text(`,"event_id":`, e.EventID)
	textOrNull(&w, `,"parent_event_id":`, e.ParentEventID)
	w.text(`,"ts":`, e.TS)
	w.text(`,"event_type":`, string(e.EventType))
	textOrNull(&w, `,"role":`, e.Role)
	textOrNull(&w, `,"channel":`, e.Channel)
	textOrNull(&w, `,"text":`, e.Text)
	textOrNull(&w, `,"tool_name":`, e.ToolName)
	textOrNull(&w, `,"tool_call_id":`, e.ToolCallID)
	textOrNull(&w, `,"tool_status":`, e.ToolStatus)
	w.numberOrNull(`,"tool_latency_ms":`, e.ToolLatencyMS)
	w.numberOrNull(`,"tool_exit_code":`, e.ToolExitCode)
	textOrNull(&w, `,"file_path":`, e.FilePath)
	textOrNull(&w, `,"file_language":`, e.FileLanguage)
	textOrNull(&w, `,"file_op":`, e.FileOp)
	textOrNull(&w, `,"model":`, e.Model)
	w.numberOrNull(`,"tokens_input":`, e.TokensInput)
	w.numberOrNull(`,"tokens_output":`, e.TokensOutput)
	w.numberOrNull(`,"tokens_total":`, e.TokensTotal)
	w.numberOrNull(`,"tokens_cached":`, e.TokensCached)
	w.numberOrNull(`,"tokens_thinking":`, e.TokensThinking)
	w.numberOrNull(`,"tokens_tool":`, e.TokensTool)
	textOrNull(&w, `,"agent_id":`, e.AgentID)
	if e.Raw == nil {
		w.add(`,"raw":null`)
	} else {
		w.native(`,"raw":`, e.Raw, maxDepth-2, c.Raw)
	}
	w.additive(e, c)
	w.add("}")
	return w.b, w.ok
}

// additive appends the non-empty additive fields.
func (w *plainWriter) additive(e *AgentEventV1, c Checked) {
	if e.Sequence != 0 {
		w.add(`,"sequence":`)
		w.b = strconv.AppendUint(w.b, e.Sequence, 10)
	}
	w.metadata(e.Metadata)
	w.nativeOrNone(`,"tool_metadata":`, e.ToolMetadata, c.ToolMetadata)
	w.nativeOrNone(`,"tool_input":`, e.ToolInput, false)
	if o := e.ToolOutput; o != nil {
		w.add(`,"tool_output":{`)
		w.part(`"stdout":`, o.Stdout)
		w.part(`"stderr":`, o.Stderr)
		w.part(`"diff":`, o.Diff)
		w.add("}")
	}
	if c := e.Content; c != nil {
		w.text(`,"content":{"type":`, c.Type)
		w.part(`"data":`, c.Data)
		w.part(`"url":`, c.URL)
		w.add("}")
	}
	w.nativeOrNone(`,"message_metadata":`, e.MessageMetadata, false)
	w.usage(e.Usage)
	for i := range e.Files {
		if i == 0 {
			w.add(`,"files":[`)
		} else {
			w.add(",")
		}
		w.text(`{"path":`, e.Files[i].Path)
		w.text(`,"op":`, string(e.Files[i].Op))
		w.add("}")
	}
	if len(e.Files) > 0 {
		w.add("]")
	}
	if e.Origin != "" {
		w.text(`,"origin":`, string(e.Origin))
	}
	if e.IsInternal {
		w.add(`,"is_internal":true`)
	}
	if e.Supersedes != "" {
		w.text(`,"supersedes":`, e.Supersedes)
	}
	if e.TextTruncated {
		w.add(`,"text_truncated":true`)
	}
	if e.Via != "" {
		w.text(`,"via":`, string(e.Via))
	}
	w.edge(e.Edge)
	w.vcs(e.VCS)
}

// plainWriter appends members to b. ok becomes false at the first member that it cannot write.
type plainWriter struct {
	b  []byte
	ok bool
}

func (w *plainWriter) add(s string) { w.b = append(w.b, s...) }

// text appends a string member. name includes its punctuation, as for all members.
func (w *plainWriter) text(name, s string) {
	var ok bool
	w.b, ok = jsonscan.AppendString(append(w.b, name...), s)
	w.ok = w.ok && ok
}

func textOrNull[T ~string](w *plainWriter, name string, s *T) {
	if s != nil {
		w.text(name, string(*s))
		return
	}
	w.add(name)
	w.add("null")
}

func (w *plainWriter) numberOrNull(name string, n *int64) {
	w.add(name)
	if n == nil {
		w.add("null")
		return
	}
	w.b = strconv.AppendInt(w.b, *n, 10)
}

// part appends a member of a nested object; nothing for nil.
func (w *plainWriter) part(name string, s *string) {
	if s == nil {
		return
	}
	if w.b[len(w.b)-1] != '{' {
		w.add(",")
	}
	w.text(name, *s)
}

// native appends a member with native JSON of at most depth levels, which it checks unless checked is set.
func (w *plainWriter) native(name string, v jsontext.Value, depth int, checked bool) {
	if !w.ok || !checked && !jsonscan.Check(v, depth).Compact {
		w.ok = false
		return
	}
	w.add(name)
	w.b = append(w.b, v...)
}

func (w *plainWriter) nativeOrNone(name string, v jsontext.Value, checked bool) {
	if v != nil {
		w.native(name, v, maxDepth-2, checked)
	}
}

func (w *plainWriter) usage(u *Usage) {
	if u == nil {
		return
	}
	w.add(`,"usage":`)
	for _, f := range [...]struct {
		name  string
		count int64
	}{
		{`{"input":`, u.Input},
		{`,"cache_read":`, u.CacheRead},
		{`,"cache_write":`, u.CacheWrite},
		{`,"output":`, u.Output},
		{`,"reasoning":`, u.Reasoning},
	} {
		w.add(f.name)
		w.b = strconv.AppendInt(w.b, f.count, 10)
	}
	if u.Key != "" {
		w.text(`,"key":`, u.Key)
	}
	for _, f := range [...]struct {
		name  string
		count int64
	}{
		{`,"cache_write_1h":`, u.CacheWrite1h},
		{`,"web_search_requests":`, u.WebSearchRequests},
		{`,"prompt":`, u.Prompt},
	} {
		if f.count != 0 {
			w.add(f.name)
			w.b = strconv.AppendInt(w.b, f.count, 10)
		}
	}
	if u.CostUSD != 0 {
		w.add(`,"cost_usd":`)
		w.add(jsontext.Float(u.CostUSD).String())
	}
	w.add("}")
}

func (w *plainWriter) edge(e *Edge) {
	if e.IsZero() {
		return
	}
	w.add(`,"edge":{`)
	w.nonEmpty(`"host":`, e.Host)
	w.nonEmpty(`"user":`, e.User)
	if len(e.Labels) > 0 {
		if w.b[len(w.b)-1] != '{' {
			w.add(",")
		}
		w.add(`"labels":{`)
		names, n, ok := plainNames(e.Labels)
		w.ok = w.ok && ok
		for i, name := range names[:n] {
			if i > 0 {
				w.add(",")
			}
			w.text("", name)
			w.text(":", e.Labels[name])
		}
		w.add("}")
	}
	if e.Verified {
		w.add(`,"verified":true`) // behind the user
	}
	w.add("}")
}

func (w *plainWriter) vcs(v *VCS) {
	if v.IsZero() {
		return
	}
	w.add(`,"vcs":{`)
	w.nonEmpty(`"repository":`, v.Repository)
	w.nonEmpty(`"branch":`, v.Branch)
	w.nonEmpty(`"commit":`, v.Commit)
	w.nonEmpty(`"pull_request":`, v.PullRequest)
	w.add("}")
}

// nonEmpty appends a member of a nested object; nothing for an empty string.
func (w *plainWriter) nonEmpty(name, s string) {
	if s != "" {
		w.part(name, &s)
	}
}

// maxPlainNames is how many names of a map the fast path sorts.
const maxPlainNames = 16

// plainNames returns the n names of a map in order; false if the library has to sort them.
func plainNames[V any](m map[string]V) (names [maxPlainNames]string, n int, ok bool) {
	if len(m) > maxPlainNames {
		return names, 0, false
	}
	ok = true
	for name := range m {
		ok = ok && isPlain(name)
		i := n
		for ; i > 0 && names[i-1] > name; i-- {
			names[i] = names[i-1]
		}
		names[i] = name
		n++
	}
	return names, n, ok
}

// metadata appends the metadata, with its extensions in the order of their names.
func (w *plainWriter) metadata(m *Metadata) {
	if m == nil {
		return
	}
	w.add(`,"metadata":{"sessionId":`)
	textOrNull(w, "", m.SessionID)
	textOrNull(w, `,"model":`, m.Model)
	names, n, ok := plainNames(m.Extensions)
	w.ok = w.ok && ok
	for _, name := range names[:n] {
		w.ok = w.ok && name != "sessionId" && name != "model" // would occur twice in the object
		w.text(",", name)
		w.native(":", m.Extensions[name], maxDepth-3, false)
	}
	w.add("}")
}
