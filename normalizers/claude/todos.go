package claude

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"tributary/envelopes/jsonscan"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// todoItem is an item of a to-do list. The current shape has no id.
type todoItem struct {
	ID       string       `json:"id,omitzero"`
	Content  string       `json:"content"`
	Status   lenient.Text `json:"status"`
	Priority string       `json:"priority"`
}

// maxTodos is the length of a to-do list in an event. Many small items cannot be cut like
// long texts, so it keeps the event under its limit.
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
		return nil // never: the shape is made of strings
	}
	return out
}

// todoSpace is the namespace of the ids of to-do items.
var todoSpace = uuid.NewSHA1(uuid.NameSpaceDNS, []byte("agtrace.event.v1"))

// todoID returns the id of an item of the list that a call wrote. It depends on the source,
// the session, the call and the index alone.
func todoID(s *core.Session, callID string, index int) string {
	name := strings.Join([]string{string(s.Source()), s.ID(), callID, strconv.Itoa(index)}, "\xff") // never in UTF-8
	return uuid.NewSHA1(todoSpace, []byte(name)).String()
}

// Parts of a text that decide how urgent an item is. Those of high count first.
var (
	highPriority = []string{"critical", "urgent", "asap", "immediately", "important", "soon", "priority"}
	lowPriority  = []string{"later", "eventually", "low priority", "nice to have"}
)

// priority returns how urgent an item is by its text, else by its place in the list.
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
