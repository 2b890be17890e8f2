package normalizers_test

import (
	"tributary/normalizers/acp/acptest"
	"tributary/normalizers/antigravity/antigravitytest"
	"tributary/normalizers/claude/claudetest"
	"tributary/normalizers/cline/clinetest"
	"tributary/normalizers/codex/codextest"
	"tributary/normalizers/copilot/copilottest"
	"tributary/normalizers/cursor/cursortest"
	"tributary/normalizers/droid/droidtest"
	"tributary/normalizers/gemini/geminitest"
	"tributary/normalizers/goose/goosetest"
	"tributary/normalizers/grok/groktest"
	"tributary/normalizers/hermes/hermestest"
	"tributary/normalizers/kilo/kilotest"
	"tributary/normalizers/kimi/kimitest"
	"tributary/normalizers/kiro/kirotest"
	"tributary/normalizers/normalizerstest"
	"tributary/normalizers/openclaw/openclawtest"
	"tributary/normalizers/opencode/opencodetest"
	"tributary/normalizers/otel/oteltest"
	"tributary/normalizers/pi/pitest"
	"tributary/normalizers/qwen/qwentest"
	"tributary/normalizers/roo/rootest"
	"tributary/normalizers/vibe/vibetest"
	"tributary/normalizers/vscode/vscodetest"
)

// suites are the suites of all vendors.
var suites = []normalizerstest.Suite{
	claudetest.Suite,
	codextest.Suite,
	geminitest.Suite,
	cursortest.Suite,
	copilottest.Suite,
	acptest.Suite,
	opencodetest.Suite,
	pitest.Suite,
	openclawtest.Suite,
	kimitest.Suite,
	kirotest.Suite,
	antigravitytest.Suite,
	qwentest.Suite,
	vibetest.Suite,
	hermestest.Suite,
	clinetest.Suite,
	rootest.Suite,
	kilotest.Suite,
	groktest.Suite,
	droidtest.Suite,
	goosetest.Suite,
	vscodetest.Suite,
	oteltest.Suite,
}
