package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/agnivade/levenshtein"
	"github.com/kelseyhightower/envconfig"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/redact"
	"tributary/pipeline/ship"
	"tributary/pipeline/streams"
)

// config has all settings of the program, except the folders of the agents, which are in the table of vendors.
// Nothing else reads the environment. The tag envconfig of a field names its variable, desc documents it, and oneof
// lists its values. An empty variable counts as unset. Flags are bound to the fields: they win over the environment,
// which wins over the defaults.
type config struct {
	NATSURL      string `envconfig:"NATS_URL" default:"nats://127.0.0.1:4222" desc:"servers to connect to, separated by commas"`
	NATSUser     string `envconfig:"NATS_USER" desc:"user name, or a token when there is no password"`
	NATSPassword secret `envconfig:"NATS_PASSWORD" desc:"password of the user"`
	NATSCreds    string `envconfig:"NATS_CREDS" desc:"file with the user's JWT and seed"`
	NATSNKey     string `envconfig:"NATS_NKEY" desc:"file with the seed of an NKey"`
	NATSCert     string `envconfig:"NATS_CERT" desc:"file with the client's TLS certificate"`
	NATSKey      string `envconfig:"NATS_KEY" desc:"file with the key of the TLS certificate"`
	NATSCA       string `envconfig:"NATS_CA" desc:"file with the certificates of the authorities to trust"`
	NATSInbox    string `envconfig:"NATS_INBOX_PREFIX" desc:"prefix of the subjects of answers, such as _INBOX_ship, for a user that may subscribe to nothing else; default _INBOX"`
	NATSContext  string `envconfig:"NATS_CONTEXT" desc:"a context of the nats command; it replaces all other NATS_ settings"`

	Generation    string         `envconfig:"TRIBUTARY_GENERATION" desc:"generation to work with: a-z, 0-9 and -, at most 32; default the live one, on a new broker v1"`
	Partitions    int            `envconfig:"TRIBUTARY_PARTITIONS" default:"16" desc:"partitions of the raw records, 1 to 1024; fixed when the raw stream is created"`
	Cells         int            `envconfig:"TRIBUTARY_CELLS" default:"1" desc:"pairs of raw and events streams over which the partitions are spread, 1 to 64; fixed when the raw stream is created"`
	Replicas      int            `envconfig:"TRIBUTARY_REPLICAS" default:"0" desc:"replicas of the streams, 1 to 5; 0 leaves existing streams as they are, and new ones get 1"`
	RawMaxAge     time.Duration  `envconfig:"TRIBUTARY_RAW_MAX_AGE" default:"0s" desc:"how long raw records are kept, also those that are stored already; 0 leaves an existing stream as it is, and a new one keeps them for ever"`
	EventsMaxAge  time.Duration  `envconfig:"TRIBUTARY_EVENTS_MAX_AGE" default:"0s" desc:"how long events are kept after they are stored; 0 keeps them for ever"`
	ArchiveAfter  time.Duration  `envconfig:"TRIBUTARY_ARCHIVE_AFTER" default:"720h" desc:"how long the state of a session stays in the index of the broker after its last record, an hour or more; then it is moved to an archive, from where a late record brings it back. 0 for ever"`
	ChangesMaxAge time.Duration  `envconfig:"TRIBUTARY_CHANGES_MAX_AGE" default:"720h" desc:"how long changes of titles and pins are kept for watchers that are away, a minute or more; 0 keeps them for ever. Titles and pins themselves are kept for ever"`
	CloudEvents   envelopes.Mode `envconfig:"TRIBUTARY_CLOUDEVENTS" oneof:"binary structured" desc:"mode of the CloudEvents that are published; default that of the generation, in a new one binary"`
	Worker        string         `envconfig:"TRIBUTARY_WORKER" desc:"name of the worker, different for each; default host name and process id"`

	ToolMetadata core.Profile `envconfig:"TRIBUTARY_TOOL_METADATA" oneof:"opencode current" desc:"shapes of tool_metadata, those that OpenCode documented or its current ones; default those of the generation, in a new one opencode"`

	Raw streams.RawMode `envconfig:"TRIBUTARY_RAW" oneof:"carried referenced" desc:"whether the first event of a record carries it in raw, or refers to it in the raw stream; default that of the generation, in a new one carried"`

	Redact        redact.Mode `envconfig:"TRIBUTARY_REDACT" oneof:"full redacted metadata_only" desc:"what ship replaces in records before it sends them, and run before it normalizes them: full nothing, redacted secrets, metadata_only all content; default full, and for run the mode of the generation"`
	RedactKey     secret      `envconfig:"TRIBUTARY_REDACT_KEY" desc:"key of the placeholders of redaction and of pseudonyms, 16 bytes or more: equal texts have equal ones under one key; default the file redact.key in the data folder, which is made when it is missing"`
	RedactKeyFile string      `envconfig:"TRIBUTARY_REDACT_KEY_FILE" desc:"file with the key of the placeholders of redaction"`
	RedactRules   string      `envconfig:"TRIBUTARY_REDACT_RULES" desc:"file of rules of redaction in the format of gitleaks, which add to the built-in ones"`

	Identity string `envconfig:"TRIBUTARY_IDENTITY" default:"plain" oneof:"plain pseudonym off" desc:"how the records of ship, receive and up name the host and the user that send them: plain as they are, pseudonym by digests under the key of redaction, off not at all"`
	Labels   string `envconfig:"TRIBUTARY_LABELS" desc:"labels of the records of ship, receive and up, such as team=payments,env=ci: at most 16, of 512 bytes together"`

	Data         string        `envconfig:"TRIBUTARY_DATA" desc:"folder of the embedded server and of the progress of ship; default $XDG_STATE_HOME/tributary"`
	Listen       string        `envconfig:"TRIBUTARY_LISTEN" default:"127.0.0.1:4222" desc:"address of the embedded server, which asks for no password; --listen \"\" for none"`
	Idle         time.Duration `envconfig:"TRIBUTARY_IDLE" default:"5m0s" desc:"time without a write after which ship ends the sessions of a log, and sends a complete last line without a line end"`
	StartTimeout time.Duration `envconfig:"TRIBUTARY_START_TIMEOUT" default:"5m0s" desc:"how long a worker that starts waits for a broker that is away or elects a leader; 0 waits for ever"`
	DrainTimeout time.Duration `envconfig:"TRIBUTARY_DRAIN_TIMEOUT" default:"20s" desc:"how long work in progress may take after the first signal"`
	HTTP         string        `envconfig:"TRIBUTARY_HTTP" desc:"address at which run, ship, receive and up serve /livez, /readyz, /metrics and /version, such as 127.0.0.1:9464, or :9464 for other hosts; default none"`
	LogLevel     slog.Level    `envconfig:"TRIBUTARY_LOG_LEVEL" default:"info" desc:"debug, info, warn or error"`
	LogFormat    string        `envconfig:"TRIBUTARY_LOG_FORMAT" default:"text" oneof:"text json" desc:"format of the log on standard error"`

	ConsoleListen     string `envconfig:"TRIBUTARY_CONSOLE_LISTEN" default:"127.0.0.1:8423" desc:"address of the page that console and up serve; another one than that of this machine needs a certificate or --insecure-listen, and a token or a proxy; up --console \"\" for none"`
	ConsoleWrite      bool   `envconfig:"TRIBUTARY_CONSOLE_WRITE" default:"false" desc:"true lets the console change titles, pins, dead letters and generations"`
	ConsoleToken      secret `envconfig:"TRIBUTARY_CONSOLE_TOKEN" desc:"token that the console asks for, 16 bytes or more; default none on this machine, elsewhere a new one at each start"`
	ConsoleTokenFile  string `envconfig:"TRIBUTARY_CONSOLE_TOKEN_FILE" desc:"file with that token"`
	ConsoleCert       string `envconfig:"TRIBUTARY_CONSOLE_CERT" desc:"file with the TLS certificate of the console"`
	ConsoleKey        string `envconfig:"TRIBUTARY_CONSOLE_KEY" desc:"file with the key of that certificate"`
	ConsoleHosts      string `envconfig:"TRIBUTARY_CONSOLE_HOSTS" desc:"names of hosts at which browsers ask for the console, separated by commas, beside localhost and those of the certificate; requests with others are refused"`
	ConsoleUserHeader string `envconfig:"TRIBUTARY_CONSOLE_USER_HEADER" desc:"header in which a proxy names the user that it has let in, such as X-Forwarded-User; the console then asks for no token"`
	ConsoleProxies    string `envconfig:"TRIBUTARY_CONSOLE_PROXIES" desc:"addresses of the proxies whose header counts, such as 10.0.0.0/8, separated by commas; default those of this machine"`

	ReceiveListen      string        `envconfig:"TRIBUTARY_RECEIVE_LISTEN" default:"127.0.0.1:4318" desc:"address at which receive and up take OTLP over HTTP, hooks and records; another one than that of this machine needs senders that prove who they are, and a certificate or --insecure-listen; receive --listen \"\" for none"`
	ReceiveGRPC        string        `envconfig:"TRIBUTARY_RECEIVE_GRPC" default:"127.0.0.1:4317" desc:"address at which they take OTLP over gRPC; receive --grpc \"\" for none"`
	ReceiveSubjects    string        `envconfig:"TRIBUTARY_RECEIVE_SUBJECTS" desc:"subjects of NATS at which they take OTLP, too, such as logs=otel_logs,traces=otel_traces,metrics=otel_metrics; default none"`
	ReceiveTokens      string        `envconfig:"TRIBUTARY_RECEIVE_TOKENS" desc:"file of the tokens of senders, with lines such as SHA256 user=ada team=payments; it is read again when it has changed"`
	ReceiveCert        string        `envconfig:"TRIBUTARY_RECEIVE_CERT" desc:"file with the TLS certificate of the receiver"`
	ReceiveKey         string        `envconfig:"TRIBUTARY_RECEIVE_KEY" desc:"file with the key of that certificate"`
	ReceiveClientCA    string        `envconfig:"TRIBUTARY_RECEIVE_CLIENT_CA" desc:"file with the authorities of the certificates of senders, whose names are the users"`
	ReceiveUserHeader  string        `envconfig:"TRIBUTARY_RECEIVE_USER_HEADER" desc:"header in which a proxy names the user that it has let in, such as X-Forwarded-User"`
	ReceiveProxies     string        `envconfig:"TRIBUTARY_RECEIVE_PROXIES" desc:"addresses of the proxies whose header counts, such as 10.0.0.0/8, separated by commas; default those of this machine"`
	ReceiveMaxBody     int           `envconfig:"TRIBUTARY_RECEIVE_MAX_BODY" default:"16" desc:"MiB of one request, inflated, 1 to 64"`
	ReceiveMaxInFlight int           `envconfig:"TRIBUTARY_RECEIVE_MAX_IN_FLIGHT" default:"64" desc:"MiB of all requests in progress, inflated; the process takes up to ten times as much memory"`
	ReceiveMaxRecords  int           `envconfig:"TRIBUTARY_RECEIVE_MAX_RECORDS" default:"20000" desc:"records of one request"`
	ReceiveMaxRequests int           `envconfig:"TRIBUTARY_RECEIVE_MAX_REQUESTS" default:"64" desc:"requests in progress of one sender"`
	ReceiveBodyTimeout time.Duration `envconfig:"TRIBUTARY_RECEIVE_BODY_TIMEOUT" default:"30s" desc:"how long a request may take to arrive"`

	TracesExporter      string `envconfig:"OTEL_TRACES_EXPORTER" default:"none" oneof:"none otlp console" desc:"exporter of traces; the other OTEL_ variables of the OpenTelemetry SDK apply too"`
	OTLPEndpoint        string `envconfig:"OTEL_EXPORTER_OTLP_ENDPOINT" desc:"receiver of OTLP; default http://localhost:4318, with the protocol grpc http://localhost:4317"`
	OTLPTracesEndpoint  string `envconfig:"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" desc:"receiver of traces; wins, and is the whole URL"`
	OTLPProtocol        string `envconfig:"OTEL_EXPORTER_OTLP_PROTOCOL" default:"http/protobuf" oneof:"http/protobuf grpc" desc:"protocol of OTLP"`
	OTLPTracesProtocol  string `envconfig:"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL" oneof:"http/protobuf grpc" desc:"protocol of traces; wins"`
	OTLPMetricsProtocol string `envconfig:"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL" oneof:"http/protobuf grpc" desc:"protocol of metrics; wins"`
	MetricsExporter     string `envconfig:"OTEL_METRICS_EXPORTER" default:"none" oneof:"none otlp console prometheus" desc:"exporter of metrics; prometheus lets run and up serve them at OTEL_EXPORTER_PROMETHEUS_HOST and _PORT, unless TRIBUTARY_HTTP names another address"`
	PrometheusHost      string `envconfig:"OTEL_EXPORTER_PROMETHEUS_HOST" default:"localhost" desc:"host of the exporter prometheus; 0.0.0.0 for other hosts"`
	PrometheusPort      string `envconfig:"OTEL_EXPORTER_PROMETHEUS_PORT" default:"9464" desc:"port of the exporter prometheus"`
	ServiceName         string `envconfig:"OTEL_SERVICE_NAME" default:"tributary" desc:"name of the service in traces and metrics"`
	SDKDisabled         bool   `envconfig:"OTEL_SDK_DISABLED" default:"false" desc:"true disables traces and metrics"`

	AWSEndpoint      string `envconfig:"AWS_ENDPOINT_URL" desc:"object store of export --out s3://; default Amazon S3. Credentials are those of the other AWS_ variables"`
	S3Endpoint       string `envconfig:"AWS_ENDPOINT_URL_S3" desc:"wins over AWS_ENDPOINT_URL"`
	AWSRegion        string `envconfig:"AWS_REGION" desc:"region of the bucket"`
	AWSDefaultRegion string `envconfig:"AWS_DEFAULT_REGION" desc:"the same, if AWS_REGION is unset"`

	XDGStateHome string `envconfig:"XDG_STATE_HOME" desc:"folder of state; default ~/.local/state"`
	NoColor      string `envconfig:"NO_COLOR" desc:"any value disables colours"`
	Pager        string `envconfig:"PAGER" desc:"command line that shows what sessions read prints on a terminal; default less, if there is one"`
	Less         string `envconfig:"LESS" default:"FRX" desc:"options of less: colours, and no pager for what fits the terminal"`

	unknown []unknownSetting
}

// foreignSettings have the prefix of this program and belong to its tests.
var foreignSettings = []string{"TRIBUTARY_CORPUS", "TRIBUTARY_GOLDENS"}

// secret is a value that fmt and slog print as a placeholder.
type secret string

func (secret) String() string       { return "[secret]" }
func (secret) GoString() string     { return "[secret]" }
func (secret) LogValue() slog.Value { return slog.StringValue("[secret]") }

// settingsError lists everything that is wrong with the settings.
type settingsError []string

// Error implements error.

func (e settingsError) Error() string {
	if len(e) == 1 {
		return e[0]
	}
	return fmt.Sprintf("%d settings are wrong:\n  %s", len(e), strings.Join(e, "\n  "))
}

// setting is the documentation of one field of [config].
type setting struct {
	name, fallback, values, desc string
	field                        reflect.StructField // of [config]; zero for a setting of the table of vendors
}

// settings lists all settings as the documentation orders them: the fields of [config], then the folders of the
// agents.
func settings() []setting {
	var list []setting
	for _, f := range reflect.VisibleFields(reflect.TypeFor[config]()) {
		if !f.IsExported() {
			continue
		}
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
		if v.Database != nil && v.Database.Env != "" && v.Database.Env != v.Logs.Env {
			list = append(list, setting{name: v.Database.Env, desc: v.Database.About})
		}
	}
	return list
}

// loadConfig reads the environment. The error has the variables that cannot be parsed; their fields have the
// defaults.
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
			wrong = append(wrong, parseFailure(s, err))
			os.Unsetenv(s.name)
			if err := c.load(s); err != nil {
				panic(fmt.Sprintf("default of %s: %v", s.name, err)) // a mistake in the struct
			}
		}
	}
	for _, env := range os.Environ() {
		name, value, _ := strings.Cut(env, "=")
		if value == "" || slices.Contains(known, name) || ofKubernetes(name, value) {
			continue
		}
		if strings.HasPrefix(name, "TRIBUTARY_") {
			c.unknown = append(c.unknown, unknownSetting{name, nearest(name, known, (len(name)-len("TRIBUTARY_"))/3)})
		} else if like := misspelled(name, known); like != "" {
			c.unknown = append(c.unknown, unknownSetting{name, like})
		}
	}
	return c, wrong
}

// kubernetesVariable matches the variables that Kubernetes sets in a pod for services whose names begin with
// tributary or nats.
var kubernetesVariable = regexp.MustCompile(`^(TRIBUTARY|NATS)_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// ofKubernetes reports whether Kubernetes sets a variable. One that ends in PORT has an address there: with a number
// it is a misspelled setting.
func ofKubernetes(name, value string) bool {
	return kubernetesVariable.MatchString(name) &&
		(!strings.HasSuffix(name, "_PORT") || strings.HasSuffix(name, "_SERVICE_PORT") || strings.HasSuffix(name, "_TCP_PORT") ||
			strings.HasSuffix(name, "_UDP_PORT") || strings.HasSuffix(name, "_SCTP_PORT") || strings.Contains(value, "://"))
}

// misspelled returns the setting that a variable of another program's prefix was meant to be: one that differs by one
// letter, a long one by two. Other programs have variables with these prefixes, too.
func misspelled(name string, known []string) string {
	prefix, _, _ := strings.Cut(name, "_")
	if prefix != "NATS" && prefix != "OTEL" && prefix != "AWS" {
		return ""
	}
	same := slices.DeleteFunc(slices.Clone(known), func(k string) bool { return !strings.HasPrefix(k, prefix+"_") })
	return nearest(name, same, min(2, (len(name)-len(prefix))/3))
}

// unknownSetting is a variable that has the prefix of this program but is no setting.
type unknownSetting struct{ name, nearest string }

// nearest returns the most similar setting, which differs by at most limit letters; empty if there is none.
func nearest(name string, known []string, limit int) string {
	best := ""
	for _, k := range known {
		if d := levenshtein.ComputeDistance(name, k); d <= limit {
			best, limit = k, d-1
		}
	}
	return best
}

// warnOfUnknown logs the variables that look like settings but are none.
func (c *config) warnOfUnknown(ctx context.Context, log *slog.Logger) {
	for _, u := range c.unknown {
		cure := "unset it; tributary help environment lists all settings"
		if u.nearest != "" {
			cure = "did you mean " + u.nearest + "?"
		}
		log.WarnContext(ctx, "unknown setting is ignored", "name", u.name, "cure", cure)
	}
}

// load reads one field; envconfig would stop at the first error.
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

// parseFailure describes a value that cannot be parsed. It never prints a secret, because every string can be parsed.
func parseFailure(s setting, err error) string {
	var parse *envconfig.ParseError
	if !errors.As(err, &parse) {
		return s.name + ": cannot be parsed"
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

// redactURL hides users and passwords in a list of servers.
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
	if filepath.IsAbs(c.XDGStateHome) { // the XDG specification ignores relative paths
		return filepath.Join(c.XDGStateHome, "tributary"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no folder for the data: pass --data DIR: %w", err)
	}
	return filepath.Join(home, ".local", "state", "tributary"), nil
}

// shipState is the folder of the state of ship.
func (c *config) shipState() (string, error) {
	dir, err := c.dataDir()
	return filepath.Join(dir, "ship"), err
}

// broker identifies the broker in the state of ship.
func (c *config) broker() string { return c.NATSContext + "\n" + c.NATSURL }

// roots returns the folders in which the agents of this machine keep their logs.
func (c *config) roots() ([]ship.Root, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, fmt.Errorf("no home folder to search for logs: name the logs: %w", err)
	}
	return ship.Roots(home, os.Getenv), nil
}

// text returns the description of a setting and its values.
func (s setting) text() string {
	if s.values == "" {
		return s.desc
	}
	return s.desc + "; one of " + strings.Join(strings.Fields(s.values), ", ")
}

// topology returns the streams that the settings ask for.
func (c *config) topology() streams.Topology {
	return streams.Topology{
		Generation:   c.Generation,
		Settings:     streams.Settings{ToolMetadata: c.ToolMetadata, CloudEvents: c.CloudEvents, Raw: c.Raw},
		Partitions:   c.Partitions,
		Cells:        c.Cells,
		Replicas:     c.Replicas,
		RawMaxAge:    c.RawMaxAge,
		EventsMaxAge: c.EventsMaxAge,
	}
}
