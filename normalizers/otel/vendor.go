package otel

import (
	"embed"

	"tributary/envelopes"
	"tributary/normalizers/chat"
	"tributary/normalizers/core"
	"tributary/normalizers/otlp"
)

//go:embed all:samples ignored.txt
var embedded embed.FS

// Vendor is the row of whatever exports by OpenTelemetry's conventions for generative AI, and is no agent with a row of
// its own.
var Vendor = core.Vendor{
	Source: envelopes.OTel,
	Name:   "OpenTelemetry GenAI",
	Reads:  "spans and log records by OpenTelemetry's GenAI conventions, as OTLP/JSON",

	// Records are recognized by what they export (normalizers.AssignTelemetry).
	Recognize: func(*core.Shape) string { return "" },
	Session:   (*core.Shape).Session,
	Time:      core.TimeAt("timestamp"),

	Normalize: chat.Normalizer(nil, read),
	NewState:  chat.NewState,

	Telemetry: &core.Telemetry{Conventions: true, Sessions: []string{"gen_ai.conversation.id", "session.id"}},

	Checked: "1.41", // of the conventions
	Evidence: core.Evidence{
		Lacks:  []core.Fact{core.Subagents},
		Read:   []core.Basis{core.RealLogs, core.Code},
		Limits: "images and files; which agent called which",
	},
	Files: embedded,
}

// record is an export request; [otlp.Read] reads it.
type record struct{ otlp.Export }
