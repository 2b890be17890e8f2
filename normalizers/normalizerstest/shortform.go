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
	maxShortLine  = 160 // a line breaks before the field that would make it longer
	maxShortValue = 120 // a longer value is clipped
)

// shortForm writes events for review: the set fields of each event, on lines under 200 bytes, the first one with the
// digest of the event. Fields that rarely change (session, project, agent, metadata) stand only where they change.
// The digest covers the JSON of the whole event, so that a change of anything left out shows.
type shortForm struct {
	standing map[string]string // the last value of each field that stands only where it changes
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
	for _, l := range []shortLine{headLine(e, Digest(encoded, 4)), toolLine(e), textLine(e), tokensLine(e), usageLine(e.Usage), objectsLine(e), f.changesLine(e)} {
		b = l.appendTo(b)
	}
	return b, nil
}

// headLine has the identity of an event: its digest, id, parent, role, time and size.
func headLine(e envelopes.AgentEventV1, digest string) shortLine {
	l := shortLine{prefix: fmt.Sprintf("%d %s #%s", e.Sequence, e.EventType, digest)}
	l.value("id", e.EventID)
	shortPointer(&l, "parent", e.ParentEventID)
	shortPointer(&l, "role", e.Role)
	shortPointer(&l, "channel", e.Channel)
	l.value("ts", e.TS)
	l.value("origin", string(e.Origin))
	if e.IsInternal {
		l.add("internal")
	}
	shortPointer(&l, "model", e.Model)
	l.value("supersedes", e.Supersedes)
	if e.Raw != nil {
		l.add(fmt.Sprintf("raw=%dB", len(e.Raw)))
	}
	return l
}

// toolLine has the tool of an event and its files.
func toolLine(e envelopes.AgentEventV1) shortLine {
	var l shortLine
	shortPointer(&l, "tool", e.ToolName)
	shortPointer(&l, "call", e.ToolCallID)
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

// textLine has the text of an event.
func textLine(e envelopes.AgentEventV1) shortLine {
	var l shortLine
	shortPointer(&l, "text", e.Text)
	if e.TextTruncated {
		l.add("truncated")
	}
	return l
}

// tokensLine has the token counts of an event.
func tokensLine(e envelopes.AgentEventV1) shortLine {
	l := shortLine{prefix: "    tokens:"}
	shortNumber(&l, "input", e.TokensInput)
	shortNumber(&l, "output", e.TokensOutput)
	shortNumber(&l, "cached", e.TokensCached)
	shortNumber(&l, "thinking", e.TokensThinking)
	shortNumber(&l, "tool", e.TokensTool)
	shortNumber(&l, "total", e.TokensTotal)
	return l
}

// usageLine has the parts of a usage.
func usageLine(u *envelopes.Usage) shortLine {
	l := shortLine{prefix: "    usage:"}
	if u != nil {
		shortNumber(&l, "input", &u.Input)
		shortNumber(&l, "cache_read", &u.CacheRead)
		shortNumber(&l, "cache_write", &u.CacheWrite)
		shortNumber(&l, "output", &u.Output)
		shortNumber(&l, "reasoning", &u.Reasoning)
		l.value("key", u.Key)
		for _, f := range []struct {
			name  string
			count int64
		}{{"cache_write_1h", u.CacheWrite1h}, {"web_search_requests", u.WebSearchRequests}, {"prompt", u.Prompt}} {
			if f.count != 0 {
				shortNumber(&l, f.name, &f.count)
			}
		}
		if u.CostUSD != 0 {
			l.value("cost_usd", strconv.FormatFloat(u.CostUSD, 'f', -1, 64))
		}
	}
	return l
}

// objectsLine has the JSON values of an event.
func objectsLine(e envelopes.AgentEventV1) shortLine {
	var l shortLine
	shortObject(&l, "tool_output", e.ToolOutput)
	l.json("tool_input", e.ToolInput)
	shortObject(&l, "content", e.Content)
	l.json("tool_metadata", e.ToolMetadata)
	l.json("message_metadata", e.MessageMetadata)
	return l
}

// changesLine has the standing fields that changed since the previous event.
func (f *shortForm) changesLine(e envelopes.AgentEventV1) shortLine {
	var l shortLine
	now := standingFields(e)
	for _, name := range slices.Sorted(maps.Keys(mergedNames(f.standing, now))) {
		v, ok := now[name]
		if was, before := f.standing[name]; ok == before && v == was {
			continue
		}
		if !ok {
			v = "absent"
		}
		l.add(name + "=" + v)
	}
	f.standing = now
	return l
}

// standingFields returns the printed form of the fields that rarely change.
func standingFields(e envelopes.AgentEventV1) map[string]string {
	out := map[string]string{"session": shortValue(e.SessionID), "source": string(e.Source), "project": shortValue(e.ProjectHash)}
	if e.ProjectRoot != nil {
		out["root"] = shortValue(*e.ProjectRoot)
	}
	if e.AgentID != nil {
		out["agent"] = shortValue(*e.AgentID)
	}
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

// shortLine collects the fields of one line, which breaks if it gets too long.
type shortLine struct {
	prefix string
	fields []string
}

func (l *shortLine) add(field string) { l.fields = append(l.fields, field) }

// value adds a text, unless it is empty.
func (l *shortLine) value(name, v string) {
	if v != "" {
		l.add(name + "=" + shortValue(v))
	}
}

// json adds a JSON value, unless it is absent.
func (l *shortLine) json(name string, v jsontext.Value) {
	if v != nil {
		l.add(name + "=" + shortValue(string(v)))
	}
}

// shortObject adds a struct of the event as its JSON, unless it is null.
func shortObject[T any](l *shortLine, name string, v *T) {
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
func shortPointer[T ~string](l *shortLine, name string, v *T) {
	if v != nil {
		l.add(name + "=" + shortValue(string(*v)))
	}
}

// shortNumber adds a number, unless it is null.
func shortNumber(l *shortLine, name string, v *int64) {
	if v != nil {
		l.add(name + "=" + strconv.FormatInt(*v, 10))
	}
}

// appendTo appends the line, or nothing if it has no field.
func (l *shortLine) appendTo(b []byte) []byte {
	if len(l.fields) == 0 {
		return b
	}
	line := l.prefix
	if line == "" {
		line = "   "
	}
	for _, field := range l.fields {
		if len(line)+1+len(field) > maxShortLine && strings.TrimSpace(line) != "" {
			b = append(append(b, line...), '\n')
			line = "   "
		}
		line += " " + field
	}
	return append(append(b, line...), '\n')
}

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
