package normalizerstest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
)

// The bounds of the short form, in bytes.
const (
	maxShortLine  = 160 // a line breaks before what would make it longer
	maxShortValue = 120 // a longer value is clipped
)

// shortForm writes events for review: the set fields of each event, in groups on lines under 200 bytes, the first group
// with the digest of the event. What is seen from elsewhere is left out:
//   - the time, session, project, agent and metadata stand only where they change,
//   - role, channel and model only where they differ from those of the last event of this type,
//   - the parent only if it is not the last prompt, and a call only if it is not in the id.
//
// The digest covers the JSON of the whole event, so that a change of anything left out shows.
type shortForm struct {
	standing map[string]string                         // the last value of each field that stands only where it changes
	ofType   map[envelopes.EventType]map[string]string // of each type, those of role, channel and model
	prompt   string                                    // id of the last prompt
	ts       string                                    // of the last event
}

// ShortForms returns the short form of each of the events of a file.
func ShortForms(tb testing.TB, events []envelopes.AgentEventV1) []string {
	tb.Helper()
	var form shortForm
	out := make([]string, 0, len(events))
	for _, e := range events {
		b, err := form.appendEvent(nil, e)
		if err != nil {
			tb.Fatal(err)
		}
		out = append(out, string(b))
	}
	return out
}

// appendEvent appends the short form of the next event to b.
func (f *shortForm) appendEvent(b []byte, e envelopes.AgentEventV1) ([]byte, error) {
	encoded, err := Encode(e)
	if err != nil {
		return nil, err
	}
	var l shortLine
	for _, group := range []fields{
		f.head(e, Digest(encoded, 4)), toolFields(e), textFields(e), tokenFields(e), usageFields(e.Usage), objectFields(e), f.changes(e),
	} {
		l.add(group)
	}
	return append(append(append(b, l.text...), l.last...), '\n'), nil
}

// head has the identity of an event: its digest, id, parent, role and size.
func (f *shortForm) head(e envelopes.AgentEventV1, digest string) fields {
	l := fields{fmt.Sprintf("%d %s #%s", e.Sequence, e.EventType, digest)}
	l.value("id", e.EventID)
	switch {
	case e.ParentEventID == nil && e.EventType != envelopes.UserMessage && f.prompt != "":
		l.add("parent=absent")
	case e.ParentEventID != nil && *e.ParentEventID != f.prompt:
		l.value("parent", *e.ParentEventID)
	}
	if e.EventType == envelopes.UserMessage {
		f.prompt = e.EventID
	}
	if e.TS != f.ts {
		l.value("ts", e.TS)
		f.ts = e.TS
	}
	if f.ofType == nil {
		f.ofType = make(map[envelopes.EventType]map[string]string)
	}
	now := make(map[string]string)
	standingPointer(now, "role", e.Role)
	standingPointer(now, "channel", e.Channel)
	standingPointer(now, "model", e.Model)
	l.changes(f.ofType[e.EventType], now)
	f.ofType[e.EventType] = now
	l.value("origin", string(e.Origin))
	if e.IsInternal {
		l.add("internal")
	}
	l.value("supersedes", e.Supersedes)
	if e.Raw != nil {
		l.add(fmt.Sprintf("raw=%dB", len(e.Raw)))
	}
	return l
}

// toolFields has the tool of an event and its files.
func toolFields(e envelopes.AgentEventV1) (l fields) {
	shortPointer(&l, "tool", e.ToolName)
	if call := Value(e.ToolCallID); call != e.EventID && call+"#result" != e.EventID {
		shortPointer(&l, "call", e.ToolCallID)
	}
	shortPointer(&l, "status", e.ToolStatus)
	shortNumber(&l, "exit", e.ToolExitCode)
	shortNumber(&l, "latency_ms", e.ToolLatencyMS)
	shortPointer(&l, "file", e.FilePath)
	shortPointer(&l, "language", e.FileLanguage)
	shortPointer(&l, "op", e.FileOp)
	for _, file := range e.Files {
		l.value(string(file.Op), file.Path)
	}
	return l
}

// textFields has the text of an event.
func textFields(e envelopes.AgentEventV1) (l fields) {
	shortPointer(&l, "text", e.Text)
	if e.TextTruncated {
		l.add("truncated")
	}
	return l
}

// tokenFields has the token counts of an event.
func tokenFields(e envelopes.AgentEventV1) (l fields) {
	shortNumber(&l, "input", e.TokensInput)
	shortNumber(&l, "output", e.TokensOutput)
	shortNumber(&l, "cached", e.TokensCached)
	shortNumber(&l, "thinking", e.TokensThinking)
	shortNumber(&l, "tool", e.TokensTool)
	shortNumber(&l, "total", e.TokensTotal)
	return l.named("tokens:")
}

// usageFields has the parts of a usage that are not 0.
func usageFields(u *envelopes.Usage) (l fields) {
	if u == nil {
		return nil
	}
	for _, part := range []struct {
		name  string
		count int64
	}{
		{"input", u.Input},
		{"cache_read", u.CacheRead},
		{"cache_write", u.CacheWrite},
		{"output", u.Output},
		{"reasoning", u.Reasoning},
		{"cache_write_1h", u.CacheWrite1h},
		{"web_search_requests", u.WebSearchRequests},
		{"prompt", u.Prompt},
	} {
		if part.count != 0 {
			shortNumber(&l, part.name, &part.count)
		}
	}
	l.value("key", u.Key)
	if u.CostUSD != 0 {
		l.value("cost_usd", strconv.FormatFloat(u.CostUSD, 'f', -1, 64))
	}
	return l.named("usage:")
}

// objectFields has the JSON values of an event.
func objectFields(e envelopes.AgentEventV1) (l fields) {
	shortObject(&l, "tool_output", e.ToolOutput)
	l.json("tool_input", e.ToolInput)
	shortObject(&l, "content", e.Content)
	l.json("tool_metadata", e.ToolMetadata)
	l.json("message_metadata", e.MessageMetadata)
	return l
}

// changes has the standing fields that changed since the previous event.
func (f *shortForm) changes(e envelopes.AgentEventV1) (l fields) {
	now := standingFields(e)
	l.changes(f.standing, now)
	f.standing = now
	return l
}

// standingFields returns the printed form of the fields that rarely change.
func standingFields(e envelopes.AgentEventV1) map[string]string {
	out := map[string]string{"session": shortValue(e.SessionID), "source": string(e.Source), "project": shortValue(e.ProjectHash)}
	standingPointer(out, "root", e.ProjectRoot)
	standingPointer(out, "agent", e.AgentID)
	places := map[string]string{"via": string(e.Via)}
	if d := e.Edge; d != nil {
		places["edge.host"], places["edge.user"] = d.Host, d.User
		if d.Verified {
			places["edge.verified"] = "true"
		}
		for name, v := range d.Labels {
			places["edge.labels."+name] = v
		}
	}
	if v := e.VCS; v != nil {
		places["vcs.repository"], places["vcs.branch"], places["vcs.commit"], places["vcs.pull_request"] = v.Repository, v.Branch, v.Commit, v.PullRequest
	}
	for name, v := range places {
		if v != "" {
			out[name] = shortValue(v)
		}
	}
	if m := e.Metadata; m != nil {
		for name, v := range map[string]*string{"metadata.sessionId": m.SessionID, "metadata.model": m.Model} {
			out[name] = "null"
			if v != nil {
				out[name] = shortValue(*v)
			}
		}
		for name, v := range m.Extensions {
			text := string(v)
			if v.Kind() == '"' {
				_ = json.Unmarshal(v, &text) // valid, as the event could be encoded
			}
			out["metadata."+name] = shortValue(text)
		}
	}
	return out
}

// mergedNames returns the names of two maps.
func mergedNames[V any](a, b map[string]V) map[string]V {
	out := maps.Clone(b)
	maps.Copy(out, a)
	return out
}

// FullForm returns an event as indented JSON, in the order of its fields.
func FullForm(e envelopes.AgentEventV1) ([]byte, error) {
	b, err := Encode(e)
	if err != nil {
		return nil, err
	}
	v := jsontext.Value(b)
	if err := v.Indent(jsontext.WithIndent("  ")); err != nil {
		return nil, fmt.Errorf("event %q: %w", e.EventID, err)
	}
	return append(v, '\n'), nil
}

// Digest returns the first n bytes of the SHA-256 of b, in lower-case hex.
func Digest(b []byte, n int) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:n])
}

// fields are a group of fields of an event, which stand on one line if they fit.
type fields []string

func (l *fields) add(field string) { *l = append(*l, field) }

// named returns the group behind its name; nil for an empty one.
func (l fields) named(name string) fields {
	if len(l) == 0 {
		return nil
	}
	return append(fields{name}, l...)
}

// changes adds the fields that are others now than they were.
func (l *fields) changes(was, now map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(mergedNames(was, now))) {
		v, ok := now[name]
		if before, known := was[name]; ok == known && v == before {
			continue
		}
		if !ok {
			v = "absent"
		}
		l.add(name + "=" + v)
	}
}

// value adds a text, unless it is empty.
func (l *fields) value(name, v string) {
	if v != "" {
		l.add(name + "=" + shortValue(v))
	}
}

// json adds a JSON value, unless it is absent.
func (l *fields) json(name string, v jsontext.Value) {
	if v != nil {
		l.add(name + "=" + shortValue(string(v)))
	}
}

// shortObject adds a struct of the event as its JSON, unless it is null.
func shortObject[T any](l *fields, name string, v *T) {
	if v == nil {
		return
	}
	out, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		out = []byte(strconv.Quote(err.Error()))
	}
	l.json(name, out)
}

// shortPointer adds a text, unless it is null.
func shortPointer[T ~string](l *fields, name string, v *T) {
	if v != nil {
		l.add(name + "=" + shortValue(string(*v)))
	}
}

// shortNumber adds a number, unless it is null.
func shortNumber(l *fields, name string, v *int64) {
	if v != nil {
		l.add(name + "=" + strconv.FormatInt(*v, 10))
	}
}

// standingPointer sets a text that stands only where it changes, unless it is null.
func standingPointer[T ~string](out map[string]string, name string, v *T) {
	if v != nil {
		out[name] = shortValue(string(*v))
	}
}

// shortLine collects the lines of an event.
type shortLine struct{ text, last string }

// add adds a group to the last line, or on the next one if it does not fit. A group that is longer than a line is
// broken.
func (l *shortLine) add(group fields) {
	if l.last != "" && len(group) > 0 && len(l.last)+1+len(strings.Join(group, " ")) > maxShortLine {
		l.wrap()
	}
	for _, field := range group {
		if strings.TrimSpace(l.last) != "" && len(l.last)+1+len(field) > maxShortLine {
			l.wrap()
		}
		if l.last != "" {
			l.last += " "
		}
		l.last += field
	}
}

// wrap begins a new line.
func (l *shortLine) wrap() { l.text, l.last = l.text+l.last+"\n", "   " }

// shortValue returns a value on one line: words and JSON unquoted, other texts quoted; of a long value the beginning,
// the length and a digest.
func shortValue(s string) string {
	quote := strconv.QuoteToGraphic
	if isJSON := strings.HasPrefix(s, "{") || strings.HasPrefix(s, "["); isJSON && jsontext.Value(s).IsValid() && !strings.ContainsAny(s, "\n\r\t") {
		quote = func(s string) string { return s }
	} else if plain := strconv.QuoteToGraphic(s); !strings.ContainsAny(s, " =") && plain == `"`+s+`"` && s != "" && s != "null" && s != "absent" {
		quote = func(s string) string { return s }
	}
	if quoted := quote(s); len(quoted) <= maxShortValue {
		return quoted
	}
	end := 0
	for i := range s {
		if len(quote(s[:i])) > maxShortValue-30 {
			break
		}
		end = i
	}
	return fmt.Sprintf("%s... (%d bytes, %s)", quote(s[:end]), len(s), Digest([]byte(s), 4))
}
