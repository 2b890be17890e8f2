# Three servers from deploy/nats/cluster.conf: started, restarted one after the other under load, one lost and replaced.
# long: takes minutes and builds the nats command
# tools: nats-server nats nk
. /src/deploy/checks/pages/nats.bash
page=deploy/nats/cluster.md

step "certificates and keys"
run $page#certificates 1 's/$/ 2>>openssl.log/; /\\ 2>>/s/ 2>>.*//; /(do|done) 2>>/s/ 2>>.*//'
cp /src/deploy/nats/*.conf /etc/nats/
for role in stage operator producer consumer sessions; do
	nk -gen user >acme-$role.seed
	echo "ACME_${role^^}: $(nk -inkey acme-$role.seed -pubout)"
done >acme.keys
nk -gen user >system.seed
sed -i "s/\$NATS_SYSTEM/$(nk -inkey system.seed -pubout)/" /etc/nats/nats.conf
cat acme.keys /src/deploy/nats/acme.conf >/etc/nats/acme.conf
cd /etc/nats
run $page#start 1
cd /root/keys
for n in "${names[@]}"; do copy_to $n; done

step "start"
serve() { start "$1" "$(block $page#start 2 | sed "s/n1 /$1 on $1 /")"; }
for n in "${names[@]}"; do serve $n; done
block $page#start 3 >/dev/null # is what healthy does
for n in "${names[@]}"; do eventually healthy $n; done
run $page#start 4 '/tributary run/d'
export TRIBUTARY_PARTITIONS=4
start worker "$(user acme-stage) $(block $page#start 4 | tail -n 1)"
eventually logged worker "partitions acquired"
leave $page#start 5 "it is what doctor prints"
prints "none: every record is done" as acme-operator tributary doctor
eventually prints "$(block $page#start 5 | head -n 1)" as acme-operator tributary doctor
prints "$(block $page#start 5 | tail -n 1)" as acme-operator tributary doctor
send acme first
eventually exact acme
# One of the limits of README.md is larger than what three replicas would have of 100 GB.
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
	wait "${processes[$1]}" || true # with 1 in lame duck mode
	serve "$1"
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
prints "gone: n2" as acme-operator tributary doctor
copy_to n2
serve n2
eventually healthy n2
eventually current
streams() { on "$1" curl -s "http://127.0.0.1${1#n}:8222/jsz" | grep -E '"(streams|messages)":'; }
eventually test "$(streams n1)" = "$(streams n2)"

step "the new server is worth as much as the others"
stop n1 KILL || true
send acme replaced
eventually exact acme
serve n1
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
start worker-globex "$(user globex-stage) TRIBUTARY_REPLICAS=3 tributary run"
leave deploy/nats/reload.md#a-tenant 2 "a worker of three servers needs TRIBUTARY_REPLICAS"
eventually logged worker-globex "partitions acquired"
send globex first
eventually exact globex
exact acme
