# One host without passwords: broker, worker, edge and doctor of deploy/README.md.
# tools: nats-server
page=deploy/README.md

step "start a broker"
start broker "$(block $page#start-a-broker)"
eventually logged broker "Server is ready"

step "start a worker"
run $page#start-workers 1 '/tributary run/d'
start worker "$(block $page#start-workers | tail -n 1)"
eventually logged worker "partitions acquired"
leave $page#start-workers 2 "it is the log of the worker"
for text in "serves /livez, /readyz, /metrics and /version" "worker is running"; do logged worker "$text"; done

step "start an edge"
mkdir -p .claude/projects
cp -r /src/normalizers/claude/samples/. .claude/projects/
prints "would ship" tributary ship --once --dry-run
start edge "$(block $page#start-an-edge | tail -n 1)"
eventually prints "following" tributary doctor
eventually prints "none: every record is done" tributary doctor

step "see whether it works"
run $page#see-whether-it-works 1
eventually eval "$(block $page#see-whether-it-works 2)"
is ok curl -s http://127.0.0.1:9464/readyz

step "stop"
stop edge
stop worker
logged worker drained
