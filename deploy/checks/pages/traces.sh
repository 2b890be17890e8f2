# A record is followed from its edge to a consumer, in Jaeger.
# long: builds Jaeger
# tools: nats-server nats jaeger consumer
command -v jq >/dev/null || { echo "needs jq"; exit 77; }
page=pipeline/README.md

step "Jaeger"
start jaeger jaeger
eventually curl -sf http://127.0.0.1:16686/api/services
run $page#follow-a-record 1 '/^docker|^tributary/d' # there are no images here
commands=$(block $page#follow-a-record | tail -n 1) # the worker, and behind "&" the edge

step "a worker, an edge and a consumer"
start broker "$(block deploy/README.md#start-a-broker)"
eventually logged broker "Server is ready"
export NATS_URL=nats://127.0.0.1:4222
start worker "TRIBUTARY_HTTP=127.0.0.1:9464 TRIBUTARY_WORKER=worker-1 ${commands% & *}"
eventually is ok curl -s http://127.0.0.1:9464/readyz
start consumer "OTEL_SERVICE_NAME=company OTEL_RESOURCE_ATTRIBUTES=host.name=elsewhere,service.instance.id=consumer-1 consumer"
mkdir -p .claude/projects/p
# session NAME LINES: writes a log.
session() {
	local line
	for ((line = 1; line <= $2; line++)); do
		printf '{"type":"user","uuid":"%s","timestamp":"2026-03-09T09:00:00Z","sessionId":"%s","message":{"role":"user","content":"text"}}\n' "$1-$line" "$1"
	done >".claude/projects/p/$1.jsonl"
}
session alone 1
start edge "TRIBUTARY_WORKER=edge-1 ${commands#* & }"

# search TAG VALUE: prints the traces with a tag of the service that the page names.
search() {
	curl -sfG http://127.0.0.1:16686/api/traces --data-urlencode service=tributary --data-urlencode limit=100 \
		--data-urlencode "tags={\"$1\":\"$2\"}"
}

# way TAG VALUE: prints a line for each of these traces: its spans, each with service, host and instance.
way() {
	search "$@" | jq -r '.data[] | .processes as $processes | [.spans[] |
		$processes[.processID] as $p | ($p.tags | map({(.key): .value}) | add) as $tags |
		"\(.operationName) of \($p.serviceName) at \($tags["host.name"]) \($tags["service.instance.id"])"] | sort | join(", ")'
}
conversation=messaging.message.conversation_id sequence=tributary.record.sequence
used="process events of company at elsewhere consumer-1"
made="process raw of tributary at host worker-1"
stored="publish events of tributary at host worker-1"
sent="publish raw of tributary at host edge-1"

step "a record, by the session and by its sequence"
eventually is "$used, $made, $stored, $sent" way $conversation alone
number=$(nats sub --stream EVENTS_v1 --all --count 1 'events.v1.>' 2>&1 | sed -n 's/^ce-rawsequence: *//Ip')
is "$used, $made, $stored, $sent" way $sequence "$number"

step "a dead letter"
echo '{"type":"user","torn' >>.claude/projects/p/alone.jsonl
eventually prints '"sequence"' tributary dlq ls -o json
number=$(tributary dlq ls -o json | jq .sequence)
dead() { search $sequence "$number" | jq -e '[.data[].spans[].logs[].fields[].value] | index("dead letter")'; }
eventually dead

step "each record of a backlog, and its batch"
stop worker
session backlog 20
eventually prints '20 records' tributary doctor
start worker-2 "TRIBUTARY_WORKER=worker-1 ${commands% & *}"
all() { is "     20 $used, $made, $sent" eval "way $conversation backlog | sed 's/ $stored,//' | uniq -c"; }
eventually all
batch=$(search $conversation backlog | jq -r '[.data[] | select(.spans | all(.operationName != "publish events")) |
	.spans[] | select(.operationName == "process raw").references[] | select(.refType == "FOLLOWS_FROM").traceID][0]')
eventually prints '"publish events"' curl -sf "http://127.0.0.1:16686/api/traces/$batch"
for name in edge consumer worker-2; do stop $name; done
