package opencodetest

import (
	"fmt"
	"strings"

	"tributary/normalizers/normalizerstest"
)

// ledger has the tokens of each message of a session: of what it states and of what its steps used together the higher
// counts.
type ledger map[string]*book

type book struct {
	version string
	created float64
	copied  map[string]bool
	timed   map[string]bool // messages that state when they were created
	calls   map[string]call // by message
	stepped map[string]used // what the steps of a message used together
	seen    map[string]bool // steps
	records int
}

// used are counts of tokens; all is the output with the reasoning.
type used struct{ input, read, write, all, reasoning, cost int64 }

// call is what events have of a message.
type call struct {
	used
	figures normalizerstest.Figures
}

// Add implements [normalizerstest.Ledger].
func (l ledger) Add(session string, record []byte) {
	b := l[session]
	if b == nil {
		b = &book{
			copied: make(map[string]bool), timed: make(map[string]bool), calls: make(map[string]call), stepped: make(map[string]used),
			seen: make(map[string]bool),
		}
		l[session] = b
	}
	b.records++
	v := normalizerstest.Parse(record)
	if p := object(v, "payload"); p != nil {
		v = p
	}
	info, part, kind := object(v, "info"), object(v, "part"), str(v, "type")
	if p := normalizerstest.Member[any](v, "properties"); p != nil {
		info, part = object(p, "info"), object(p, "part")
	}
	elements, isList := v.([]any)
	switch {
	case object(v, "row") != nil:
		b.row(str(v, "table"), fromRow(v))
	case isList:
		b.messages(elements)
	case info != nil && list(v, "messages") != nil:
		b.session(info)
		b.messages(list(v, "messages"))
	case info != nil && list(v, "parts") != nil:
		b.message(info, "", b.together(list(v, "parts")))
	case kind == "message.updated" && own(str(info, "id")) != "":
		b.message(info, "", b.stepped[str(info, "id")])
	case kind == "message.updated":
		b.copied[str(info, "id")] = b.isCopied(info)
	case kind == "session.created", kind == "session.updated":
		b.session(info)
	case part != nil && str(part, "type") == "step-finish" && (kind == "message.part.updated" || kind != "" && !strings.Contains(kind, ".")):
		b.step(part)
		id := own(str(part, "messageID"))
		if id == "" {
			id = own(str(part, "id"))
		}
		if id == "" {
			id = fmt.Sprintf("record %d", b.records)
		}
		if !b.copied[str(part, "messageID")] {
			b.count(id, part, b.stepped[own(str(part, "messageID"))])
		}
	}
}

// row reads a row of the database.
func (b *book) row(table string, is map[string]any) {
	id := own(str(is, "messageID"))
	switch {
	case table == "session":
		b.session(is)
	case table == "message":
		b.message(is, "", b.stepped[str(is, "id")])
	case str(is, "type") == "step-finish" && id != "" && b.timed[id]:
		if b.step(is); !b.copied[id] {
			b.count(id, is, b.stepped[id])
		}
	}
}

// step adds the end of a step to those of its message.
func (b *book) step(part map[string]any) {
	id, message := own(str(part, "id")), own(str(part, "messageID"))
	if id != "" && message != "" && !b.seen[id] {
		b.seen[id] = true
		u, _ := b.usedBy(part)
		b.stepped[message] = b.stepped[message].and(u)
	}
}

// together returns what the steps among all parts of a message used.
func (b *book) together(parts []any) (sum used) {
	for _, p := range parts {
		if is, ok := p.(map[string]any); ok && str(p, "type") == "step-finish" {
			u, _ := b.usedBy(is)
			sum = sum.and(u)
		}
	}
	return sum
}

func (b *book) session(info map[string]any) {
	if v := str(info, "version"); v != "" {
		b.version = v
	}
	if at, _ := number(info, "time", "created"); at > 0 {
		b.created = at
	}
}

func (b *book) messages(messages []any) {
	for i, m := range messages {
		if info := object(m, "info"); info != nil {
			b.message(info, fmt.Sprintf("@m%d", i+1), b.together(list(m, "parts")))
		}
	}
}

func (b *book) isCopied(info map[string]any) bool {
	at, ok := number(info, "time", "created")
	return ok && at < b.created
}

// message counts a message; place replaces a removed id.
func (b *book) message(info map[string]any, place string, stepped used) {
	id := own(str(info, "id"))
	b.copied[str(info, "id")] = b.isCopied(info)
	_, b.timed[str(info, "id")] = number(info, "time", "created")
	if b.isCopied(info) {
		return
	}
	if id == "" {
		id = place
	}
	if id == "" {
		id = fmt.Sprintf("record %d", b.records)
	}
	b.count(id, info, stepped)
}

// usedBy returns the counts of a message or a step, and whether its output includes the reasoning.
func (b *book) usedBy(of map[string]any) (u used, includes bool) {
	tokens := object(of, "tokens")
	cost, _ := number(of, "cost")
	get := func(names ...string) int64 {
		f, _ := number(tokens, names...)
		return int64(f)
	}
	u = used{get("input"), get("cache", "read"), get("cache", "write"), get("output"), get("reasoning"), normalizerstest.CostOf(cost)}
	if includes = b.includesReasoning(tokens, u.input+u.read+u.write+u.all, u.reasoning); !includes {
		u.all += u.reasoning
	}
	return u, includes
}

// and adds two counts.
func (u used) and(o used) used {
	return used{u.input + o.input, u.read + o.read, u.write + o.write, u.all + o.all, u.reasoning + o.reasoning, u.cost + o.cost}
}

// highest returns the higher count of each kind.
func (u used) highest(o used) used {
	return used{
		max(u.input, o.input), max(u.read, o.read), max(u.write, o.write), max(u.all, o.all), max(u.reasoning, o.reasoning),
		max(u.cost, o.cost),
	}
}

// count raises the counts of a message to those of a record and of its steps. An event has no more reasoning than output.
func (b *book) count(id string, of map[string]any, stepped used) {
	was := b.calls[id]
	stated, includes := b.usedBy(of)
	now, f := was.highest(stated).highest(stepped), was.figures
	output := now.all - was.all
	thought := min(now.reasoning-f.Thinking, output)
	if output+now.input+now.read+now.write+now.cost == was.input+was.read+was.write+was.cost {
		return // nothing is new
	}
	f.Input, f.Cached, f.CacheWrite, f.Cost = now.input, now.read, now.write, now.cost
	f.Thinking += thought
	f.UsageOutput += output - thought
	if f.Output += output; !includes {
		f.Output -= thought
	}
	f.UsageInput, f.CacheRead, f.UsageReasoning = f.Input, f.Cached, f.Thinking
	f.Total = f.UsageInput + f.CacheRead + f.CacheWrite + f.UsageOutput + f.UsageReasoning
	b.calls[id] = call{now, f}
}

// includesReasoning reports whether the output includes the reasoning. The total shows it, else the version: before
// 1.4 the output included it.
func (b *book) includesReasoning(tokens map[string]any, sum, reasoning int64) bool {
	total, ok := number(tokens, "total")
	if ok && int64(total) == sum+reasoning {
		return false
	}
	if ok && int64(total) == sum {
		return true
	}
	var major, minor int
	if n, _ := fmt.Sscanf(b.version, "%d.%d", &major, &minor); n == 2 {
		return major == 0 || major == 1 && minor < 4
	}
	return !ok
}

// Sums implements [normalizerstest.Ledger].
func (l ledger) Sums(session string) normalizerstest.Figures {
	var sum normalizerstest.Figures
	if b := l[session]; b != nil {
		for _, c := range b.calls {
			sum.Add(c.figures)
		}
	}
	return sum
}
