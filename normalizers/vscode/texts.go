package vscode

import (
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// modelTexts are the texts of a request as the model made them.
type modelTexts struct {
	*mapper
	of *request
}

// rounds notes the texts of the model, which the telemetry states, too: those in the answer have other forms of names
// and links. Where the telemetry has stated one before, an event without content replaces it.
func (m *modelTexts) rounds(used *metadata) {
	for i, r := range used.Rounds {
		m.of.Rounds = true
		id := m.of.ID + lenient.Text("/round/"+strconv.Itoa(i))
		m.repeat(id, envelopes.AssistantMessage, withNames(string(joined(r.Response))))
		m.repeat(id, envelopes.Reasoning, string(joined(r.Thinking.Value.Text)))
	}
}

// stopped notes the texts of an answer that a human stopped, which has no rounds.
func (m *modelTexts) stopped() {
	q := m.of
	if !q.Stopped || q.Rounds {
		return
	}
	all := *q
	m.ended(&all, q.first(), envelopes.AssistantMessage, withNames(q.text()))
	for _, t := range all.Ended {
		m.repeatAt(q.ID+lenient.Text("/stopped/"+strconv.Itoa(t.Part)), t.Of, t.Key)
	}
}

// repeat notes a text of the model once.
func (m *modelTexts) repeat(id lenient.Text, of envelopes.EventType, text string) {
	if strings.TrimSpace(text) != "" {
		m.repeatAt(id, of, core.StatementsOf(m.Session, of, text).Key())
	}
}

// repeatAt notes a text of the model once, by the key of its statements. The telemetry does not state copied ones.
func (m *modelTexts) repeatAt(id lenient.Text, of envelopes.EventType, text core.Fingerprint) {
	if m.Copied {
		return
	}
	key := core.FingerprintOf(string(id), string(of), text.String())
	if _, known := m.Session.IDs.Get(key); known {
		return
	}
	m.Session.IDs.Put(key, core.Fingerprint{})
	stated := core.StatementsAt(m.Session, text)
	if replaced := stated.Replaced(); replaced != "" {
		d := core.SystemDraft(envelopes.Meta, "")
		d.Supersedes = replaced
		m.SetID(core.PartID(id, string(of)+"/"+text.String()))
		m.Put(d)
	}
	stated.InLog()
}

var (
	// links are what VS Code may show as a link to a file.
	links = regexp.MustCompile(`\[[^\]\n]+\]\(([^\s)]+)\)`)
	// paths are words in code, and words with a dot, which VS Code shows as a link where a file has that path.
	paths = regexp.MustCompile("`[^`\\s]+`|[^\\s`*${}()]+\\.[^\\s`*${}()]+")
)

// withNames returns an answer with the name of a file in place of each path or link to it. So the text of the model and
// that of the chat, which keeps of a link only its file, are compared.
func withNames(text string) string {
	text = links.ReplaceAllString(text, "`$1`")
	return paths.ReplaceAllStringFunc(text, func(is string) string {
		is, _, _ = strings.Cut(strings.Trim(is, "`"), "#L")
		if decoded, err := url.PathUnescape(is); err == nil {
			is = decoded
		}
		return "`" + path.Base(strings.ReplaceAll(is, `\`, "/")) + "`"
	})
}
