package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kelseyhightower/envconfig"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/pipeline/ship"
)

// config is every setting of the program, but for the folders of the agents, which the table
// of vendors names. Nothing else reads the environment. A field is
// named by its tag envconfig, documented by desc, and may list its values in oneof; an
// empty variable is the same as none. Flags are bound to the fields, so they win over the
// environment, which wins over the defaults.
type config struct {
	NATSURL      string `envconfig:"NATS_URL" default:"nats://127.0.0.1:4222" desc:"servers to connect to, separated by commas"`
	NATSUser     string `envconfig:"NATS_USER" desc:"user name, or a token when there is no password"`
	NATSPassword secret `envconfig:"NATS_PASSWORD" desc:"password of the user"`
	NATSCreds    string `envconfig:"NATS_CREDS" desc:"file with the user's JWT and seed"`
	NATSNKey     string `envconfig:"NATS_NKEY" desc:"file with the seed of an NKey"`
	NATSCert     string `envconfig:"NATS_CERT" desc:"file with the client's TLS certificate"`
	NATSKey      string `envconfig:"NATS_KEY" desc:"file with the key of the TLS certificate"`
	NATSCA       string `envconfig:"NATS_CA" desc:"file with the certificates of the authorities to trust"`
	NATSContext  string `envconfig:"NATS_CONTEXT" desc:"a context of the nats command: takes the place of all other NATS_ settings"`

	Generation   string         `envconfig:"TRIBUTARY_GENERATION" default:"v1" desc:"generation that events belong to: a-z, 0-9 and -, at most 32"`
	Partitions   int            `envconfig:"TRIBUTARY_PARTITIONS" default:"16" desc:"partitions of the raw stream, 1 to 1024; fixed when the stream is made"`
	Replicas     int            `envconfig:"TRIBUTARY_REPLICAS" default:"0" desc:"replicas of the streams, 1 to 5; 0 leaves them as they are, new ones get 1"`
	RawMaxAge    time.Duration  `envconfig:"TRIBUTARY_RAW_MAX_AGE" default:"0s" desc:"how long raw records are kept, also those that are stored; 0 leaves the stream as it is, a new one keeps them for ever"`
	EventsMaxAge time.Duration  `envconfig:"TRIBUTARY_EVENTS_MAX_AGE" default:"0s" desc:"how long events are kept, from when they are stored; 0 for ever"`
	CloudEvents  envelopes.Mode `envconfig:"TRIBUTARY_CLOUDEVENTS" default:"binary" oneof:"binary structured" desc:"mode of the CloudEvents that are published"`
	Worker       string         `envconfig:"TRIBUTARY_WORKER" desc:"name of a worker, different for each; default host name and process id"`

	ToolMetadata normalizers.Profile `envconfig:"TRIBUTARY_TOOL_METADATA" default:"opencode" oneof:"opencode current" desc:"shapes of tool_metadata, those that OpenCode documented or its current ones; the same for all workers of a generation"`

	Data         string        `envconfig:"TRIBUTARY_DATA" desc:"folder of the embedded server and of what ship has done; default $XDG_STATE_HOME/tributary"`
	Listen       string        `envconfig:"TRIBUTARY_LISTEN" default:"127.0.0.1:4222" desc:"address of the embedded server, which asks for no password; with --listen \"\" none"`
	DrainTimeout time.Duration `envconfig:"TRIBUTARY_DRAIN_TIMEOUT" default:"20s" desc:"how long work in progress may take after the first signal"`
	LogLevel     slog.Level    `envconfig:"TRIBUTARY_LOG_LEVEL" default:"info" desc:"debug, info, warn or error"`
	LogFormat    string        `envconfig:"TRIBUTARY_LOG_FORMAT" default:"text" oneof:"text json" desc:"form of the log on standard error"`

	TracesExporter  string `envconfig:"OTEL_TRACES_EXPORTER" default:"none" oneof:"none otlp console" desc:"where traces go; the other OTEL_ settings of the OpenTelemetry SDK hold too"`
	MetricsExporter string `envconfig:"OTEL_METRICS_EXPORTER" default:"none" oneof:"none otlp console prometheus" desc:"where metrics go; prometheus serves http://localhost:9464/metrics, or where OTEL_EXPORTER_PROMETHEUS_HOST and _PORT say"`
	ServiceName     string `envconfig:"OTEL_SERVICE_NAME" default:"tributary" desc:"name of the service in traces and metrics"`
	SDKDisabled     bool   `envconfig:"OTEL_SDK_DISABLED" default:"false" desc:"true turns traces and metrics off"`

	XDGStateHome string `envconfig:"XDG_STATE_HOME" desc:"folder of state; default ~/.local/state"`
	NoColor      string `envconfig:"NO_COLOR" desc:"anything turns colours off"`
}

// foreignSettings have our prefix and belong to the tests.
var foreignSettings = []string{"TRIBUTARY_CORPUS", "TRIBUTARY_GOLDENS"}

// secret is a value that is never shown: fmt and slog print a placeholder.
type secret string

func (secret) String() string       { return "[secret]" }
func (secret) GoString() string     { return "[secret]" }
func (secret) LogValue() slog.Value { return slog.StringValue("[secret]") }

// settingsError is everything that is wrong with the settings.
type settingsError []string

func (e settingsError) Error() string {
	if len(e) == 1 {
		return e[0]
	}
	return fmt.Sprintf("%d settings are wrong:\n  %s", len(e), strings.Join(e, "\n  "))
}

// setting is the documentation of one field of [config].
type setting struct {
	name, fallback, values, desc string
	field                        reflect.StructField // of [config]; the zero value for a setting of the table of vendors
}

// settings lists all settings in the order of the documentation: the fields of [config], and
// where the agents keep their logs.
func settings() []setting {
	var list []setting
	for _, f := range reflect.VisibleFields(reflect.TypeFor[config]()) {
		list = append(list, setting{
			name:     f.Tag.Get("envconfig"),
			fallback: f.Tag.Get("default"),
			values:   f.Tag.Get("oneof"),
			desc:     f.Tag.Get("desc"),
			field:    f,
		})
	}
	for _, v := range normalizers.Vendors() {
		if v.Logs.Env != "" {
			list = append(list, setting{name: v.Logs.Env, desc: v.Logs.About})
		}
	}
	return list
}

// loadConfig reads the environment. What cannot be read is told, and has its default in
// the config.
func loadConfig() (*config, settingsError) {
	c := new(config)
	var wrong settingsError
	known := slices.Clone(foreignSettings)
	for _, s := range settings() {
		known = append(known, s.name)
		if v, ok := os.LookupEnv(s.name); ok && v == "" {
			os.Unsetenv(s.name)
		}
		if err := c.load(s); err != nil {
			wrong = append(wrong, unreadable(s, err))
			os.Unsetenv(s.name)
			if err := c.load(s); err != nil {
				panic(fmt.Sprintf("default of %s: %v", s.name, err)) // a mistake in the struct
			}
		}
	}
	for _, env := range os.Environ() {
		name, value, _ := strings.Cut(env, "=")
		if strings.HasPrefix(name, "TRIBUTARY_") && value != "" && !slices.Contains(known, name) {
			wrong = append(wrong, name+": there is no such setting: unset it; tributary help environment lists what there is")
		}
	}
	return c, wrong
}

// load reads one field, by itself because envconfig stops at the first error.
func (c *config) load(s setting) error {
	if s.field.Name == "" {
		return nil
	}
	one := reflect.New(reflect.StructOf([]reflect.StructField{{Name: s.field.Name, Type: s.field.Type, Tag: s.field.Tag}}))
	if err := envconfig.Process("", one.Interface()); err != nil {
		return err
	}
	reflect.ValueOf(c).Elem().FieldByIndex(s.field.Index).Set(one.Elem().Field(0))
	return nil
}

// unreadable says what is wrong with the value of s. No field of type secret gets here:
// a string can always be read.
func unreadable(s setting, err error) string {
	var parse *envconfig.ParseError
	if !errors.As(err, &parse) {
		return s.name + ": cannot be read"
	}
	cure := "write " + s.desc
	switch s.field.Type {
	case reflect.TypeFor[time.Duration]():
		cure = "write a duration such as 30s, 12h or 720h"
	case reflect.TypeFor[int]():
		cure = "write a number"
	case reflect.TypeFor[bool]():
		cure = "write true or false"
	}
	return fmt.Sprintf("%s=%q: %s", s.name, parse.Value, cure)
}

// validate checks the settings as environment and flags have left them.
func (c *config) validate() settingsError {
	var wrong settingsError
	check := func(ok bool, name, value, cure string) {
		if !ok {
			wrong = append(wrong, fmt.Sprintf("%s=%q: %s", name, value, cure))
		}
	}
	for _, s := range settings() {
		if s.values == "" {
			continue
		}
		v, values := reflect.ValueOf(c).Elem().FieldByIndex(s.field.Index).String(), strings.Fields(s.values)
		check(slices.Contains(values, v), s.name, v, "write one of "+strings.Join(values, ", "))
	}
	for server := range strings.SplitSeq(c.NATSURL, ",") {
		if !strings.Contains(server, "://") {
			server = "nats://" + server
		}
		u, err := url.Parse(strings.TrimSpace(server))
		good := err == nil && u.Host != "" && slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme)
		check(good, "NATS_URL", redactURL(c.NATSURL), "write nats://host:4222, or tls, ws or wss")
		if !good {
			break
		}
	}
	check(c.NATSPassword == "" || c.NATSUser != "", "NATS_USER", "", "name the user of NATS_PASSWORD")
	check((c.NATSCert == "") == (c.NATSKey == ""), "NATS_CERT", c.NATSCert, "set NATS_CERT and NATS_KEY both, or none")
	for _, file := range []struct{ name, path string }{
		{"NATS_CREDS", c.NATSCreds},
		{"NATS_NKEY", c.NATSNKey},
		{"NATS_CERT", c.NATSCert},
		{"NATS_KEY", c.NATSKey},
		{"NATS_CA", c.NATSCA},
	} {
		if file.path != "" {
			_, err := os.Stat(file.path)
			check(err == nil, file.name, file.path, "name a file that exists and can be read")
		}
	}
	check(envelopes.CheckGeneration(c.Generation) == nil, "TRIBUTARY_GENERATION", c.Generation, "write 1 to 32 of a-z, 0-9 and -, and not current")
	check(c.Partitions >= 1 && c.Partitions <= 1024, "TRIBUTARY_PARTITIONS", strconv.Itoa(c.Partitions), "write 1 to 1024")
	check(c.Replicas >= 0 && c.Replicas <= 5, "TRIBUTARY_REPLICAS", strconv.Itoa(c.Replicas), "write 1 to 5, or 0 to leave the streams as they are")
	for _, age := range []struct {
		name string
		age  time.Duration
	}{{"TRIBUTARY_RAW_MAX_AGE", c.RawMaxAge}, {"TRIBUTARY_EVENTS_MAX_AGE", c.EventsMaxAge}} {
		check(age.age == 0 || age.age >= time.Second, age.name, age.age.String(), "write a second or more, or 0 to keep them for ever")
	}
	check(c.DrainTimeout > 0, "TRIBUTARY_DRAIN_TIMEOUT", c.DrainTimeout.String(), "write more than 0s")
	return wrong
}

// redactURL hides the user and password of a server list.
func redactURL(servers string) string {
	list := strings.Split(servers, ",")
	for i, s := range list {
		if scheme, rest, ok := strings.Cut(s, "://"); ok && strings.Contains(rest, "@") {
			list[i] = scheme + "://[secret]@" + rest[strings.LastIndexByte(rest, '@')+1:]
		} else if j := strings.LastIndexByte(s, '@'); j >= 0 {
			list[i] = "[secret]@" + s[j+1:]
		}
	}
	return strings.Join(list, ",")
}

// dataDir is the folder of the state of this program.
func (c *config) dataDir() (string, error) {
	if c.Data != "" {
		return filepath.Abs(c.Data)
	}
	if filepath.IsAbs(c.XDGStateHome) { // the specification says to ignore others
		return filepath.Join(c.XDGStateHome, "tributary"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no place for the data: pass --data DIR: %w", err)
	}
	return filepath.Join(home, ".local", "state", "tributary"), nil
}

// roots are the folders in which the agents of this machine keep their logs.
func (c *config) roots() ([]ship.Root, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, fmt.Errorf("no place to look for logs: name them: %w", err)
	}
	return ship.Roots(home, os.Getenv), nil
}

// workerName is the name under which a worker claims partitions.
func (c *config) workerName() string {
	if c.Worker != "" {
		return c.Worker
	}
	host, err := os.Hostname()
	if err != nil {
		host = "worker"
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}

// settingsText is the help topic "environment".
func settingsText() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, s := range settings() {
		fmt.Fprintf(w, "  %s\t%s\t%s\n", s.name, s.fallback, s.text())
	}
	w.Flush()
	return b.String()
}

// settingsTable is the configuration table of the README.
func settingsTable() string {
	var b strings.Builder
	b.WriteString("| variable | default | meaning |\n|---|---|---|\n")
	for _, s := range settings() {
		fallback := s.fallback
		if fallback != "" {
			fallback = "`" + fallback + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", s.name, fallback, s.text())
	}
	return b.String()
}

func (s setting) text() string {
	if s.values == "" {
		return s.desc
	}
	return s.desc + "; one of " + strings.Join(strings.Fields(s.values), ", ")
}
