package records_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/records"
)

// labelsOf returns n labels.
func labelsOf(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("l%d=v", i)
	}
	return strings.Join(list, ",")
}

// The sender of a record is read from any spelling of its headers. What breaks the rules of a header costs the record, whose
// error repeats nothing of the header.
func TestSenderIsReadFromTheHeadersOfAnyProducer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		header [3]string // host, user, labels
		want   *envelopes.Edge
		bad    string // of the error
	}{
		"nothing":                                {},
		"all":                                    {header: [3]string{"build-7", "ada", "team=payments,env=ci"}, want: &envelopes.Edge{Host: "build-7", User: "ada", Labels: map[string]string{"team": "payments", "env": "ci"}}},
		"encoded":                                {header: [3]string{"b%20%22%25", "Zo%C3%AB", "team=a%20b=c"}, want: &envelopes.Edge{Host: `b "%`, User: "Zoë", Labels: map[string]string{"team": "a b=c"}}},
		"quoted":                                 {header: [3]string{`"build 7"`, `ACME\ada`, `"team=payments, env=ci"`}, want: &envelopes.Edge{Host: "build 7", User: `ACME\ada`, Labels: map[string]string{"team": "payments", "env": "ci"}}},
		"labels alone":                           {header: [3]string{"", "", "a.b_c-9=x"}, want: &envelopes.Edge{Labels: map[string]string{"a.b_c-9": "x"}}},
		"as long as allowed":                     {header: [3]string{strings.Repeat("h", 255), "", labelsOf(16)}, want: &envelopes.Edge{Host: strings.Repeat("h", 255), Labels: must(records.ParseLabels(labelsOf(16)))}},
		"long host":                              {header: [3]string{strings.Repeat("h", 256)}, bad: "Tributary-Host: is not 1 to 255 bytes"},
		"host of 60 KiB":                         {header: [3]string{strings.Repeat("secret", 10<<10)}, bad: "Tributary-Host: is not 1 to 255 bytes"},
		"host with an escape":                    {header: [3]string{"secret%1B[2J"}, bad: "without control characters"},
		"user with a line end":                   {header: [3]string{"", "secret%0D%0ANats-Rollup: all"}, bad: "Tributary-User: is not"},
		"user with C1":                           {header: [3]string{"", "secret%C2%9B"}, bad: "Tributary-User: is not"},
		"user with NUL":                          {header: [3]string{"", "secret\x00"}, bad: "Tributary-User: is not"},
		"host that is not UTF-8":                 {header: [3]string{"secret%FF"}, bad: "not UTF-8"},
		"label without a value":                  {header: [3]string{"", "", "team"}, bad: "label 1 is not NAME=VALUE"},
		"label that is empty":                    {header: [3]string{"", "", "team=secret,"}, bad: "label 2 is not NAME=VALUE"},
		"value that is empty":                    {header: [3]string{"", "", "team="}, bad: "label 1 has a value"},
		"value with a bell":                      {header: [3]string{"", "", "team=secret%07"}, bad: "label 1 has a value"},
		"value with a space":                     {header: [3]string{"", "", "team= secret"}, bad: "label 1 has a value"},
		"name of a digit":                        {header: [3]string{"", "", "a=b,1secret=b"}, bad: "label 2 has a name"},
		"name with a letter of another alphabet": {header: [3]string{"", "", "te%C3%A4m=secret"}, bad: "label 1 has a name"},
		"name that is long":                      {header: [3]string{"", "", strings.Repeat("n", 64) + "=secret"}, bad: "label 1 has a name"},
		"name twice":                             {header: [3]string{"", "", "team=secret,team=secret"}, bad: "label 2 has the name of a label before it"},
		"many labels":                            {header: [3]string{"", "", labelsOf(17)}, bad: "there are more than 16 labels, or they take more than 512 bytes"},
		"long labels":                            {header: [3]string{"", "", "team=" + strings.Repeat("secret", 100)}, bad: "there are more than 16 labels, or they take more than 512 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := records.Message(core.Record{Source: envelopes.Codex, Session: "s", Origin: core.Origin{File: "f", Position: 7, Previous: 3}})
			m.Subject = "raw.0.codex.s" // as the stream stores it
			for i, header := range []string{envelopes.HeaderHost, envelopes.HeaderUser, envelopes.HeaderLabels} {
				if c.header[i] != "" {
					m.Header[header] = []string{c.header[i]}
				}
			}
			r, _, err := records.Read(m, 1, time.Unix(0, 0))
			if c.bad == "" {
				if diff := cmp.Diff(c.want, r.Origin.Edge); diff != "" || err != nil {
					t.Errorf("%v, sender (-want +got):\n%s", err, diff)
				}
				return
			}
			reason, permanent := records.Reason(err)
			if reason != "bad_header" || !permanent || !strings.Contains(err.Error(), c.bad) || strings.Contains(err.Error(), "secret") {
				t.Errorf("error %v of reason %s, want %s", err, reason, c.bad)
			}
			if r.Origin.Edge != nil || r.Origin.Position != 7 || r.Session != "s" {
				t.Errorf("record %+v", r)
			}
		})
	}
}

// What a record cannot state is refused where it is configured, by the same rules.
func TestSenderThatCannotBeStatedIsRefused(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]*envelopes.Edge{
		"host":        {Host: "a\nb"},
		"user":        {User: strings.Repeat("u", 256)},
		"label name":  {Labels: map[string]string{"a b": "c"}},
		"label value": {Labels: map[string]string{"a": "b,c"}},
		"labels":      {Labels: map[string]string{"a": strings.Repeat("b", 511)}},
		"no user":     {Host: "a", Verified: true},
	} {
		if records.CheckEdge(e) == nil {
			t.Errorf("%s is not refused", name)
		}
		m := records.Message(core.Record{Source: envelopes.Codex, Session: "s", Origin: core.Origin{Edge: e}})
		if got, err := records.ReadEdge(m.Header); err == nil {
			t.Errorf("%s is read as %+v", name, got)
		}
	}
	for _, e := range []*envelopes.Edge{nil, {Host: "build 7", User: "Zoë", Labels: map[string]string{"b": "=", "a": "x y"}}, {User: "Zoë", Verified: true}} {
		m := records.Message(core.Record{Source: envelopes.Codex, Session: "s", Origin: core.Origin{Edge: e}})
		got, err := records.ReadEdge(m.Header)
		if diff := cmp.Diff(e, got); diff != "" || err != nil || records.CheckEdge(e) != nil {
			t.Errorf("%v, sender (-sent +read):\n%s", err, diff)
		}
	}
	if got := records.FormatLabels(map[string]string{"b": "2", "a": "1"}); got != "a=1,b=2" {
		t.Errorf("labels %s", got)
	}
	if got, err := records.ReadEdge(nats.Header{}); got != nil || err != nil {
		t.Errorf("%+v, %v of no headers", got, err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
