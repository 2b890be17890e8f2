package console

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/sessions"
)

// answers stores answers of models: one event for each call of next, until it returns false.
func answers(tb testing.TB, js jetstream.JetStream, next func(e *envelopes.AgentEventV1) bool) {
	tb.Helper()
	var list []*nats.Msg
	for i, more := 0, true; more; i++ {
		e := envelopes.AgentEventV1{
			SchemaVersion: envelopes.SchemaVersion, Source: envelopes.ClaudeCode, SessionID: "one", ProjectHash: strings.Repeat("0", 64),
			EventID: fmt.Sprint("event-", i), TS: "2026-03-09T10:00:00Z", EventType: envelopes.AssistantMessage, Role: new(envelopes.RoleAssistant),
			Channel: new(envelopes.ChannelChat), Text: new("an answer"), Sequence: uint64(i + 1),
		}
		if more = next(&e); more {
			header, data, err := envelopes.EncodeEvent(&e, envelopes.Provenance{Generation: "v1", RawStream: "RAW", RawSequence: uint64(i + 1)}, envelopes.Binary)
			if err != nil {
				tb.Fatal(err)
			}
			list = append(list, &nats.Msg{Subject: "events.v1.claude_code." + e.SessionID + ".assistant_message", Header: header, Data: data})
		}
		if len(list) == 1000 || !more && len(list) > 0 {
			pipelinetest.PublishMessages(tb.Context(), tb, js, list...)
			list = nil
		}
	}
}

// used sets the tokens of an answer.
func used(e *envelopes.AgentEventV1, model string, tokens int64) {
	e.Model = &model
	e.Usage = &envelopes.Usage{Input: tokens}
	e.TokensTotal = &tokens
}

func TestOverviewShowsTheModelsThatHaveMost(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	n := 0
	answers(t, c.config.JetStream, func(e *envelopes.AgentEventV1) bool {
		if n++; n > 12 {
			return false
		}
		e.TS = time.Date(2026, 3, 9+n%2*3, 10, 0, 0, 0, time.UTC).Format(time.RFC3339)
		used(e, fmt.Sprintf(`model-%d<script>alert("x")</script>`+"\u202e\x1b[31m", n), int64(n)*100)
		return true
	})
	page := get(t, c, "/?figure=total&by=model&tz=UTC").Body.String()
	for _, text := range []string{
		`data-figure="total" data-value="7800"`, `data-figure="sessions" data-value="1"`, `data-figure="cost_usd" data-value="null"`,
		`<tr data-period="2026-03-10"><th scope="row" class="nowrap">2026-03-10</th><td class="num" data-total="0">`, // between two days with events
		`<th scope="row" class="nowrap">2026-03-12</th><td class="num" data-total="3600">`,
		`data-series="others"`, `<input type="hidden" name="figure" value="total">`, `href="?by=repo&amp;figure=total&amp;tz=UTC"`,
		"300 tokens are not in the cost", "Prices: built-in table of ",
	} {
		if !strings.Contains(page, text) {
			t.Errorf("no %s", text)
		}
	}
	if got := strings.Count(page, "data-series="); got != maxSeries {
		t.Errorf("%d series, want %d", got, maxSeries)
	}
	for _, text := range []string{"<script>alert", "\u202e", "\x1b"} {
		if strings.Contains(page, text) {
			t.Errorf("the page has %q of a log", text)
		}
	}
	// The links of a value lead to what it has alone.
	alone := get(t, c, "/?figure=total&tz=UTC&model=none").Body.String()
	if !strings.Contains(alone, "No events are selected") {
		t.Errorf("a model that nobody used: %.2000s", alone)
	}
}

func TestOverviewOfALongStreamIsOfTheLastWeeks(t *testing.T) {
	t.Parallel()
	c := newConsole(t, func(cfg *Config) { cfg.Limits.Unasked = 2 })
	n := 0
	answers(t, c.config.JetStream, func(e *envelopes.AgentEventV1) bool {
		n++
		e.TS = time.Now().AddDate(0, 0, -n*20).UTC().Format(time.RFC3339)
		used(e, "opus", 1)
		return n <= 3
	})
	const one, three = `data-figure="events" data-value="1"`, `data-figure="events" data-value="3"`
	requireStatus(t, get(t, c, "/?by=repo"), http.StatusOK, one, "The stream has 3 events", `href="?by=repo&amp;since=all"`, "against the range before")
	requireStatus(t, get(t, c, "/?since=all"), http.StatusOK, three, `aria-current="true">all</a>`)
	requireStatus(t, get(t, c, "/?since=all&per=hour"), http.StatusOK, three, "2 earlier periods with events are not shown")
	requireStatus(t, get(t, c, "/?until="+time.Now().Add(time.Hour).UTC().Format("2006-01-02T15:04:05Z")), http.StatusOK, three)
}

func TestOverviewRefusesUnknownChoices(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	for query, text := range map[string]string{
		"figure=latency": "figure names no figure", "per=minute": "write hour, day, week or month", "by=tool": "by names nothing",
	} {
		requireStatus(t, get(t, c, "/?"+query), http.StatusBadRequest, text)
	}
}

func TestPeriodsWithoutEventsAreBetweenOthers(t *testing.T) {
	t.Parallel()
	for per, c := range map[sessions.Dimension]struct{ periods, want []string }{
		sessions.ByHour:  {[]string{"2026-03-09 22:00", "2026-03-10 01:00"}, []string{"2026-03-09 22:00", "2026-03-09 23:00", "2026-03-10 00:00", "2026-03-10 01:00"}},
		sessions.ByDay:   {[]string{"2026-02-27", "2026-03-02"}, []string{"2026-02-27", "2026-02-28", "2026-03-01", "2026-03-02"}},
		sessions.ByWeek:  {[]string{"2026-W52", "2027-W02"}, []string{"2026-W52", "2026-W53", "2027-W01", "2027-W02"}},
		sessions.ByMonth: {[]string{sessions.OtherName, "2026-11", "2027-01"}, []string{sessions.OtherName, "2026-11", "2026-12", "2027-01"}},
	} {
		if diff := gocmp.Diff(c.want, withEmpty(per, c.periods)); diff != "" {
			t.Errorf("%s:\n%s", per, diff)
		}
	}
	long := withEmpty(sessions.ByDay, []string{"1970-01-01", "2026-03-01", "2026-03-02"})
	if len(long) != maxPeriods || !slices.Equal(long[len(long)-3:], []string{"2026-02-28", "2026-03-01", "2026-03-02"}) {
		t.Errorf("%d periods: %v", len(long), long)
	}
}

// TestVendoredFilesAreThoseOfTheirRelease: uPlot 1.6.32, as the registry of npm has it. A new release has new digests here.
func TestVendoredFilesAreThoseOfTheirRelease(t *testing.T) {
	t.Parallel()
	digests := map[string]string{
		"vendor/uplot/LICENSE":       "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
		"vendor/uplot/uPlot.esm.js":  "5dd9b3281aa64b461b42d9945f6adb2649d346502b12281a9ae0d46599a80eba",
		"vendor/uplot/uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
	}
	files := newConsole(t).assets.files
	for name := range digests {
		if files[name] == nil {
			t.Errorf("no %s", name)
		}
	}
	for name, data := range files {
		sum := sha256.Sum256(data)
		if strings.HasPrefix(name, "vendor/") && hex.EncodeToString(sum[:]) != digests[name] {
			t.Errorf("%s has the digest %x", name, sum)
		}
	}
}

// BenchmarkOverview answers with the overview of a stream of answers without records of sessions: everything is read, and
// summed up seven times. The server is in this process, too.
//
//	go test ./cmd/internal/console -run '^$' -bench Overview -benchtime 3x
func BenchmarkOverview(b *testing.B) {
	const events, fleet = 100_000, 1000
	c := newConsole(b, func(cfg *Config) { cfg.Limits.Duration = time.Hour })
	n := 0
	answers(b, c.config.JetStream, func(e *envelopes.AgentEventV1) bool {
		if n++; n > events {
			return false
		}
		e.SessionID, e.Sequence = fmt.Sprint("session-", n%fleet), uint64(n/fleet+1)
		e.TS = time.Date(2026, 3, 1, 0, n/3, 0, 0, time.UTC).Format(time.RFC3339)
		used(e, fmt.Sprint("model-", n%fleet%20), 100)
		e.Usage.Key = fmt.Sprintf("msg_of_20_bytes_or_more_%d", n)
		e.VCS = &envelopes.VCS{Repository: fmt.Sprint("github.com/acme/", n%fleet%50), Branch: "main"}
		return true
	})
	for _, query := range []string{"tz=UTC", "tz=UTC&since=2026-03-10&until=2026-03-17&repo=7&by=repo"} {
		b.Run("query="+query, func(b *testing.B) {
			for b.Loop() {
				requireStatus(b, get(b, c, "/?"+query), http.StatusOK, `data-figure="cost_usd"`)
			}
			b.ReportMetric(events*float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
