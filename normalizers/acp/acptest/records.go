package acptest

import (
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"tributary/normalizers/gemini/geminitest"
	"tributary/normalizers/normalizerstest"
)

// invalid are records that are JSON but break the model of a message or a part.
var invalid = [][]byte{
	[]byte(`{"type":"message.part","part":{"content":"a","content_url":"https://example.com/"}}`),
	[]byte(`{"type":"message.part","part":{"metadata":{"kind":"rumour"}}}`),
	[]byte(`{"type":"message.part","part":{"metadata":{"kind":"trajectory","tool_name":"x","tool_output":"done"}}}`),
	[]byte(`{"type":"message.completed","message":{"role":"agent/a b","parts":[{"content":"a"}]}}`),
	[]byte(`{"role":"user","parts":[{"content_encoding":"gzip"}]}`),
	[]byte(`{"run_id":"r","agent_name":"a","status":"completed","output":[{"role":"agent","parts":[{"content":7}]}]}`),
	[]byte(`{"agent_name":"a","input":[{"role":"user","parts":"a"}]}`),
	[]byte(`[{"role":"user","parts":[]},{"role":"robot","parts":[]}]`),
}

// readFile cuts a file into records: the data of server-sent events, or consecutive values.
func readFile(data []byte) []normalizerstest.Line {
	out := readEvents(data)
	if out == nil {
		out = geminitest.Read(data)
	}
	for i := range out {
		if !out[i].Bad {
			out[i].Bad = !validACP(normalizerstest.Parse(out[i].Data))
		}
	}
	return out
}

// readEvents reads a stream of server-sent events by its standard; nil for any other file.
func readEvents(data []byte) []normalizerstest.Line {
	if !regexp.MustCompile(`^(\xef\xbb\xbf)?\s*((event|id|retry)?:.*\s+)*data: ?[{\[]`).Match(data) {
		return nil
	}
	var out []normalizerstest.Line
	var event []string
	first := 0
	for i, l := range append(strings.Split(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n"), "") {
		if l == "" {
			if joined := strings.TrimSpace(strings.Join(event, "\n")); joined != "" {
				out = append(out, normalizerstest.Line{Number: first, Data: []byte(joined), Bad: !json.Valid([]byte(joined))})
			}
			event = nil
			continue
		}
		if value, ok := strings.CutPrefix(l, "data:"); ok {
			if event == nil {
				first = i + 1
			}
			event = append(event, strings.TrimPrefix(value, " "))
		}
	}
	return out
}

var acpRoleForm = regexp.MustCompile(`^(user|agent(/[a-zA-Z0-9_-]+)?)$`)

// validACP reports whether all messages and parts of a record are valid.
func validACP(v any) bool {
	if list, ok := v.([]any); ok {
		return !slices.ContainsFunc(list, func(e any) bool { _, nested := e.([]any); return !nested && !validACP(e) })
	}
	all := func(list any) bool {
		messages, ok := list.([]any)
		return !ok || !slices.ContainsFunc(messages, func(m any) bool { return !validMessage(m) })
	}
	asked := normalizerstest.Member[map[string]any](v, "await_request", "message")
	switch kind, run := normalizerstest.Member[string](v, "type"), normalizerstest.Member[map[string]any](v, "run"); {
	case strings.HasPrefix(kind, "run.") && run != nil:
		asked = normalizerstest.Member[map[string]any](run, "await_request", "message")
		return all(run["output"]) && (kind != "run.awaiting" || asked == nil || validMessage(asked))
	case kind == "message.part":
		part, ok := normalizerstest.Member[any](v, "part").(map[string]any)
		return !ok || validPart(part)
	case kind == "message.created" || kind == "message.completed":
		m, ok := normalizerstest.Member[any](v, "message").(map[string]any)
		return !ok || validMessage(m)
	case kind != "":
		return true
	case normalizerstest.Member[[]any](v, "parts") != nil:
		return validMessage(v)
	case normalizerstest.Member[map[string]any](v, "await_resume", "message") != nil:
		return validMessage(normalizerstest.Member[any](v, "await_resume", "message"))
	case normalizerstest.Member[[]any](v, "input") != nil:
		return all(normalizerstest.Member[any](v, "input"))
	case normalizerstest.Member[string](v, "agent_name") != "" || normalizerstest.Member[string](v, "run_id") != "":
		return all(normalizerstest.Member[any](v, "output")) && (normalizerstest.Member[string](v, "status") != "awaiting" || asked == nil || validMessage(asked))
	}
	return true
}

func validMessage(v any) bool {
	role, ok := normalizerstest.Member[any](v, "role").(string)
	if normalizerstest.Member[any](v, "role") != nil && (!ok || !acpRoleForm.MatchString(role) || strings.HasSuffix(role, "\n")) {
		return false
	}
	parts, ok := normalizerstest.Member[any](v, "parts").([]any)
	return ok && !slices.ContainsFunc(parts, func(p any) bool { return !validPart(p) })
}

func validPart(v any) bool {
	p, ok := v.(map[string]any)
	if !ok {
		return false
	}
	for _, name := range []string{"name", "content_type", "content", "content_encoding", "content_url"} {
		if !isAbsentOr[string](p[name]) {
			return false
		}
	}
	if e := p["content_encoding"]; e != nil && e != "plain" && e != "base64" || p["content"] != nil && p["content_url"] != nil {
		return false
	}
	if link, ok := p["content_url"].(string); ok {
		if u, err := url.Parse(link); err != nil || u.Scheme == "" {
			return false
		}
	}
	return validMetadata(p["metadata"])
}

func validMetadata(v any) bool {
	m, ok := v.(map[string]any)
	if !ok {
		return v == nil
	}
	switch m["kind"] {
	case "trajectory":
		return isAbsentOr[string](m["message"]) && isAbsentOr[string](m["tool_name"]) &&
			isAbsentOr[map[string]any](m["tool_input"]) && isAbsentOr[map[string]any](m["tool_output"])
	case "citation":
		return isAbsentOr[string](m["url"]) && isAbsentOr[string](m["title"]) && isAbsentOr[string](m["description"]) &&
			isIndex(m["start_index"]) && isIndex(m["end_index"])
	}
	return false
}

func isAbsentOr[T any](v any) bool {
	_, ok := v.(T)
	return v == nil || ok
}

func isIndex(v any) bool {
	s := strings.TrimSpace(fmt.Sprint(v))
	f, err := strconv.ParseFloat(s, 64)
	_, object := v.(map[string]any)
	return v == nil || v == true || v == false || !object && err == nil && f == math.Trunc(f)
}
