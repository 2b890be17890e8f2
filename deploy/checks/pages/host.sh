# One host with the units of deploy/systemd and their sandboxes, under a systemd of its own.
# tools: nats-server nk
# systemd: yes
page=deploy/systemd/README.md

step "write the logs of units to files"
mkdir -p /etc/systemd/system/service.d
printf '[Service]\nStandardOutput=append:/var/log/%%N.log\nStandardError=inherit\n' >/etc/systemd/system/service.d/log.conf
useradd --create-home ada
mkdir -p ~ada/.claude/projects
cp -r /src/normalizers/claude/samples/. ~ada/.claude/projects/
chown -R ada ~ada

step "install"
cd /src
run $page#programs 1 '/^go /d' # there is no network, and the programs are already in ~/go/bin
grep -q "nats-server/v2@v$(nats-server --version | sed 's/.* v//')$" <(block $page#programs)
run $page#broker 1
run $page#broker 2
run $page#keys

step "start"
run $page#start 1
systemctl is-active nats-server tributary-run tributary-ship@ada
eventually logged tributary-run "partitions acquired"
run $page#start 2 '/doctor/d'
doctor() { eval "$(block $page#start 2 | tail -n 1) $*"; }
eventually prints "following" doctor
eventually prints "none: every record is done" doctor
eventually doctor # no problems

step "a receiver"
run $page#receiver 1
systemctl is-active tributary-receive
eventually is ok curl -s http://127.0.0.1:9467/readyz
post() { curl -sS --cacert /etc/nats/tls/ca.crt -H 'Content-Type: application/json' -d '{"session_id":"hooked","hook_event_name":"Stop"}' "$@" https://localhost:4318/v1/hooks/claude; }
post -f -H "Authorization: Bearer $token"
is 401 post -o /dev/null -w '%{http_code}'
eventually prints "none: every record is done" doctor

step "metrics of all"
eventually eval 'curl -fsS http://127.0.0.1:9464/metrics | grep "^tributary_records_total" >/dev/null'
eventually eval 'curl -fsS http://127.0.0.1:9465/metrics | grep "^tributary_ship_records_total" >/dev/null'
eventually eval 'curl -fsS http://127.0.0.1:9467/metrics | grep "^tributary_receive_records_total" >/dev/null'
leave $page#metrics 1 "Prometheus is not started"

step "only their owners read secrets"
for file in $(find /etc/tributary -type f) /etc/nats/tls/tls.key /var/lib/nats /var/lib/tributary-ada; do
	stat -c '%a %U:%G %n' "$file"
	if setpriv --reuid nobody --regid nogroup --clear-groups cat "$file" >/dev/null 2>&1; then fail "all users read $file"; fi
done
if setpriv --reuid ada --regid ada --clear-groups cat /etc/tributary/producer.seed 2>/dev/null; then fail "the user reads the seed"; fi
for unit in nats-server tributary-run tributary-ship@ada tributary-receive; do
	pid=$(systemctl show -p MainPID --value $unit)
	[ "$(stat -c %U /proc/$pid)" != root ] || fail "$unit runs as root"
	grep -q 'Seccomp:.*2' /proc/$pid/status || fail "$unit has no filter of system calls"
	! tr '\0' '\n' </proc/$pid/environ | grep -E '^S[A-Z]*U' || fail "a seed is in the environment of $unit"
done

step "a restart of the broker, a reload, a crash of the worker"
systemctl reload nats-server
eventually logged nats-server "Reloaded server configuration"
systemctl restart nats-server
eventually is ok curl -s http://127.0.0.1:9464/readyz
eventually is ok curl -s http://127.0.0.1:9465/readyz
eventually is ok curl -s http://127.0.0.1:9467/readyz
systemctl kill -s KILL tributary-run
eventually is ok curl -s http://127.0.0.1:9464/readyz

step "stop"
systemctl stop tributary-receive tributary-ship@ada tributary-run nats-server
logged tributary-run drained
leave $page#other-credentials 1 "the broker of this page has seeds"
