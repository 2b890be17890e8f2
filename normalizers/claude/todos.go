package claude

import (
	"cmp"
	"crypto/sha1"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes/jsonscan"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// todoItem is an item of a to-do list. The current shape has no ids.
type todoItem struct {
	ID       string       `json:"id,omitzero"`
	Content  string       `json:"content"`
	Status   lenient.Text `json:"status"`
	Priority string       `json:"priority"`
}

// maxTodos is the maximum length of a to-do list in an event, which keeps the event under its limit: many small items
// cannot be cut like long texts.
const maxTodos = 1000

// todosMetadata returns the shape of TodoWrite: the list after the call. Only the current
// shape has an empty list.
func todosMetadata(s *core.Session, r *structuredResult, callID string) jsontext.Value {
	var items lenient.List[lenient.Object[struct {
		Content lenient.Text `json:"content"`
		Status  lenient.Text `json:"status"`
	}]]
	if r.NewTodos.Kind() != '[' {
		return nil
	}
	list := jsonscan.NewScanner(r.NewTodos)
	items.ReadJSON(&list)
	current := s.Profile() == core.ProfileCurrent
	var shape struct {
		Todos []todoItem `json:"todos"`
	}
	for i, item := range items {
		if !item.OK || len(shape.Todos) == maxTodos {
			continue
		}
		todo := todoItem{
			Content:  string(item.Value.Content),
			Status:   cmp.Or(item.Value.Status, "pending"),
			Priority: priority(string(item.Value.Content), i, len(items)),
		}
		if !current {
			todo.ID = todoID(s, callID, i)
		}
		shape.Todos = append(shape.Todos, todo)
	}
	if !current && len(shape.Todos) == 0 {
		return nil
	}
	out, err := json.Marshal(shape, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return nil // never, because the shape consists of strings
	}
	return out
}

// dnsSpace is the UUID namespace of DNS names (RFC 9562, appendix C), and todoSpace the namespace for ids of to-do
// items in it. The usual UUID library would make this package depend on net.
var (
	dnsSpace  = [16]byte{0x6b, 0xa7, 0xb8, 0x10, 0x9d, 0xad, 0x11, 0xd1, 0x80, 0xb4, 0x00, 0xc0, 0x4f, 0xd4, 0x30, 0xc8}
	todoSpace = uuid5(dnsSpace, "agtrace.event.v1")
)

// uuid5 returns the UUID of version 5 for a name.
func uuid5(space [16]byte, name string) (id [16]byte) {
	sum := sha1.Sum(append(space[:], name...))
	copy(id[:], sum[:])
	id[6], id[8] = id[6]&0x0f|0x50, id[8]&0x3f|0x80
	return id
}

// todoID returns the id of an item in the list written by a call. It depends only on the source, the session, the
// call and the index.
func todoID(s *core.Session, callID string, index int) string {
	name := strings.Join([]string{string(s.Source()), s.ID(), callID, strconv.Itoa(index)}, "\xff") // never in UTF-8
	id := uuid5(todoSpace, name)
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// Parts of a text that decide the priority of an item. High priority is tested first.
var (
	highPriority = []string{"critical", "urgent", "asap", "immediately", "important", "soon", "priority"}
	lowPriority  = []string{"later", "eventually", "low priority", "nice to have"}
)

// priority returns the priority of an item by its text, else by its place in the list.
func priority(content string, index, total int) string {
	content = strings.ToLower(content)
	contains := func(part string) bool { return strings.Contains(content, part) }
	switch {
	case slices.ContainsFunc(highPriority, contains):
		return "high"
	case slices.ContainsFunc(lowPriority, contains):
		return "low"
	case total <= 1:
		return "medium"
	}
	switch at := float64(index) / float64(total-1); {
	case at < 0.33:
		return "high"
	case at < 0.67:
		return "medium"
	default:
		return "low"
	}
}
