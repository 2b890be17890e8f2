package ship_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"tributary/pipeline/redact"
	"tributary/pipeline/ship"
)

// Files whose records are made to take much work of the search for secrets are shipped, without their secrets, and hold up
// neither each other nor the one beside them.
func TestHostileFilesDoNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the search takes minutes with the race detector, which sees nothing new in it")
	}
	e := newEdge(t)
	random := rand.New(rand.NewPCG(27, 7))
	secret := func() string {
		const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
		text := make([]byte, 32)
		for i := range text {
			text[i] = letters[random.IntN(len(letters))]
		}
		return string(text)
	}
	const header = "-----BEGIN RSA PRIVATE KEY----- "
	const hostile, parallel = 7, 4 // more than are read at the same time
	for n := range hostile {
		id, text := fmt.Sprintf("hostile%d", n), strings.Repeat(header, 62_000/len(header))
		if n%2 == 1 {
			var keys strings.Builder
			for range 2000 {
				keys.WriteString("api_key = " + secret() + " ")
			}
			text = keys.String()
		}
		e.write("garden/"+id+".jsonl", lines(strings.Replace(prompt(id, 1), "water", text, 1)))
	}
	e.write("garden/normal.jsonl", lines(prompt("normal", 1)))
	p := e.tap()
	f := e.follow(func(c *ship.Config) { c.Redactor, c.Parallel = redactor(t, redact.Secrets), parallel })
	f.until("every record is sent", func(s ship.Summary) bool { return s.Records == hostile+1 })
	f.stop()
	sum := f.ship.Summary()
	// Some of the 6,000 have too little entropy for a key.
	if keys := sum.Redacted["generic-api-key"]; keys < hostile/2*1900 || sum.Redacted["private-key"] == 0 || sum.Redacted[redact.RuleUnsearched] != 0 || sum.Trouble != nil {
		t.Errorf("shipped %+v", sum)
	}
	normal := 0
	for _, r := range p.next(hostile + 1) {
		switch {
		case string(r.Data) == prompt("normal", 1):
			normal++
		case strings.Count(string(r.Data), "BEGIN RSA") > 1, strings.Contains(string(r.Data), "api_key = ") && !strings.Contains(string(r.Data), "[redacted:"):
			t.Errorf("sent %.200s", r.Data)
		}
	}
	if normal != 1 {
		t.Errorf("the normal record was sent %d times", normal)
	}
}
