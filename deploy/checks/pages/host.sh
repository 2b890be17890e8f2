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
if command -v prometheus && command -v jq; then
	{
		printf 'global: { scrape_interval: 1s, evaluation_interval: 1s }\nrule_files: [/src/deploy/prometheus/rules.yaml]\n'
		block $page#metrics
	} >/root/prometheus.yaml
	start prometheus "prometheus --config.file=/root/prometheus.yaml --storage.tsdb.path=/root/prometheus --web.listen-address=127.0.0.1:9090"
	query() { curl -fsS http://127.0.0.1:9090/api/v1/query --data-urlencode "query=$1"; }
	eventually is 3 eval 'query "sum(up)" | jq -r ".data.result[0].value[1]"'
	rules() { curl -fsS http://127.0.0.1:9090/api/v1/rules | jq -r '[.data.groups[].rules[] | select(.type == "alerting" and .health == "ok") | .name] | length'; }
	eventually is "$(grep -c 'alert:' /src/deploy/prometheus/rules.yaml)" rules
	jq -r '.panels[].targets[]?.expr' /src/deploy/grafana/tributary.json | sed 's/\$__rate_interval/1m/g; s/\$[a-z]*/.*/g' >/root/queries
	found() { query "$1" | jq -e '.data.result | length > 0'; }
	while read -r expression; do
		case $expression in
		*" > 0"* | *redactions*) query "$expression" >/dev/null ;; # none without a fault or a rule
		*) eventually found "$expression" ;;
		esac
	done </root/queries
	stop prometheus
else
	leave $page#metrics 1 "needs Prometheus and jq"
fi

step "an edge that its user starts"
useradd --create-home bob
unit=$(sed -n '1s/.*: ~//p' /src/deploy/systemd/tributary-ship.service) # of which its head has the path
install -d -o bob -g bob ~bob/.config ~bob/.config/systemd ~bob/.config/systemd/user{,/service.d} ~bob/.config/tributary ~bob/.codex ~bob/.codex/sessions
install -o bob -g bob -m 644 $(find /src/normalizers/codex/samples -name "*.jsonl") ~bob/.codex/sessions
install -o bob -g bob -m 644 /src/deploy/systemd/tributary-ship.service /home/bob$unit
install -o bob -g bob -m 600 /etc/tributary/producer.seed /etc/tributary/ca.crt ~bob/.config/tributary
printf 'NATS_URL=tls://localhost:4222\nNATS_NKEY=/home/bob/.config/tributary/producer.seed\nNATS_CA=/home/bob/.config/tributary/ca.crt\nTRIBUTARY_HTTP=127.0.0.1:9466\n' >~bob/.config/tributary/ship.env
install -o bob -g bob /dev/null /var/log/bob.log
printf '[Service]\nStandardOutput=append:/var/log/bob.log\nStandardError=inherit\n' >~bob/.config/systemd/user/service.d/log.conf
chown -R bob:bob ~bob/.config
# A login would start this manager.
systemd-run --unit=manager --uid=bob --property=Delegate=yes --property=RuntimeDirectory=bob \
	--setenv=XDG_RUNTIME_DIR=/run/bob /usr/lib/systemd/systemd --user
of_bob() { setpriv --reuid bob --regid bob --init-groups env HOME=/home/bob XDG_RUNTIME_DIR=/run/bob systemctl --user "$@"; }
eventually of_bob is-active default.target
of_bob enable --now tributary-ship
eventually is ok curl -s http://127.0.0.1:9466/readyz
eventually eval 'curl -fsS http://127.0.0.1:9466/metrics | grep "^tributary_ship_records_total [1-9]" >/dev/null'
eventually prints "none: every record is done" doctor
pid=$(of_bob show -p MainPID --value tributary-ship)
[ "$(stat -c %U /proc/$pid)" = bob ] || fail "the edge of bob is not his"
grep -q 'Seccomp:.*2' /proc/$pid/status || fail "the edge of bob has no filter of system calls"
systemctl stop manager

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
