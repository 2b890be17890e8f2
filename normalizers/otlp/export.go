package otlp

import "tributary/normalizers/lenient"

// Export has the members that show an export request, for the wire struct of a vendor's records.
type Export struct {
	Logs    lenient.Present `json:"resourceLogs"`
	Spans   lenient.Present `json:"resourceSpans"`
	Metrics lenient.Present `json:"resourceMetrics"`
}

// IsExport reports whether the record is an export request.
func (e *Export) IsExport() bool { return bool(e.Logs || e.Spans || e.Metrics) }
