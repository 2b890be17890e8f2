package main

import (
	"fmt"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"tributary/envelopes"
	"tributary/pipeline/receive"
	"tributary/pipeline/records"
)

// check adds a setting to the error unless ok.
func (e *settingsError) check(ok bool, name, value, cure string) {
	if !ok {
		*e = append(*e, fmt.Sprintf("%s=%q: %s", name, value, cure))
	}
}

// validate checks the settings. It is called after the flags are parsed.
func (c *config) validate() settingsError {
	var wrong settingsError
	c.validateEnums(&wrong)
	c.validateBroker(&wrong)
	wrong.check(c.Generation == "" || envelopes.CheckGeneration(c.Generation) == nil, "TRIBUTARY_GENERATION", c.Generation, "write 1 to 32 of a-z, 0-9 and -, and not current")
	wrong.check(c.Partitions >= 1 && c.Partitions <= 1024, "TRIBUTARY_PARTITIONS", strconv.Itoa(c.Partitions), "write 1 to 1024")
	wrong.check(c.Cells >= 1 && c.Cells <= min(64, c.Partitions), "TRIBUTARY_CELLS", strconv.Itoa(c.Cells), "write 1 to 64, at most as many as TRIBUTARY_PARTITIONS")
	wrong.check(c.Replicas >= 0 && c.Replicas <= 5, "TRIBUTARY_REPLICAS", strconv.Itoa(c.Replicas), "write 1 to 5, or 0 to leave the streams as they are")
	for _, age := range []struct {
		name string
		age  time.Duration
	}{{"TRIBUTARY_RAW_MAX_AGE", c.RawMaxAge}, {"TRIBUTARY_EVENTS_MAX_AGE", c.EventsMaxAge}} {
		wrong.check(age.age == 0 || age.age >= time.Second, age.name, age.age.String(), "write a second or more, or 0 to keep them for ever")
	}
	wrong.check(c.ArchiveAfter == 0 || c.ArchiveAfter >= time.Hour, "TRIBUTARY_ARCHIVE_AFTER", c.ArchiveAfter.String(), "write an hour or more, or 0 to keep all states where they are")
	wrong.check(c.ChangesMaxAge == 0 || c.ChangesMaxAge >= time.Minute, "TRIBUTARY_CHANGES_MAX_AGE", c.ChangesMaxAge.String(), "write a minute or more, or 0 to keep them for ever")
	if _, err := records.ParseLabels(c.Labels); err != nil {
		wrong.check(false, "TRIBUTARY_LABELS", c.Labels, err.Error()+": write labels such as team=payments,env=ci")
	}
	if _, err := receive.ParseSubjects(c.ReceiveSubjects); err != nil {
		wrong.check(false, "TRIBUTARY_RECEIVE_SUBJECTS", c.ReceiveSubjects, err.Error()+": write subjects such as logs=otel_logs,traces=otel_traces")
	}
	wrong.check(c.ReceiveMaxBody >= 1 && c.ReceiveMaxBody <= 64, "TRIBUTARY_RECEIVE_MAX_BODY", strconv.Itoa(c.ReceiveMaxBody), "write 1 to 64, the longest record")
	wrong.check(c.ReceiveMaxInFlight >= c.ReceiveMaxBody, "TRIBUTARY_RECEIVE_MAX_IN_FLIGHT", strconv.Itoa(c.ReceiveMaxInFlight), "write at least TRIBUTARY_RECEIVE_MAX_BODY")
	wrong.check(c.ReceiveMaxRecords >= 1, "TRIBUTARY_RECEIVE_MAX_RECORDS", strconv.Itoa(c.ReceiveMaxRecords), "write 1 or more")
	wrong.check(c.ReceiveMaxRequests >= 1, "TRIBUTARY_RECEIVE_MAX_REQUESTS", strconv.Itoa(c.ReceiveMaxRequests), "write 1 or more")
	wrong.check(c.ReceiveBodyTimeout > 0, "TRIBUTARY_RECEIVE_BODY_TIMEOUT", c.ReceiveBodyTimeout.String(), "write more than 0s")
	wrong.check(c.DrainTimeout > 0, "TRIBUTARY_DRAIN_TIMEOUT", c.DrainTimeout.String(), "write more than 0s")
	return wrong
}

// validateEnums checks the settings that have a list of values.
func (c *config) validateEnums(wrong *settingsError) {
	for _, s := range settings() {
		if s.values == "" {
			continue
		}
		v, values := reflect.ValueOf(c).Elem().FieldByIndex(s.field.Index).String(), strings.Fields(s.values)
		wrong.check(v == "" && s.fallback == "" || slices.Contains(values, v), s.name, v, "write one of "+strings.Join(values, ", "))
	}
}

// validateBroker checks the NATS_ settings.
func (c *config) validateBroker(wrong *settingsError) {
	wrong.check(validServers(c.NATSURL), "NATS_URL", redactURL(c.NATSURL), "write nats://host:4222, or tls, ws or wss")
	wrong.check(c.NATSPassword == "" || c.NATSUser != "", "NATS_USER", "", "name the user of NATS_PASSWORD")
	wrong.check((c.NATSCert == "") == (c.NATSKey == ""), "NATS_CERT", c.NATSCert, "set NATS_CERT and NATS_KEY both, or none")
	for _, file := range []struct{ name, path string }{
		{"NATS_CREDS", c.NATSCreds},
		{"NATS_NKEY", c.NATSNKey},
		{"NATS_CERT", c.NATSCert},
		{"NATS_KEY", c.NATSKey},
		{"NATS_CA", c.NATSCA},
	} {
		if file.path != "" {
			_, err := os.Stat(file.path)
			wrong.check(err == nil, file.name, file.path, "name a file that exists and can be read")
		}
	}
}

// validServers reports whether every server of a list is a URL of a broker.
func validServers(list string) bool {
	for server := range strings.SplitSeq(list, ",") {
		if !strings.Contains(server, "://") {
			server = "nats://" + server
		}
		u, err := url.Parse(strings.TrimSpace(server))
		if err != nil || u.Host == "" || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme) {
			return false
		}
	}
	return true
}
