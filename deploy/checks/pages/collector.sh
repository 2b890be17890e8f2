# An OpenTelemetry collector in front of the receiver, by deploy/receive.md: what it accepts is in the raw stream once.
# long: builds the collector
# tools: nats-server nats otelcol
command -v jq >/dev/null || { echo "needs jq"; exit 77; }
page=deploy/receive.md#a-collector-in-front
export NATS_URL=nats://127.0.0.1:4222

step "a broker with the raw stream"
broker=$(block deploy/README.md#start-a-broker)
start broker "$broker"
eventually logged broker "Server is ready"
start worker "tributary run"
eventually logged worker "partitions acquired"
stop worker

step "a receiver that also has subjects, and a collector that sends by HTTP with zstd, and by gRPC with gzip"
receiver="TRIBUTARY_HTTP=127.0.0.1:9467 $(block $page 2)"
ready() { is ok curl -s http://127.0.0.1:9467/readyz; }
start receiver "$receiver"
eventually ready
here='s|https://receiver.example|http://127.0.0.1|; s|/var/lib/otelcol|/root/queue|; /headers/d'
mkdir queue
block $page 1 | sed "$here" >http.yaml
block $page 1 | sed "$here; s/otlp_http/otlp_grpc/; s/4318/4317\n    tls: { insecure: true }/; s/zstd/gzip/" >grpc.yaml
cat >pipelines.yaml <<'EOF'
receivers:
  otlp/http: { protocols: { http: { endpoint: "127.0.0.1:5318" } } }
  otlp/grpc: { protocols: { http: { endpoint: "127.0.0.1:5317" } } }
service:
  extensions: [file_storage]
  telemetry: { metrics: { level: none } }
  pipelines:
    logs/http: { receivers: [otlp/http], exporters: [otlp_http/tributary] }
    traces/http: { receivers: [otlp/http], exporters: [otlp_http/tributary] }
    metrics/http: { receivers: [otlp/http], exporters: [otlp_http/tributary] }
    logs/grpc: { receivers: [otlp/grpc], exporters: [otlp_grpc/tributary] }
    traces/grpc: { receivers: [otlp/grpc], exporters: [otlp_grpc/tributary] }
    metrics/grpc: { receivers: [otlp/grpc], exporters: [otlp_grpc/tributary] }
EOF
collector="otelcol --config http.yaml --config grpc.yaml --config pipelines.yaml"
accepts() { curl -s http://127.0.0.1:5318/ -o answer && curl -s http://127.0.0.1:5317/ -o answer; }
start collector "$collector"
eventually accepts

# export_one TRANSPORT SIGNAL NUMBER: sends a record until the collector accepts it, and notes it.
export_one() {
	local mark=$1-$2-$3. resource port=5318 body
	[ "$1" = http ] || port=5317
	resource='{"attributes":[{"key":"service.name","value":{"stringValue":"claude-code"}},{"key":"session.id","value":{"stringValue":"'$1-$2'"}}]}'
	case $2 in
	logs) body='{"resourceLogs":[{"resource":'$resource',"scopeLogs":[{"logRecords":[{"timeUnixNano":"1760000000000000000","body":{"stringValue":"'$mark'"}}]}]}]}' ;;
	traces) body='{"resourceSpans":[{"resource":'$resource',"scopeSpans":[{"spans":[{"traceId":"01000000000000000000000000000000","spanId":"0200000000000000","name":"'$mark'"}]}]}]}' ;;
	metrics) body='{"resourceMetrics":[{"resource":'$resource',"scopeMetrics":[{"metrics":[{"name":"claude_code.token.usage","gauge":{"dataPoints":[{"asInt":"1","attributes":[{"key":"mark","value":{"stringValue":"'$mark'"}}]}]}}]}]}]}' ;;
	esac
	until curl -sf -m 5 -o answer -H 'Content-Type: application/json' -d "$body" "http://127.0.0.1:$port/v1/$2"; do sleep 0.1; done
	echo "$mark" >>accepted
}
# export_all FROM TO: sends these numbers of each signal by each transport.
export_all() {
	local n transport signal
	for ((n = $1; n <= $2; n++)); do
		for transport in http grpc; do
			for signal in logs traces metrics; do export_one $transport $signal $n; done
		done
	done
}
# stored: prints the marks of the records in the raw stream.
stored() {
	local count
	count=$(nats stream info RAW -j | jq .state.messages)
	nats sub --stream RAW --all --raw --count "$count" 'raw.>' | grep -oE '(http|grpc|nats)-(logs|traces|metrics)-[0-9]+\.' | sort
}
exact() { diff <(sort accepted) <(stored); }

step "nothing fails"
export_all 1 3
eventually exact
[ "$(wc -l <accepted)" = 18 ]

step "receiver, broker and collector are killed while records come"
for round in 1 2 3; do
	export_all $((round * 10)) $((round * 10 + 9)) &
	sending=$!
	eventually eval "grep -q 'grpc-metrics-$((round * 10 + 2))' accepted"
	stop receiver KILL || true
	[ $round != 2 ] || { stop broker KILL || true; start broker "$broker"; }
	start receiver "$receiver"
	eventually eval "grep -q 'grpc-metrics-$((round * 10 + 5))' accepted"
	[ $round = 2 ] || { stop broker KILL || true; start broker "$broker"; }
	[ $round != 3 ] || { stop collector KILL || true; start collector "$collector"; eventually accepts; }
	wait $sending
	eventually ready
done
eventually exact
[ "$(wc -l <accepted)" = 198 ]

step "the same by a subject, with an answer"
prints '"stream":"RAW"' nats req otel_logs '{"resourceLogs":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"claude-code"}},{"key":"session.id","value":{"stringValue":"nats"}}]},"scopeLogs":[{"logRecords":[{"body":{"stringValue":"nats-logs-1."}}]}]}]}'
echo nats-logs-1. >>accepted
exact
for name in collector receiver; do stop $name; done
