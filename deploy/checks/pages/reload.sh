# A tenant, limits, keys, certificates and rights of a generation change while everything runs.
# long: takes minutes and builds the nats command
# tools: nats-server nats nk
. /src/deploy/checks/pages/nats.bash
page=deploy/nats/reload.md

step "a server with the tenant ACME"
eval "$(block deploy/nats/cluster.md#certificates)" 2>openssl.log
cp /src/deploy/nats/*.conf /etc/nats/
for role in stage operator producer consumer sessions; do
	nk -gen user >acme-$role.seed
	export "ACME_${role^^}=$(nk -inkey acme-$role.seed -pubout)"
done
nk -gen user >system.seed
NATS_SYSTEM=$(nk -inkey system.seed -pubout)
export NATS_SYSTEM NATS_URL=tls://n1.nats.example:4222 TRIBUTARY_PARTITIONS=4
copy_to n1
start n1 "on n1 nats-server -c nats.conf"
eventually healthy n1
start worker "$(user acme-stage) tributary run"
eventually logged worker "partitions acquired"
send acme first
start reader "$(user acme-consumer) tributary tail"
eventually exact acme
block $page#changes-while-everything-runs >/dev/null # is what reload does

step "a tenant"
cd /nodes/n1/nats
run $page#a-tenant 1
mv globex-*.seed /root/keys/
cd /root/keys
reload n1
reload n1
start worker-globex "$(block $page#a-tenant 2 | sed 's|NATS_NKEY=|NATS_CA=/root/keys/ca.crt &/root/keys/|')"
eventually logged worker-globex "partitions acquired"
send globex first
eventually exact globex
exact acme

step "limits"
edit() { sed -i "$1" /nodes/n1/nats/"$2"; reload n1; }
holds() { as globex-operator nats account info | grep -q "of $1"; }
edit 's/max_file: 100GB/max_file: 50GB/' globex.conf
eventually holds "50 GiB"
edit 's/max_file: 50GB/max_file: 150GB/' globex.conf
logged n1 "insufficient storage resources available"
eventually holds "50 GiB"
edit 's/max_file_store: 200GB/max_file_store: 250GB/' nats.conf
eventually holds "150 GiB"

step "another key"
cd /nodes/n1/nats
run $page#another-key 1
mv acme-stage-2.seed /root/keys/
cd /root/keys
reload n1
start worker-2 "$(user acme-stage-2) tributary run"
eventually logged worker-2 "partitions acquired"
send acme key
cd /nodes/n1/nats
run $page#another-key 2
cd /root/keys
reload n1
eventually logged worker "uthorization"
ended() { ! kill -0 "${processes[worker]}"; }
eventually ended
prints "uthorization" as acme-stage tributary doctor
send acme removed
eventually exact acme

step "certificates"
mv ca.crt old.crt
mv n1.crt n1.old.crt
eval "$(block deploy/nats/cluster.md#certificates)" 2>openssl.log
cp ca.crt new.crt
cat old.crt new.crt >ca.crt # at the clients
cp ca.crt n1.crt n1.key /nodes/n1/nats/tls/
mv /nodes/n1/nats/tls/n1.crt /nodes/n1/nats/tls/tls.crt
mv /nodes/n1/nats/tls/n1.key /nodes/n1/nats/tls/tls.key
reload n1
cp new.crt ca.crt # new clients trust the new authority alone
send acme certificate
eventually exact acme
logged worker-2 "connection to the broker is lost" && fail "a worker was disconnected"
logged reader "interruption" && fail "a consumer was disconnected"
stop n1
start n1 "on n1 nats-server -c nats.conf"
eventually healthy n1
eventually logged worker-2 "reconnected"
send acme authority
eventually exact acme

step "another generation"
as acme-operator tributary replay start v2
as acme-operator tributary replay status v2 --wait
prints "EVENTS_v2" as acme-operator tributary replay promote v2 --wait
eventually logged reader "EVENTS_v2"
send acme generation
cd /nodes/n1/nats
run $page#another-generation 1
cd /root/keys
reload n1
eventually exact acme
eventually logged reader "generation-3 line 20"
stop reader
prints "line 1" tail -n 3 /var/log/reader.log
as acme-operator tributary replay drop v1 --yes
cd /nodes/n1/nats
run $page#another-generation 2
cd /root/keys
reload n1
exact acme
