package streams

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/redact"
)

// RedactKeyCure is the cure for a worker without the key of the others.
const RedactKeyCure = "give this worker the key of the others in TRIBUTARY_REDACT_KEY or TRIBUTARY_REDACT_KEY_FILE"

// Settings decide, together with the revision of the normalizers, how the events of a generation look. They are
// stored with the generation and never change. An empty field means the stored value, or the default in a new
// generation.
type Settings struct {
	ToolMetadata core.Profile   `json:"tool_metadata,omitzero"` // shapes of tool_metadata; default [core.ProfileOpenCode]
	CloudEvents  envelopes.Mode `json:"cloudevents,omitzero"`   // mode of the CloudEvents; default [envelopes.Binary]
	Raw          RawMode        `json:"raw,omitzero"`           // default [RawCarried]
	Redact       redact.Mode    `json:"redact,omitzero"`        // what to replace before normalization; default [redact.Full], nothing
	RedactKey    string         `json:"redact_key,omitzero"`    // fingerprint of the redaction key; empty for none
	RedactRules  string         `json:"redact_rules,omitzero"`  // fingerprint of the redaction rules; empty for none, or in a generation older than this field
}

// RawMode is how the first event of a record carries the record.
type RawMode string

// The modes.
const (
	RawCarried    RawMode = "carried"    // in its field raw
	RawReferenced RawMode = "referenced" // by its place in the raw stream; raw is null
)

// Apply sets up a session to emit events according to s. The encoded session does not include this.
func (s Settings) Apply(session *core.Session) {
	session.UseProfile(s.ToolMetadata)
	session.ReferToRaw(s.Raw == RawReferenced)
}

// setting is one field of [Settings].
type setting struct {
	key, fallback string
	values        []string // nil if the value follows from the redactor of a worker
	field         func(*Settings) *string
	cure          string // cure for a worker with another value; empty for the general one
}

// settingsTable lists the settings in documentation order.
var settingsTable = []setting{
	{
		"tool_metadata", string(core.ProfileOpenCode),
		[]string{string(core.ProfileOpenCode), string(core.ProfileCurrent)},
		func(s *Settings) *string { return (*string)(&s.ToolMetadata) },
		"",
	},
	{
		"cloudevents", string(envelopes.Binary),
		[]string{string(envelopes.Binary), string(envelopes.Structured)},
		func(s *Settings) *string { return (*string)(&s.CloudEvents) },
		"",
	},
	{
		"raw", string(RawCarried),
		[]string{string(RawCarried), string(RawReferenced)},
		func(s *Settings) *string { return (*string)(&s.Raw) },
		"",
	},
	{
		"redact", string(redact.Full),
		[]string{string(redact.Full), string(redact.Secrets), string(redact.MetadataOnly)},
		func(s *Settings) *string { return (*string)(&s.Redact) },
		"",
	},
	{
		"redact_key", "", nil,
		func(s *Settings) *string { return &s.RedactKey },
		RedactKeyCure,
	},
	{
		"redact_rules", "", nil,
		func(s *Settings) *string { return &s.RedactRules },
		"give this worker the rules of the others in TRIBUTARY_REDACT_RULES (built-in: none), or build a generation with others: " +
			"TRIBUTARY_REDACT_RULES=FILE tributary replay start NAME --set redact=MODE, and workers with that and TRIBUTARY_GENERATION=NAME",
	},
}

// SettingKeys returns the keys that [Settings.Set] accepts.
func SettingKeys() []string {
	keys := make([]string, 0, len(settingsTable))
	for _, f := range settingsTable {
		if f.values != nil {
			keys = append(keys, f.key)
		}
	}
	return keys
}

// SettingValues returns the values that [Settings.Set] accepts for a key; nil for an unknown key.
func SettingValues(key string) []string {
	i := slices.IndexFunc(settingsTable, func(f setting) bool { return f.key == key })
	if i < 0 {
		return nil
	}
	return slices.Clone(settingsTable[i].values)
}

// Set sets the field of a key. Its error names the valid keys, or the valid values of the key.
func (s *Settings) Set(key, value string) error {
	for _, f := range settingsTable {
		switch {
		case f.key != key || f.values == nil:
		case !slices.Contains(f.values, value):
			return fmt.Errorf("%s=%q: write one of %s", key, value, strings.Join(f.values, ", "))
		default:
			*f.field(s) = value
			return nil
		}
	}
	return fmt.Errorf("there is no setting %q: write one of %s", key, strings.Join(SettingKeys(), ", "))
}

// String lists the fields that are set, as key=value.
func (s Settings) String() string {
	var list []string
	for _, f := range settingsTable {
		if v := *f.field(&s); v != "" {
			list = append(list, f.key+"="+v)
		}
	}
	return strings.Join(list, " ")
}

// Validate returns an error for a value that its field does not allow.
func (s Settings) Validate() error {
	var errs []error
	for _, f := range settingsTable {
		if v := *f.field(&s); v != "" && f.values != nil {
			errs = append(errs, s.Set(f.key, v))
		}
	}
	return errors.Join(errs...)
}

// Redacted reports whether the records are redacted before they are normalized.
func (s Settings) Redacted() bool { return s.Redact != "" && s.Redact != redact.Full }

// Conflict returns an error for settings that exclude each other; s must have all settings.
func (s Settings) Conflict() error {
	switch {
	case s.Redacted() && s.Raw == RawReferenced:
		return fmt.Errorf("%w: redact=%s with raw=%s: events would refer to unredacted records: use raw=%s", ErrTopology, s.Redact, s.Raw, RawCarried)
	case s.Redacted() && s.RedactKey == "":
		return fmt.Errorf("%w: redact=%s without a key", ErrTopology, s.Redact)
	default:
		return nil
	}
}

// Or returns s with empty fields taken from other.
func (s Settings) Or(other Settings) Settings {
	for _, f := range settingsTable {
		if v := f.field(&s); *v == "" {
			*v = *f.field(&other)
		}
	}
	return s
}

// defaultSettings returns the settings of a new generation.
func defaultSettings() Settings {
	var s Settings
	for _, f := range settingsTable {
		*f.field(&s) = f.fallback
	}
	return s
}

// Contradiction returns a [TopologyError] with the fields that want sets to other values than s; nil for none. Values
// that follow from a redactor are not compared if the generation has none, or is older than the field.
func (s Settings) Contradiction(generation string, want Settings) error {
	e := &TopologyError{Name: "generation " + generation}
	var set, cures []string
	for _, f := range settingsTable {
		have, wanted := *f.field(&s), *f.field(&want)
		if wanted == "" || wanted == have || have == "" && f.values == nil {
			continue
		}
		e.Differences = append(e.Differences, Difference{f.key, have, wanted})
		if f.values != nil {
			set = append(set, "--set "+f.key+"="+wanted)
		}
		if f.cure != "" {
			cures = append(cures, f.cure)
		}
	}
	if len(e.Differences) == 0 {
		return nil
	}
	if len(set) == 0 {
		e.Cure = strings.Join(cures, "; ")
		return e
	}
	e.Cure = "leave the setting out to work with that of the generation, or build another generation beside it: tributary replay start NAME " +
		strings.Join(set, " ")
	return e
}

// Against returns the fields that want sets to other values than s.
func (s Settings) Against(want Settings) (list []Difference) {
	for _, f := range settingsTable {
		if have, wanted := *f.field(&s), *f.field(&want); wanted != "" && wanted != have {
			list = append(list, Difference{f.key, have, wanted})
		}
	}
	return list
}

// storedSettings is the value of the key of the settings of a generation in [ControlBucket].
type storedSettings struct {
	Settings
	Part Part `json:"part,omitzero"`
}

// provisionSettings stores the settings of a new generation, and of a generation that is older than stored settings,
// which gets those of the first worker. It returns an error if stored settings contradict t.
func provisionSettings(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue, t Topology, part Part) error {
	key := SettingsPrefix + t.Generation
	settings := t.Settings.Or(defaultSettings())
	if err := settings.Conflict(); err != nil {
		return err
	}
	value, err := json.Marshal(storedSettings{settings, part})
	if err != nil {
		return fmt.Errorf("encode %s: %w", key, err)
	}
	if err := EnsureKey(ctx, js, kv, key, value); err != nil {
		return err
	}
	stored, err := ReadControl(ctx, js, key)
	if err != nil {
		return err
	}
	have, err := decodeSettings(key, stored)
	if err != nil {
		return err
	}
	if have.Part != part && part != (Part{}) {
		return &TopologyError{
			Name:        "generation " + t.Generation,
			Differences: []Difference{{"records", have.Part.String(), part.String()}},
			Cure:        "give the other part a generation of its own",
		}
	}
	return have.Contradiction(t.Generation, t.Settings)
}

func decodeSettings(key string, data []byte) (storedSettings, error) {
	var s storedSettings
	err := json.Unmarshal(data, &s, json.RejectUnknownMembers(true))
	if err != nil && !errors.Is(err, json.ErrUnknownName) {
		return storedSettings{}, fmt.Errorf("%w: %s of bucket %s", ErrState, key, ControlBucket)
	}
	if err := cmp.Or(err, s.Validate()); err != nil {
		return storedSettings{}, fmt.Errorf("%s of bucket %s: a later version of this program wrote it: %w", key, ControlBucket, err)
	}
	s.Settings = s.Settings.Or(defaultSettings()) // a setting may be younger than the generation
	return s, nil
}

// Part is the part of the raw stream that a generation has. The zero value is all of it.
type Part struct {
	Sequence uint64           `json:"sequence,omitzero"` // from this raw sequence on
	Source   envelopes.Source `json:"source,omitzero"`   // only of this source
	Session  string           `json:"session,omitzero"`  // only of this session
}

// Filters returns the subjects of the raw stream that belong to a partition of the generation.
func (p Part) Filters(partition int) []string {
	if p.Source == "" && p.Session == "" {
		return envelopes.RawFilters(partition)
	}
	return []string{envelopes.RawFilter(partition, p.Source, p.Session)}
}

// String describes the part.
func (p Part) String() string {
	if p == (Part{}) {
		return "all"
	}
	var list []string
	if p.Sequence != 0 {
		list = append(list, fmt.Sprintf("sequence=%d", p.Sequence))
	}
	if p.Source != "" {
		list = append(list, "source="+string(p.Source))
	}
	if p.Session != "" {
		list = append(list, "session="+p.Session)
	}
	return strings.Join(list, " ")
}
