# What the scripts with a broker of deploy/nats share.

for tool in openssl curl unshare; do
	command -v $tool >/dev/null || { echo "needs $tool"; exit 77; }
done
names=(n1 n2 n3)
for i in 1 2 3; do echo "127.0.0.1$i n$i.nats.example" >>/etc/hosts; done
mkdir -p /etc/nats/tls /var/lib/nats keys /usr/local/bin
cd keys

# The servers share a machine here, so each has an address of its own, and sees its own /etc/nats and /var/lib/nats.
cat >/usr/local/bin/on <<'EOF'
#!/bin/bash
# on NODE COMMAND: the command sees the folders of a server.
export at=/nodes/$1
shift
exec unshare --mount bash -ec '
	mount --bind $at/nats /etc/nats
	mount --bind $at/data /var/lib/nats
	cd /etc/nats
	exec "$@"' on "$@"
EOF
chmod +x /usr/local/bin/on

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

# healthy NODE: the server is ready, and has the streams that it should have.
healthy() { on "$1" curl -sf "http://127.0.0.1${1#n}:8222/healthz"; }

# reload NODE [FILE]: the server takes its files.
reload() {
	local before
	before=$(grep -c 'Reloaded server configuration' "/var/log/$1.log" || true)
	NODE=$1 on "$1" nats-server -t -c "${2:-nats.conf}"
	nats-server --signal "reload=${processes[$1]}"
	eventually reloaded "$1" "$before"
}
reloaded() { [ "$(grep -c 'Reloaded server configuration' "/var/log/$1.log")" -gt "$2" ]; }

# as TENANT-ROLE COMMAND: runs a command of tributary or nats as a user; TENANT-ROLE-N has another key.
as() {
	local key=$1 role
	role=$(cut -d- -f2 <<<"$key")
	shift
	[ "$1" != nats ] || set -- nats --inbox-prefix "_INBOX_$role" "${@:2}"
	NATS_CA=/root/keys/ca.crt NATS_NKEY=/root/keys/$key.seed NATS_INBOX_PREFIX=_INBOX_$role "$@"
}

# user TENANT-ROLE: what as does, for the command of start.
user() {
	echo "NATS_CA=/root/keys/ca.crt NATS_NKEY=/root/keys/$1.seed NATS_INBOX_PREFIX=_INBOX_$(cut -d- -f2 <<<"$1")"
}

# send TENANT NAME [LINES]: writes logs of sessions that are named so, and ships them.
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

# ship TENANT: sends what the logs of a tenant have.
ship() {
	as "$1-producer" env TRIBUTARY_DATA="/var/lib/edge-$1" tributary ship --once --source claude_code "/logs/$1" 2>&1 |
		tail -n 1
}

# stored TENANT: the texts of all events, in the order of each session.
stored() {
	as "$1-consumer" tributary tail --once -n 1000000 -o json | grep -o '"text":"[^"]*' | cut -c 9- |
		sed 's/ \(line [0-9]*\).*/ \1/' | sort -s -k1,1
}

# exact TENANT: each line that was sent is one event, in its order, and there are no others.
exact() { diff <(sort -s -k1,1 "/logs/$1.sent") <(stored "$1"); }
