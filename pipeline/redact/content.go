package redact

import (
	"bytes"
	"regexp"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/lenient"
)

// content replaces the content of a record by placeholders of a rule: every string except metadata. It also replaces
// secrets in metadata. A record that is not JSON is all content, except for its white space.
func (r *Redactor) content(done <-chan struct{}, data []byte, rule string) ([]byte, []Hit, error) {
	c := contentScan{Redactor: r, rule: rule, out: make([]byte, 0, len(data)), chat: chatStart.Match(data)}
	if !c.values(data, false) {
		c.out, c.hits = c.out[:0], nil
		text := bytes.TrimSpace(data)
		if len(text) == 0 || isPlaceholder(string(text)) {
			return data, nil, nil
		}
		at := bytes.Index(data, text)
		c.out = append(c.out, data[:at]...)
		c.out = append(c.out, c.replaced(string(text), at)...)
		c.out = append(c.out, data[at+len(text):]...)
	}
	out, hits, err := r.secrets(done, c.out, isJSON(data))
	if err != nil {
		return nil, nil, err
	}
	if hits = append(c.hits, hits...); len(hits) == 0 {
		return data, nil, nil
	}
	return out, hits, nil
}

// contentScan copies a record without its content.
type contentScan struct {
	*Redactor
	rule string // of the placeholders
	data []byte // what is copied
	out  []byte
	hits []Hit

	attribute string // name of the attribute of OpenTelemetry whose value is copied; empty outside of one
	messages  bool   // what is copied is the value of one of messageNames

	chat    bool   // the record is a chat of an editor, or a change in the journal of one
	within  string // of a chat: the member whose object is copied
	changed string // of a journal: the last name of the path of the change
	hidden  bool   // of a journal: a name before that is not one of chatMembers
}

// values copies the JSON values of data, which may belong to a tool. It reports whether data is valid.
func (c *contentScan) values(data []byte, tool bool) bool {
	c.data = data
	dec := jsontext.NewDecoder(bytes.NewBuffer(data), lenient.Options)
	end := int64(0)
	for {
		if dec.PeekKind() == 0 {
			break
		}
		if !c.value(dec, "", tool) {
			return false
		}
		end = dec.InputOffset()
	}
	rest := data[end:]
	c.out = append(c.out, rest...)
	return len(bytes.TrimSpace(rest)) == 0
}

// value copies the value of a member, or of an element in a list with that member name. In the input or output of a
// tool nothing is metadata.
func (c *contentScan) value(dec *jsontext.Decoder, name string, tool bool) bool {
	switch dec.PeekKind() {
	case '{':
		defer func(around string) { c.within = around }(c.within)
		c.within = name
		return c.object(dec, tool || c.hides(name))
	case '[':
		return c.list(dec, name, tool)
	case '"':
		t, err := dec.ReadToken()
		if err != nil {
			return false
		}
		s := t.String()
		if (tool || !c.keeps(name, s)) && strings.Trim(strings.TrimSpace(s), "`") != "" {
			s = c.text(s, int(dec.InputOffset())-1-len(s))
		}
		c.out = lenient.AppendQuote(c.out, s)
		return true
	default:
		v, err := dec.ReadValue()
		c.out = append(c.out, v...)
		return err == nil
	}
}

// keeps reports whether the string s of a member with this name is metadata, or a number that is written as a string.
func (c *contentScan) keeps(name, s string) bool {
	switch {
	case c.chat:
		return len(s) <= maxMetadata && (name == "kind" || name == "code" || name == "name" && c.within == "toolCalls" || metadataEnd.MatchString(name))
	case name == "stringValue" && c.attribute != "":
		return isMetadata(c.attribute, s) || isMetadata(strings.ReplaceAll(c.attribute, ".", "_"), s) ||
			len(s) <= maxMetadata && attributeEnd.MatchString(c.attribute)
	case otlpNumbers[name]:
		return numberText.MatchString(s)
	default:
		return isMetadata(name, s)
	}
}

// hides reports whether nothing in the object of a member is metadata.
func (c *contentScan) hides(name string) bool {
	if c.chat {
		return name != "" && !chatMembers[name]
	}
	return toolNames[name] || c.messages && ofTool(name)
}

// attributeAt returns the name of the attribute of OpenTelemetry that begins at an offset; empty for any other value.
func (c *contentScan) attributeAt(offset int64) string {
	if m := attributeStart().FindSubmatch(c.data[offset:]); m != nil {
		return string(m[1])
	}
	return ""
}

func (c *contentScan) object(dec *jsontext.Decoder, tool bool) bool {
	attribute := ""
	if !tool {
		attribute = c.attributeAt(dec.InputOffset())
	}
	if attribute != "" {
		defer func(around string) { c.attribute = around }(c.attribute)
		c.attribute = attribute
	}
	isEntry := c.chat && dec.StackDepth() == 0
	_, _ = dec.ReadToken()
	c.out = append(c.out, '{')
	for first := true; dec.PeekKind() != '}'; first = false {
		t, err := dec.ReadToken()
		if err != nil {
			return false
		}
		name := t.String()
		if !first {
			c.out = append(c.out, ',')
		}
		c.member(dec, name)
		c.out = append(c.out, ':')
		if attribute != "" && name == "key" {
			_, _ = dec.ReadToken() // attributeAt has seen it
			c.out = lenient.AppendQuote(c.out, attribute)
			continue
		}
		var ok bool
		switch {
		case isEntry && name == "k" && dec.PeekKind() == '[':
			ok = c.path(dec)
		case isEntry && name == "v":
			ok = c.value(dec, c.changed, c.hidden)
		default:
			ok = c.value(dec, name, tool || ofTool(attribute))
		}
		if !ok {
			return false
		}
	}
	_, err := dec.ReadToken()
	c.out = append(c.out, '}')
	return err == nil
}

// member copies the name of a member, which was just read.
func (c *contentScan) member(dec *jsontext.Decoder, name string) {
	if !memberName.MatchString(name) && !isPlaceholder(name) {
		name = c.replaced(name, int(dec.InputOffset())-1-len(name))
	}
	c.out = lenient.AppendQuote(c.out, name)
}

// path copies the path of a change in the journal of a chat: names of members, and numbers of elements.
func (c *contentScan) path(dec *jsontext.Decoder) bool {
	_, _ = dec.ReadToken()
	c.out = append(c.out, '[')
	for first := true; dec.PeekKind() != ']'; first = false {
		if !first {
			c.out = append(c.out, ',')
		}
		if dec.PeekKind() != '"' {
			if !c.value(dec, "", true) {
				return false
			}
			continue
		}
		t, err := dec.ReadToken()
		if err != nil {
			return false
		}
		c.hidden = c.hidden || c.hides(c.changed)
		c.changed = t.String()
		c.member(dec, c.changed)
	}
	_, err := dec.ReadToken()
	c.out = append(c.out, ']')
	return err == nil
}

func (c *contentScan) list(dec *jsontext.Decoder, name string, tool bool) bool {
	_, _ = dec.ReadToken()
	c.out = append(c.out, '[')
	if name == "input" { // a list of messages
		name = ""
	}
	for first := true; dec.PeekKind() != ']'; first = false {
		if !first {
			c.out = append(c.out, ',')
		}
		if !c.value(dec, name, tool) {
			return false
		}
	}
	_, err := dec.ReadToken()
	c.out = append(c.out, ']')
	return err == nil
}

// text replaces a string. JSON in it keeps its structure, and the output of a command keeps the leading lines with
// its exit code.
func (c *contentScan) text(s string, offset int) string {
	if strings.HasPrefix(s, "{") || strings.HasPrefix(s, "[") {
		messages := messageNames[c.attribute]
		inner := contentScan{Redactor: c.Redactor, rule: c.rule, messages: messages}
		if inner.values([]byte(s), !messages) {
			for i := range inner.hits {
				inner.hits[i].Offset = offset
			}
			c.hits = append(c.hits, inner.hits...)
			return string(inner.out)
		}
	}
	head := keptHead.FindString(s)
	tail := tailOf(s[len(head):])
	return head + c.plans(s[len(head):len(s)-len(tail)], offset) + tail
}

// tailOf returns the keptTail of a text; empty for none.
func tailOf(s string) string {
	s = s[max(0, len(s)-maxTail):]
	if !strings.Contains(s, "exited with exit code") && !strings.Contains(s, "Exit Code:") {
		return "" // a fast check first
	}
	return keptTail.FindString(s)
}

// plans replaces a text but keeps the tags around a plan. It replaces the plan separately, because agents write it
// again without the text around it.
func (c *contentScan) plans(s string, offset int) string {
	var out strings.Builder
	replace := func(part string) {
		if strings.TrimSpace(part) != "" && !isPlaceholder(part) {
			part = c.replaced(part, offset)
		}
		out.WriteString(part)
	}
	at := 0
	for _, tag := range planTag.FindAllStringIndex(s, -1) {
		replace(s[at:tag[0]])
		out.WriteString(s[tag[0]:tag[1]])
		at = tag[1]
	}
	replace(s[at:])
	return out.String()
}

// replaced returns the placeholder of a text, and records the hit.
func (c *contentScan) replaced(s string, offset int) string {
	p := c.placeholder(c.rule, s)
	c.hits = append(c.hits, Hit{c.rule, max(offset, 0), p})
	return p
}

var (
	wholePlaceholder = regexp.MustCompile(`^\[redacted:[a-z0-9_-]+:[0-9a-f]{12}\]$`)
	// memberName matches the name of a member that is not content. A path does not match.
	memberName = regexp.MustCompile(`^[\w$@-][\w$@.:-]{0,63}$`)
	// keptHead matches what agents write before an injected text or the output of a command, keptTail what they write
	// behind one.
	keptHead = regexp.MustCompile(`^(?:<[a-z][a-z_-]{0,40}>|(?:Error: )?Exit code:? -?\d{1,10}(?:\s|$)|` +
		`ERROR while calling tool: |ERROR: Your input to the tool was invalid|` +
		`(?:(?:Chunk ID: \w+|Wall time:? [\d.]+ ?(?:seconds|s)|Process exited with code -?\d{1,10}|Process running with session ID \d+|` +
		`(?:Original token count|Total output lines): \d+|Output:)[ \t]*(?:\r?\n|$))+)+`)
	keptTail = regexp.MustCompile(`(?:\s<exited with exit code -?\d{1,10}>|\nExit Code: -?\d{1,10}(?:\n(?:Signal|Background PIDs|Process Group PGID): [\w()-]+)*)\s*$`)
	// planTag matches the beginning or end tag of a plan.
	planTag = regexp.MustCompile(`</?proposed_plan>`)
	// metadataEnd matches the end of names of members that are ids, times, models and versions.
	metadataEnd = regexp.MustCompile(`(?:^(?i:id|uuid)|[a-z]I[dD]|_id|Uuid|UUID|[a-z]At|_at|[tT]imestamp|[mM]odel|_model|model_slug|[vV]ersion)$`)
)

var (
	// attributeStart matches the beginning of an attribute of OpenTelemetry in JSON, whose name is like that of a member.
	// It is large, and made for the first record.
	attributeStart = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[\s,:]*\{\s*"key"\s*:\s*"([\w$@-][\w$@.:-]{0,63})"\s*,\s*"value"\s*:\s*\{\s*"(?:string|int|double|bool|array|kvlist|bytes)Value"`)
	})
	// chatStart matches what only a chat of an editor has: the beginning of an entry of its journal, or a member of it.
	chatStart = regexp.MustCompile(`^\s*\{\s*"kind"\s*:\s*\d\s*,\s*"[kv]"\s*:|"responderUsername"\s*:\s*"`)
	// attributeEnd matches the end of names of attributes that are a word of the agent: who asked, what was decided, how
	// something failed.
	attributeEnd = regexp.MustCompile(`(?:^error\.type|\.error_(?:type|code)|\.initiator|\.permission\.(?:kind|result)|\.message\.source)$`)
	numberText   = regexp.MustCompile(`^-?[0-9]{1,20}$`)
)

// otlpNumbers are members whose numbers OTLP writes as strings.
var otlpNumbers = setOf("intValue", "asInt", "timeUnixNano", "observedTimeUnixNano", "startTimeUnixNano", "endTimeUnixNano")

// maxMetadata is the maximum length of metadata strings, maxTail that of keptTail, in bytes.
const (
	maxMetadata = 256
	maxTail     = 512
)

// metadataNames are names of metadata members, in addition to metadataEnd.
var metadataNames = setOf("type", "subtype", "kind", "role", "status", "state", "level", "source", "operation", "event", "name", "tool", "tool_name", "toolName",
	"time", "ts", "date", "start_time", "startTime", "end_time", "lastUpdated", "modelID", "provider", "providerID", "model_provider", "cwd", "root", "directory",
	"projectHash", "project_root", "stop_reason", "stopReason", "finish", "finish_reason", "finishReason", "phase", "mode", "agent", "agentName", "entrypoint",
	"userType", "content_type", "content_encoding", "content_url", "service_tier", "speed", "media_type", "mime", "mimeType", "originator", "approval_policy",
	"effort", "reasoning_effort", "method", "jsonrpc", "sessionUpdate", "outcome", "trigger", "decision", "slug", "say", "ask", "event.name", "eventName", "message_ids",
	"service.name", "function_name",
	"gen_ai.tool.name", "gen_ai.tool.type", "gen_ai.operation.name", "gen_ai.agent.name", "gen_ai.provider.name", "gen_ai.system")

// toolNames are names of members with the input or output of a tool.
var toolNames = setOf("input", "arguments", "args", "parameters", "toolUseResult", "tool_input", "tool_response", "tool_output", "rawInput", "rawOutput",
	"structuredPatch", "structured_output", "tool_use_result", "toolArgs", "resultDisplay", "response")

// chatMembers are the members of a chat of an editor whose objects have metadata.
var chatMembers = setOf("requests", "response", "result", "metadata", "toolCallRounds", "toolCalls", "resolved", "errorDetails", "responseErrorDetails")

// messageNames are attributes with messages of the conventions for generative AI as JSON, which have metadata.
var messageNames = setOf("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions")

// ofTool reports whether an attribute of OpenTelemetry, or a member of a message in one, is the input or output of a
// tool.
func ofTool(name string) bool {
	return toolNames[name] || name == "result" || name == "gen_ai.tool.call.arguments" || name == "gen_ai.tool.call.result"
}

func setOf(names ...string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, n := range names {
		set[n] = true
	}
	return set
}

// isMetadata reports whether the string s of a member with this name is metadata.
func isMetadata(name, s string) bool {
	return len(s) <= maxMetadata && (metadataNames[name] || metadataEnd.MatchString(name))
}

// isPlaceholder reports whether all of s is a placeholder.
func isPlaceholder(s string) bool {
	return strings.HasPrefix(s, "[redacted:") && wholePlaceholder.MatchString(s)
}
