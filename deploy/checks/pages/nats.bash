# The functions of the scripts that start servers from deploy/nats.

for tool in openssl curl unshare jq; do
	command -v $tool >/dev/null || { echo "needs $tool"; exit 77; }
done
names=(n1 n2 n3)
for i in 1 2 3; do echo "127.0.0.1$i n$i.nats.example" >>/etc/hosts; done
mkdir -p /etc/nats/tls /var/lib/nats keys /usr/local/bin
cd keys

# The servers share a machine here, so each has its own address, /etc/nats and /var/lib/nats.
cat >/usr/local/bin/on <<'EOF'
#!/bin/bash
# on NODE COMMAND: runs a command with the folders of a server.
export at=/nodes/$1
shift
exec unshare --mount bash -ec '
	mount --bind $at/nats /etc/nats
	mount --bind $at/data /var/lib/nats
	cd /etc/nats
	exec "$@"' on "$@"
EOF
chmod +x /usr/local/bin/on

# configure writes to /etc/nats the configuration with the tenant ACME, and to this folder certificates and seeds.
configure() {
	run deploy/nats/cluster.md#certificates 2>/var/log/openssl.log
	cp /src/deploy/nats/*.conf /etc/nats/
	local role
	for role in stage operator producer consumer sessions; do
		nk -gen user >acme-$role.seed
		echo "ACME_${role^^}: $(nk -inkey acme-$role.seed -pubout)"
	done | cat - /src/deploy/nats/acme.conf >/etc/nats/acme.conf
	nk -gen user >system.seed
	sed -i "s/\$NATS_SYSTEM/$(nk -inkey system.seed -pubout)/" /etc/nats/nats.conf
}

# copy_to NODE: gives a server the files of /etc/nats, its certificate and an empty disk.
copy_to() {
	rm -rf "/nodes/$1"
	mkdir -p "/nodes/$1/data"
	cp -r /etc/nats "/nodes/$1/nats"
	cp ca.crt "/nodes/$1/nats/tls/"
	cp "$1.crt" "/nodes/$1/nats/tls/tls.crt"
	cp "$1.key" "/nodes/$1/nats/tls/tls.key"
	address "$1"
}
address() { sed -i "s/0\.0\.0\.0/127.0.0.1${1#n}/; s/127.0.0.1:8222/127.0.0.1${1#n}:8222/" "/nodes/$1/nats/"*.conf; }

# healthy NODE: succeeds if the server is ready and has its streams.
healthy() { on "$1" curl -sf "http://127.0.0.1${1#n}:8222/healthz"; }

# serve NODE: starts a server that is no member of a cluster.
serve() {
	start "$1" "on $1 nats-server -c nats.conf"
	eventually healthy "$1"
}

# work TENANT-ROLE NAME: starts a worker.
work() {
	start "$2" "$(user "$1") tributary run"
	eventually logged "$2" "partitions acquired"
}

# reload NODE [FILE]: makes a server read its files again.
reload() {
	local before
	before=$(grep -c 'Reloaded server configuration' "/var/log/$1.log" || true)
	NODE=$1 on "$1" nats-server -t -c "${2:-nats.conf}"
	nats-server --signal "reload=${processes[$1]}"
	eventually reloaded "$1" "$before"
}
reloaded() { [ "$(grep -c 'Reloaded server configuration' "/var/log/$1.log")" -gt "$2" ]; }

# as TENANT-ROLE COMMAND: runs tributary or nats as a user; TENANT-ROLE-N has another key.
as() {
	local key=$1 role
	role=$(cut -d- -f2 <<<"$key")
	shift
	[ "$1" != nats ] || set -- nats --inbox-prefix "_INBOX_$role" "${@:2}"
	NATS_CA=/root/keys/ca.crt NATS_NKEY=/root/keys/$key.seed NATS_INBOX_PREFIX=_INBOX_$role "$@"
}

# user TENANT-ROLE: prints the variables of as, for the command of start.
user() {
	echo "NATS_CA=/root/keys/ca.crt NATS_NKEY=/root/keys/$1.seed NATS_INBOX_PREFIX=_INBOX_$(cut -d- -f2 <<<"$1")"
}

# send TENANT NAME [LINES]: writes the logs of sessions NAME-1 to NAME-3, and ships them.
send() {
	local tenant=$1 name=$2 lines=${3:-20} session line
	mkdir -p "/logs/$tenant"
	for session in 1 2 3; do
		for ((line = 1; line <= lines; line++)); do
			echo "$name-$session line $line" >>"/logs/$tenant.sent"
			printf '{"type":"user","uuid":"%s","sessionId":"%s","message":{"role":"user","content":"%s"}}\n' \
				"$name-$session-$line" "$name-$session" "$name-$session line $line$(filler)"
		done >"/logs/$tenant/$name-$session.jsonl"
	done
	ship "$tenant"
}
filler() { :; }

# ship TENANT: ships the logs of a tenant.
ship() {
	as "$1-producer" env TRIBUTARY_DATA="/var/lib/edge-$1" tributary ship --once --source claude_code "/logs/$1" 2>&1 |
		tail -n 1
}

# stored TENANT: prints the texts of all events, in the order of each session.
stored() {
	as "$1-consumer" tributary tail --once -n 1000000 -o json | grep -o '"text":"[^"]*' | cut -c 9- |
		sed 's/ \(line [0-9]*\).*/ \1/' | sort -s -k1,1
}

# exact TENANT: succeeds if each sent line is one event, in the order of its session, and there are no others.
exact() { diff <(sort -s -k1,1 "/logs/$1.sent") <(stored "$1"); }
