# Three servers with deploy/nats/cluster.conf: start, restarts one after the other under load, a lost server.
# long: takes minutes and builds the nats command
# tools: nats-server nats nk
. /src/deploy/checks/pages/nats.bash
page=deploy/nats/cluster.md

step "certificates and keys"
configure
cd /etc/nats
run $page#start 1
cd /root/keys
for n in "${names[@]}"; do copy_to $n; done

step "start"
member() { start "$1" "$(block $page#start 2 | sed "s/n1 /$1 on $1 /")"; }
for n in "${names[@]}"; do member $n; done
block $page#start 3 >/dev/null # healthy runs it
for n in "${names[@]}"; do eventually healthy $n; done
run $page#start 4 '/tributary run/d'
export TRIBUTARY_PARTITIONS=4
start worker "$(user acme-stage) $(block $page#start 4 | tail -n 1)"
eventually logged worker "partitions acquired"
leave $page#start 5 "it is the output of doctor"
prints "none: every record is done" as acme-operator tributary doctor
eventually prints "$(block $page#start 5 | head -n 1)" as acme-operator tributary doctor
prints "$(block $page#start 5 | tail -n 1)" as acme-operator tributary doctor
send acme first
eventually exact acme
# The limit of README.md: three replicas of it exceed 100 GB.
as acme-operator nats stream edit RAW --max-bytes 40GB --discard new --force >/dev/null

step "restart one after the other, while an edge sends"
current() {
	local out
	out=$(as acme-operator tributary doctor 2>&1) || true
	grep -E '^replicas +ok' <<<"$out" || fail "$(grep -E 'replicas|problem' <<<"$out")"
}
restarted() {
	send acme "restart-$1" 100 >"/var/log/edge-$1.log" &
	local edge=$!
	eval "$(block $page#restart-one-after-the-other 1 | sed "s/ldm/ldm=${processes[$1]}/")"
	wait "${processes[$1]}" || true # the exit code is 1 in lame duck mode
	member "$1"
	eventually healthy "$1"
	eventually current
	wait $edge
}
for n in "${names[@]}"; do restarted $n; done
eventually exact acme

step "lose and replace a server"
stop n2 KILL || true
send acme lost
eventually exact acme
eventually prints "gone: n2" as acme-operator tributary doctor
copy_to n2
member n2
eventually healthy n2
eventually current
streams() { on "$1" curl -s "http://127.0.0.1${1#n}:8222/jsz" | grep -E '"(streams|messages)":'; }
complete() { is "$(streams n1)" streams n2; }
eventually complete

step "lose another server"
stop n1 KILL || true
send acme replaced
eventually exact acme
member n1
eventually healthy n1
eventually current
exact acme

step "another tenant, while everything runs"
cd /etc/nats
run deploy/nats/reload.md#a-tenant 1
mv globex-*.seed /root/keys/
for n in "${names[@]}"; do
	cp nats.conf globex.conf /nodes/$n/nats/
	address $n
done
cd /root/keys
for n in "${names[@]}" "${names[@]}"; do reload $n cluster.conf; done
TRIBUTARY_REPLICAS=3 work globex-stage worker-globex
leave deploy/nats/reload.md#a-tenant 2 "a worker of three servers needs TRIBUTARY_REPLICAS"
send globex first
eventually exact globex
exact acme
