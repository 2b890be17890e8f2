package receive

import (
	"net/http"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"

	"tributary/normalizers"
	"tributary/normalizers/core"
)

// Errors of export requests over HTTP.
var (
	errType = refuse(http.StatusUnsupportedMediaType, "the content type has to be application/x-protobuf or application/json")
	errJSON = refuse(http.StatusBadRequest, "the body is not an export request in OTLP/JSON")
)

// signal is a kind of what is exported.
type signal struct {
	name    string // of its route
	service string // of its calls of gRPC
	shape   *shape
	// split decodes a request and passes its records one by one.
	split func(data []byte, json bool, pass func(exported) error) error
	// response returns the response to a request of which some records were not stored.
	response func(refused int64, why string) response
}

var signals = []signal{
	{
		name: "logs", service: "logs.v1.LogsService", shape: logsShape, split: splitLogs,
		response: func(refused int64, why string) response {
			r := plogotlp.NewExportResponse()
			r.PartialSuccess().SetRejectedLogRecords(refused)
			r.PartialSuccess().SetErrorMessage(why)
			return r
		},
	},
	{
		name: "traces", service: "trace.v1.TraceService", shape: tracesShape, split: splitTraces,
		response: func(refused int64, why string) response {
			r := ptraceotlp.NewExportResponse()
			r.PartialSuccess().SetRejectedSpans(refused)
			r.PartialSuccess().SetErrorMessage(why)
			return r
		},
	},
	{
		name: "metrics", service: "metrics.v1.MetricsService", shape: metricsShape, split: splitMetrics,
		response: func(refused int64, why string) response {
			r := pmetricotlp.NewExportResponse()
			r.PartialSuccess().SetRejectedDataPoints(refused)
			r.PartialSuccess().SetErrorMessage(why)
			return r
		},
	},
}

// export returns the handler of a signal over HTTP.
func (r *Receiver) export(s signal) func(http.ResponseWriter, *call) error {
	return func(w http.ResponseWriter, c *call) error {
		kind := mediaType(c.Request)
		if kind != typeProtobuf && kind != typeJSON {
			return errType
		}
		data, err := r.readBody(w, c)
		if err != nil {
			return err
		}
		return r.storeExport(w, c, s, data, kind == typeJSON)
	}
}

// exportGRPC returns the handler of a signal over gRPC.
func (r *Receiver) exportGRPC(s signal) func(http.ResponseWriter, *call) error {
	return func(w http.ResponseWriter, c *call) error {
		data, err := r.readFrame(w, c)
		if err != nil {
			return err
		}
		return r.storeExport(w, c, s, data, false)
	}
}

// storeExport stores the records of a request and answers it. It returns a partlyRefused if some are not stored.
func (r *Receiver) storeExport(w http.ResponseWriter, c *call, s signal, data []byte, json bool) error {
	if json {
		if err := surveyJSON(data); err != nil {
			return err
		}
	} else if err := survey(data, s.shape, r.limits.Records); err != nil {
		return err
	}
	b, err := r.newBatch(c)
	if err != nil {
		return err
	}
	refused, seen := new(partlyRefused), 0
	err = s.split(data, json, func(e exported) error {
		if seen++; seen > r.limits.Records {
			return errMany
		}
		is, known := normalizers.AssignTelemetry(e.service, e.scope, e.attribute)
		switch {
		case !known:
			refused.agent++
			r.metrics.refused(c.Context(), "")
			return nil
		case !validSession(is.Session):
			refused.session++
			r.metrics.refused(c.Context(), is.Source)
			return nil
		}
		body, err := e.marshal()
		if err != nil {
			return errBody
		}
		b.add(core.Record{Source: is.Source, Session: is.Session, Data: body, Origin: core.Origin{Traceparent: e.traceparent()}},
			exportedID(s.name, is.Sequence, e.time))
		return nil
	})
	if err != nil {
		return err
	}
	large, err := b.store()
	if err != nil {
		return err
	}
	refused.large = len(large)
	if n := refused.count(); n > 0 {
		if err := c.answer.accept(w, s.response(int64(n), refused.Error())); err != nil {
			return err
		}
		return refused
	}
	return c.answer.accept(w, nil)
}

// exported is one record of an export request. It is valid while it is passed.
type exported struct {
	service, scope string
	attributes     [3]pcommon.Map // of the record, its scope and its resource
	time           pcommon.Timestamp
	trace          pcommon.TraceID
	span           pcommon.SpanID
	marshal        func() ([]byte, error) // as an export request of this record alone, in OTLP/JSON
}

// attribute returns the text of an attribute of the record, else of its scope, else of its resource; empty for none.
func (e *exported) attribute(name string) string {
	for _, m := range e.attributes {
		if v, ok := m.Get(name); ok {
			return v.AsString()
		}
	}
	return ""
}

// traceparent returns the context in which the record was made, empty for none.
func (e *exported) traceparent() string {
	if e.trace.IsEmpty() || e.span.IsEmpty() {
		return ""
	}
	return "00-" + e.trace.String() + "-" + e.span.String() + "-01"
}

const serviceName = "service.name"

func textOf(m pcommon.Map, name string) string {
	if v, ok := m.Get(name); ok {
		return v.AsString()
	}
	return ""
}

func splitLogs(data []byte, json bool, pass func(exported) error) error {
	request := plogotlp.NewExportRequest()
	if err := unmarshal(request, data, json); err != nil {
		return err
	}
	for _, of := range request.Logs().ResourceLogs().All() {
		for _, in := range of.ScopeLogs().All() {
			one := plog.NewLogs()
			to := one.ResourceLogs().AppendEmpty()
			of.Resource().CopyTo(to.Resource())
			to.SetSchemaUrl(of.SchemaUrl())
			scope := to.ScopeLogs().AppendEmpty()
			in.Scope().CopyTo(scope.Scope())
			scope.SetSchemaUrl(in.SchemaUrl())
			record := scope.LogRecords().AppendEmpty()
			e := exported{service: textOf(to.Resource().Attributes(), serviceName), scope: in.Scope().Name()}
			e.marshal = func() ([]byte, error) { return (&plog.JSONMarshaler{}).MarshalLogs(one) }
			for _, r := range in.LogRecords().All() {
				r.MoveTo(record)
				e.attributes = [3]pcommon.Map{record.Attributes(), scope.Scope().Attributes(), to.Resource().Attributes()}
				e.time, e.trace, e.span = record.Timestamp(), record.TraceID(), record.SpanID()
				if err := pass(e); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func splitTraces(data []byte, json bool, pass func(exported) error) error {
	request := ptraceotlp.NewExportRequest()
	if err := unmarshal(request, data, json); err != nil {
		return err
	}
	for _, of := range request.Traces().ResourceSpans().All() {
		for _, in := range of.ScopeSpans().All() {
			one := ptrace.NewTraces()
			to := one.ResourceSpans().AppendEmpty()
			of.Resource().CopyTo(to.Resource())
			to.SetSchemaUrl(of.SchemaUrl())
			scope := to.ScopeSpans().AppendEmpty()
			in.Scope().CopyTo(scope.Scope())
			scope.SetSchemaUrl(in.SchemaUrl())
			span := scope.Spans().AppendEmpty()
			e := exported{service: textOf(to.Resource().Attributes(), serviceName), scope: in.Scope().Name()}
			e.marshal = func() ([]byte, error) { return (&ptrace.JSONMarshaler{}).MarshalTraces(one) }
			for _, s := range in.Spans().All() {
				s.MoveTo(span)
				e.attributes = [3]pcommon.Map{span.Attributes(), scope.Scope().Attributes(), to.Resource().Attributes()}
				e.time, e.trace, e.span = span.StartTimestamp(), span.TraceID(), span.SpanID()
				if err := pass(e); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func splitMetrics(data []byte, json bool, pass func(exported) error) error {
	request := pmetricotlp.NewExportRequest()
	if err := unmarshal(request, data, json); err != nil {
		return err
	}
	for _, of := range request.Metrics().ResourceMetrics().All() {
		for _, in := range of.ScopeMetrics().All() {
			one := pmetric.NewMetrics()
			to := one.ResourceMetrics().AppendEmpty()
			of.Resource().CopyTo(to.Resource())
			to.SetSchemaUrl(of.SchemaUrl())
			scope := to.ScopeMetrics().AppendEmpty()
			in.Scope().CopyTo(scope.Scope())
			scope.SetSchemaUrl(in.SchemaUrl())
			e := exported{service: textOf(to.Resource().Attributes(), serviceName), scope: in.Scope().Name()}
			e.marshal = func() ([]byte, error) { return (&pmetric.JSONMarshaler{}).MarshalMetrics(one) }
			for _, m := range in.Metrics().All() {
				err := splitMetric(m, scope, func(attributes pcommon.Map, at pcommon.Timestamp) error {
					e.attributes = [3]pcommon.Map{attributes, scope.Scope().Attributes(), to.Resource().Attributes()}
					e.time = at
					return pass(e)
				})
				if err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// splitMetric passes the data points of a metric one by one, each as the only one of the only metric of to.
func splitMetric(m pmetric.Metric, to pmetric.ScopeMetrics, pass func(pcommon.Map, pcommon.Timestamp) error) error {
	next := func() pmetric.Metric {
		to.Metrics().RemoveIf(func(pmetric.Metric) bool { return true })
		one := to.Metrics().AppendEmpty()
		one.SetName(m.Name())
		one.SetDescription(m.Description())
		one.SetUnit(m.Unit())
		m.Metadata().CopyTo(one.Metadata())
		return one
	}
	numbers := func(from, to pmetric.NumberDataPointSlice) error {
		point := to.AppendEmpty()
		for _, p := range from.All() {
			p.MoveTo(point)
			if err := pass(point.Attributes(), point.Timestamp()); err != nil {
				return err
			}
		}
		return nil
	}
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		return numbers(m.Gauge().DataPoints(), next().SetEmptyGauge().DataPoints())
	case pmetric.MetricTypeSum:
		sum := next().SetEmptySum()
		sum.SetAggregationTemporality(m.Sum().AggregationTemporality())
		sum.SetIsMonotonic(m.Sum().IsMonotonic())
		return numbers(m.Sum().DataPoints(), sum.DataPoints())
	case pmetric.MetricTypeHistogram:
		h := next().SetEmptyHistogram()
		h.SetAggregationTemporality(m.Histogram().AggregationTemporality())
		point := h.DataPoints().AppendEmpty()
		for _, p := range m.Histogram().DataPoints().All() {
			p.MoveTo(point)
			if err := pass(point.Attributes(), point.Timestamp()); err != nil {
				return err
			}
		}
	case pmetric.MetricTypeExponentialHistogram:
		h := next().SetEmptyExponentialHistogram()
		h.SetAggregationTemporality(m.ExponentialHistogram().AggregationTemporality())
		point := h.DataPoints().AppendEmpty()
		for _, p := range m.ExponentialHistogram().DataPoints().All() {
			p.MoveTo(point)
			if err := pass(point.Attributes(), point.Timestamp()); err != nil {
				return err
			}
		}
	case pmetric.MetricTypeSummary:
		point := next().SetEmptySummary().DataPoints().AppendEmpty()
		for _, p := range m.Summary().DataPoints().All() {
			p.MoveTo(point)
			if err := pass(point.Attributes(), point.Timestamp()); err != nil {
				return err
			}
		}
	case pmetric.MetricTypeEmpty:
	}
	return nil
}

// unmarshal decodes an export request.
func unmarshal(request interface {
	UnmarshalProto(data []byte) error
	UnmarshalJSON(data []byte) error
}, data []byte, json bool,
) error {
	if json {
		if request.UnmarshalJSON(data) != nil {
			return errJSON
		}
		return nil
	}
	if request.UnmarshalProto(data) != nil {
		return errProtobuf
	}
	return nil
}
