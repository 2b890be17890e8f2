# Backup and restore with the nats command: with workers that were stopped, and with everything running.
# long: takes minutes and builds the nats command
# tools: nats-server nats nk
. /src/deploy/checks/pages/nats.bash
page=deploy/recovery.md

step "a server with a tenant"
eval "$(block deploy/nats/cluster.md#certificates)" 2>openssl.log
cp /src/deploy/nats/*.conf /etc/nats/
sed -i '/sync_interval/d' /etc/nats/nats.conf
for role in stage operator producer consumer sessions; do
	nk -gen user >acme-$role.seed
	export "ACME_${role^^}=$(nk -inkey acme-$role.seed -pubout)"
done
nk -gen user >system.seed
NATS_SYSTEM=$(nk -inkey system.seed -pubout)
export NATS_SYSTEM NATS_URL=tls://n1.nats.example:4222 TRIBUTARY_PARTITIONS=4
serve() {
	copy_to n1 # with an empty disk
	start n1 "on n1 nats-server -c nats.conf"
	eventually healthy n1
}
serve
start worker "$(user acme-stage) tributary run"
eventually logged worker "partitions acquired"
filler() { head -c 60000 /dev/urandom | base64 -w 0 | sed 's/^/ /'; }
send acme large 60 # 14 MB that no compression makes smaller
filler() { :; }
send acme small
eventually exact acme

step "a backup without the right"
sed -i 's/"$JS.SNAPSHOT.>"/"none"/' /nodes/n1/nats/acme.conf
reload n1
prints "408 No Flow Response" as acme-operator nats backup stream RAW refused --no-progress
sed -i 's/"none"/"$JS.SNAPSHOT.>"/' /nodes/n1/nats/acme.conf
reload n1

step "a backup while everything runs"
send acme meanwhile 200 >/var/log/edge.log &
edge=$!
export NATS_CA=/root/keys/ca.crt NATS_NKEY=/root/keys/acme-operator.seed
run $page#back-up
wait $edge
eventually exact acme

step "restore, with everything running"
start reader "$(user acme-consumer) tributary tail"
eventually logged reader "meanwhile-3 line 200"
send acme newer # which the backup does not have
eventually exact acme
stop n1 KILL || true
serve
run $page#restore
eventually logged reader "events stream has gone back in time"
ship acme
eventually exact acme
eventually prints "none: every record is done" as acme-operator tributary doctor

step "restore, with workers that were stopped"
send acme newest
eventually exact acme
stop worker
stop n1 KILL || true
serve
nats --inbox-prefix _INBOX_operator --timeout 5m backup restore account backup
start worker "$(user acme-stage) tributary run"
eventually logged worker "partitions acquired"
ship acme
eventually exact acme
eventually prints "none: every record is done" as acme-operator tributary doctor
