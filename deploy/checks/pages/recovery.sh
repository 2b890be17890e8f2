# Backup and restore with the nats command: with stopped workers, and while everything runs.
# long: takes minutes and builds the nats command
# tools: nats-server nats nk
. /src/deploy/checks/pages/nats.bash
page=deploy/recovery.md

step "a server with a tenant"
configure
sed -i '/sync_interval/d' /etc/nats/nats.conf
export NATS_URL=tls://n1.nats.example:4222 TRIBUTARY_PARTITIONS=4
copy_to n1
serve n1
work acme-stage worker
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
start reader "$(user acme-consumer) tributary tail"
eventually logged reader "small-" # it has printed the last events, and follows
send acme meanwhile 200 >/var/log/edge.log &
edge=$!
export NATS_CA=/root/keys/ca.crt NATS_NKEY=/root/keys/acme-operator.seed
run $page#back-up
wait $edge
eventually exact acme

step "restore, with everything running"
send acme newer # the backup does not have it
eventually exact acme
eventually logged reader "newer-3 line 20"
stop n1 KILL || true
copy_to n1
serve n1
run $page#restore
eventually logged reader "events stream has gone back in time"
ship acme
eventually exact acme
eventually prints "none: every record is done" as acme-operator tributary doctor

step "restore, with stopped workers"
send acme newest
eventually exact acme
stop worker
stop n1 KILL || true
copy_to n1
serve n1
nats --inbox-prefix _INBOX_operator --timeout 5m backup restore account backup
work acme-stage worker
ship acme
eventually exact acme
eventually prints "none: every record is done" as acme-operator tributary doctor
