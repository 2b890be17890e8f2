package doctor

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/cmd/internal/rights"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/receive"
	"tributary/pipeline/streams"
)

// serveReceiver serves a receiver until stop.
func serveReceiver(t *testing.T, js jetstream.JetStream, c receive.Config) (address string, stop func()) {
	t.Helper()
	r, err := receive.New(js, c)
	if err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- r.Serve(ctx, nil, time.Second, l) }()
	return l.Addr().String(), func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	}
}

// postHook posts a hook and returns the status of the answer.
func postHook(t *testing.T, address, body string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/v1/hooks/claude", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := answer.Body.Close(); err != nil {
		t.Error(err)
	}
	return answer.StatusCode
}

// awaitReceiver waits until the heartbeat of the only receiver satisfies ok.
func awaitReceiver(t *testing.T, js jetstream.JetStream, ok func(streams.Receiver) bool) {
	t.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	limit := time.After(time.Minute)
	for {
		list, err := streams.Receivers(t.Context(), js)
		if err == nil && len(list) == 1 && ok(list[0]) {
			return
		}
		select {
		case <-look.C:
		case <-limit:
			t.Fatalf("the receivers do not change any more: %+v, %v", list, err)
		}
	}
}

// TestDoctorSaysWhatReceiversDo has a receiver that stores and refuses, that the broker stops storing for, that ends, and
// that is not seen any more.
func TestDoctorSaysWhatReceiversDo(t *testing.T) {
	t.Parallel()
	top := streams.Topology{Generation: "v1", Partitions: 1}
	js := pipelinetest.NewServer(t).Provision(top)
	examine := func() *Diagnosis {
		t.Helper()
		d, err := Examine(t.Context(), js, Options{Topology: top, Denials: &rights.Denials{}, Skipped: func(err error) { t.Error(err) }})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	require := func(d *Diagnosis, verdict string, texts ...string) {
		t.Helper()
		i := slices.IndexFunc(d.Checks, func(c Check) bool { return c.Name == "receivers" })
		if i < 0 {
			t.Fatalf("checks: %+v", d.Checks)
		}
		is := d.Checks[i]
		for _, text := range texts {
			if is.Verdict != verdict || !strings.Contains(is.Text, text) {
				t.Errorf("%+v, want %s and %q", is, verdict, text)
			}
		}
	}
	require(examine(), OK, "none was seen")

	address, stop := serveReceiver(t, js, receive.Config{Host: "garden.example", Version: "v1", Heartbeat: 50 * time.Millisecond})
	const hook = `{"session_id":"one","hook_event_name":"Stop"}`
	if status := postHook(t, address, hook); status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	awaitReceiver(t, js, func(r streams.Receiver) bool { return r.Records == 1 && r.Requests == 1 && !r.Received.IsZero() })
	d := examine()
	require(d, OK, "1 alive: receivers.garden-example.", " at "+address)
	if len(d.Edges) > 0 || len(d.Receivers) != 1 {
		t.Errorf("edges %+v, receivers %+v", d.Edges, d.Receivers)
	}

	for range 2 {
		if status := postHook(t, address, `{"prompt":"secret`); status != http.StatusBadRequest {
			t.Fatalf("status %d", status)
		}
	}
	awaitReceiver(t, js, func(r streams.Receiver) bool { return r.Refused["malformed"].Requests == 2 })
	d = examine()
	require(d, Warning, "1 alive", "refused requests: malformed 2; malformed ", " ago: the body is not the JSON object of a hook")
	var out strings.Builder
	if err := d.Print(&out, 200); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"RECEIVER", "listening", address, "receiver receivers.garden-example."} {
		if !strings.Contains(out.String(), text) {
			t.Errorf("no %q in\n%s", text, &out)
		}
	}
	if strings.Contains(out.String(), "secret") {
		t.Errorf("a text of a request in\n%s", &out)
	}

	if err := js.DeleteStream(t.Context(), streams.RawStream); err != nil {
		t.Fatal(err)
	}
	if status := postHook(t, address, hook); status != http.StatusServiceUnavailable {
		t.Fatalf("status %d", status)
	}
	awaitReceiver(t, js, func(r streams.Receiver) bool { return r.Error != "" && r.Refused["unavailable"].Requests == 1 })
	if err := streams.Provision(t.Context(), js, top); err != nil {
		t.Fatal(err)
	}
	if d := examine(); !slices.ContainsFunc(d.Problems, func(p string) bool { return strings.Contains(p, "the broker did not store a request") }) {
		t.Errorf("problems %q", d.Problems)
	}
	if status := postHook(t, address, hook); status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	awaitReceiver(t, js, func(r streams.Receiver) bool { return r.Error == "" && r.Records == 2 })

	silent := examine()
	silent.At = silent.At.Add(time.Hour)
	silent.Checks = []Check{receivers{silent}.check()}
	require(silent, Problem, "none is alive: receivers.garden-example.", "was last seen 1h0m ago")

	stop()
	require(examine(), Warning, "none is alive", "ended ")
}
