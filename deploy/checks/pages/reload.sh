# Tenants, limits, keys, certificates and rights of a generation change while everything runs.
# long: takes minutes and builds the nats command
# tools: nats-server nats nk
. /src/deploy/checks/pages/nats.bash
page=deploy/nats/reload.md

step "a server with the tenant ACME"
configure
export NATS_URL=tls://n1.nats.example:4222 TRIBUTARY_PARTITIONS=4
copy_to n1
serve n1
work acme-stage worker
send acme first
start reader "$(user acme-consumer) tributary tail"
eventually exact acme
block $page#changes-while-everything-runs >/dev/null # reload runs it

step "a consumer of README.md"
texts="export $(user acme-consumer)"$'\n'
texts+=$(block README.md#consume-it 1 | sed 's/nats /nats --inbox-prefix _INBOX_consumer /g; s/jq /jq --unbuffered /')
start texts "$texts"
leave README.md#consume-it 2 "it is Go code, which a test of the program compiles"
leave README.md#consume-it 3 "it edits a Go module"
read_all() { diff <(sort "/logs/acme.sent") <(grep ^first- /var/log/texts.log | sort); }
eventually read_all
stop texts || true
(
	export $(user acme-consumer)
	run pipeline/subscribe/README.md#any-language 1 's/nats /nats --inbox-prefix _INBOX_consumer /g' >/var/log/next.log
)
is 10 grep -c ^first- /var/log/next.log

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
eventually logged n1 "insufficient storage resources available"
eventually holds "50 GiB"
edit 's/max_file_store: 200GB/max_file_store: 250GB/' nats.conf
eventually holds "150 GiB"

step "another key"
cd /nodes/n1/nats
run $page#another-key 1
mv acme-stage-2.seed /root/keys/
cd /root/keys
reload n1
work acme-stage-2 worker-2
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
run deploy/nats/cluster.md#certificates 2>/var/log/openssl.log
cp ca.crt new.crt
cat old.crt new.crt >ca.crt # clients read it
cp ca.crt n1.crt n1.key /nodes/n1/nats/tls/
mv /nodes/n1/nats/tls/n1.crt /nodes/n1/nats/tls/tls.crt
mv /nodes/n1/nats/tls/n1.key /nodes/n1/nats/tls/tls.key
reload n1
cp new.crt ca.crt # new clients trust only the new authority
send acme certificate
eventually exact acme
logged worker-2 "connection to the broker is lost" && fail "a worker was disconnected"
logged reader "interruption" && fail "a consumer was disconnected"
stop n1
serve n1
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
is 60 grep -c "generation-. line" /var/log/reader.log
as acme-operator tributary replay drop v1 --yes
cd /nodes/n1/nats
run $page#another-generation 2
cd /root/keys
reload n1
exact acme
