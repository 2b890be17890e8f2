package normalizers

import (
	"slices"

	"tributary/envelopes"
	"tributary/normalizers/acp"
	"tributary/normalizers/antigravity"
	"tributary/normalizers/claude"
	"tributary/normalizers/cline"
	"tributary/normalizers/codex"
	"tributary/normalizers/copilot"
	"tributary/normalizers/core"
	"tributary/normalizers/cursor"
	"tributary/normalizers/droid"
	"tributary/normalizers/gemini"
	"tributary/normalizers/goose"
	"tributary/normalizers/grok"
	"tributary/normalizers/hermes"
	"tributary/normalizers/kilo"
	"tributary/normalizers/kimi"
	"tributary/normalizers/kiro"
	"tributary/normalizers/openclaw"
	"tributary/normalizers/opencode"
	"tributary/normalizers/otel"
	"tributary/normalizers/pi"
	"tributary/normalizers/qwen"
	"tributary/normalizers/roo"
	"tributary/normalizers/vibe"
	"tributary/normalizers/vscode"
)

// vendors is the table of vendors. Records are recognized in this order, so vendors with looser rules come after
// those whose records they would match.
var vendors = []*core.Vendor{
	&droid.Vendor,
	&grok.Vendor,
	&goose.Vendor,
	&hermes.Vendor,
	&antigravity.Vendor,
	&kimi.Vendor,
	&kiro.Vendor,
	&vibe.Vendor,
	&vscode.Vendor,
	&openclaw.Vendor,
	&pi.Vendor,
	&qwen.Vendor,
	&cline.Vendor,
	&roo.Vendor,
	&kilo.Vendor,
	&opencode.Vendor,
	&gemini.Vendor,
	&codex.Vendor,
	&acp.Vendor,
	&copilot.Vendor,
	&claude.Vendor,
	&cursor.Vendor,
	&otel.Vendor,
}

// Vendors returns the rows of the table in the order of [envelopes.Sources]. The caller must not change them.
func Vendors() []*core.Vendor {
	rows := slices.Clone(vendors)
	slices.SortFunc(rows, func(a, b *core.Vendor) int {
		return slices.Index(envelopes.Sources, a.Source) - slices.Index(envelopes.Sources, b.Source)
	})
	return rows
}

// VendorOf returns the row of a source; nil if there is none. The caller must not change it.
func VendorOf(source envelopes.Source) *core.Vendor {
	for _, v := range vendors {
		if v.Source == source {
			return v
		}
	}
	return nil
}

// isWholeRecord reports whether a shape belongs to a whole record of a vendor, and not to a part of one.
func isWholeRecord(s *core.Shape) bool {
	for _, v := range vendors {
		if v.Framing.IsWhole != nil && v.Framing.IsWhole(s) {
			return true
		}
	}
	return false
}
