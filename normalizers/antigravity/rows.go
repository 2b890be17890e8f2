package antigravity

import (
	"encoding/binary"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"tributary/normalizers/chat"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// database is what is read of the database of a conversation: the tokens of each API call, which no transcript has.
// The other tables repeat the transcript, or have settings.
var database = core.Database{
	Folders: []string{".gemini/antigravity-cli/conversations", ".gemini/antigravity/conversations", ".gemini/antigravity-ide/conversations"},
	Names:   []string{".db"},
	Tables: []core.Table{{
		Name: "gen_metadata", Key: "idx", Columns: []string{"data"},
		Decode: map[string]func([]byte) []byte{"data": decodeCall},
	}},
}

// isRow recognizes a row of the database.
func isRow(s *core.Shape) bool {
	return s.Text("table") == "gen_metadata" && s.Kind("row", "data") != 0
}

// rowRecord is a row of the database.
type rowRecord struct {
	Index lenient.Number          `json:"idx"`
	Data  lenient.Object[apiCall] `json:"data"`
}

// apiCall is what is read of an API call.
type apiCall struct {
	Model     lenient.Text           `json:"model"`      // of the API
	Shown     lenient.Text           `json:"model_name"` // as the user sees it, and transcripts have it
	StartedAt lenient.Text           `json:"started_at"`
	Usage     lenient.Object[tokens] `json:"usage"`
}

type tokens struct {
	Response lenient.Text   `json:"response_id"`
	Input    lenient.Number `json:"input"` // without cache
	Read     lenient.Number `json:"cache_read"`
	Write    lenient.Number `json:"cache_write"`
	Output   lenient.Number `json:"output"` // with thinking
	Thinking lenient.Number `json:"thinking"`
}

// readRow writes the tokens of an API call.
func readRow(w *chat.Writer, table lenient.Text, r *rowRecord) {
	call := &r.Data.Value
	if table != "gen_metadata" || !r.Data.OK {
		w.UnknownRecord(table)
		return
	}
	w.At(core.ParseTime(string(call.StartedAt)))
	if w.Model = call.Shown; w.Model == "" {
		w.Model = call.Model
	}
	u := &call.Usage.Value
	id := u.Response
	if id == "" {
		id = lenient.Text("call-" + strconv.FormatInt(r.Index.Count(), 10))
	}
	if w.ID = id; w.Session.HasEvent(string(id) + "#usage") {
		w.Skip = core.SkipDuplicate
	}
	w.Use(id, chat.Tokens{
		Input: u.Input, CacheRead: u.Read, CacheWrite: u.Write, Output: u.Output, Reasoning: u.Thinking, ReasoningInOutput: true,
	})
}

// Numbers of the members of an API call in Antigravity's protocol buffers.
const (
	callOfRow      = 1
	usageOfCall    = 4
	timesOfCall    = 9
	startOfTimes   = 4
	modelOfCall    = 19
	nameOfCall     = 21
	inputOfUsage   = 2
	outputOfUsage  = 3
	writeOfUsage   = 4
	readOfUsage    = 5
	thoughtOfUsage = 9
	idOfUsage      = 11
)

// decodeCall returns the JSON of an [apiCall], of a blob that has the whole prompt, too; nil if it is no such blob.
func decodeCall(blob []byte) []byte {
	row, ok := readMessage(blob)
	call, isCall := readMessage(row.bytes[callOfRow])
	usage, isUsage := readMessage(call.bytes[usageOfCall])
	times, isTimed := readMessage(call.bytes[timesOfCall])
	start, isStart := readMessage(times.bytes[startOfTimes])
	if !ok || !isCall || !isUsage || !isTimed || !isStart || row.bytes[callOfRow] == nil {
		return nil
	}
	out := map[string]any{"model": call.text(modelOfCall), "model_name": call.text(nameOfCall)}
	if at := time.Unix(int64(start.numbers[1]), int64(start.numbers[2])).UTC(); start.numbers[1] > 0 {
		out["started_at"] = at.Format("2006-01-02T15:04:05.000Z")
	}
	if call.bytes[usageOfCall] != nil {
		out["usage"] = map[string]any{
			"response_id": usage.text(idOfUsage), "input": usage.numbers[inputOfUsage], "cache_read": usage.numbers[readOfUsage],
			"cache_write": usage.numbers[writeOfUsage], "output": usage.numbers[outputOfUsage], "thinking": usage.numbers[thoughtOfUsage],
		}
	}
	encoded, err := json.Marshal(out, json.Deterministic(true))
	if err != nil {
		return nil
	}
	return encoded
}

// protoMessage is a message of protocol buffers, by the numbers of its members. Of a repeated member the last counts.
type protoMessage struct {
	numbers map[uint64]uint64
	bytes   map[uint64][]byte
}

// text returns a member that is a text.
func (m *protoMessage) text(number uint64) string {
	return strings.ToValidUTF8(string(m.bytes[number]), "\uFFFD")
}

// readMessage reads a message; ok is false for bytes that are none.
func readMessage(b []byte) (m protoMessage, ok bool) {
	m = protoMessage{map[uint64]uint64{}, map[uint64][]byte{}}
	for len(b) > 0 {
		key, n := binary.Uvarint(b)
		if n <= 0 {
			return m, false
		}
		b = b[n:]
		var size uint64
		switch number := key >> 3; key & 7 {
		case 0:
			v, n := binary.Uvarint(b)
			if n <= 0 {
				return m, false
			}
			m.numbers[number], b = v, b[n:]
			continue
		case 1:
			size = 8
		case 5:
			size = 4
		case 2:
			v, n := binary.Uvarint(b)
			if n <= 0 || v > uint64(len(b)-n) {
				return m, false
			}
			m.bytes[number] = b[n : n+int(v)]
			size = uint64(n) + v
		default:
			return m, false
		}
		if size > uint64(len(b)) {
			return m, false
		}
		b = b[size:]
	}
	return m, true
}
