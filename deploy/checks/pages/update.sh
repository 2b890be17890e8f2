# Another revision of the program, a rollback and other settings, while records are shipped all the time.
# long: builds the program a second time
# tools: nats-server tributary-next
page=deploy/replay.md

# write NAME FOLDER SENT: appends lines to the logs of three sessions, and to SENT, until the file enough exists.
write() {
	local line session
	rm -f enough
	for ((line = 1; ; line++)); do
		for session in "$1-1" "$1-2" "$1-3"; do
			printf '{"type":"user","uuid":"%s","timestamp":"2026-03-09T09:00:00Z","sessionId":"%s","message":{"role":"user","content":"%s"}}\n' \
				"$session-$line" "$session" "$session line $line" >>"$2/$session.jsonl"
			echo "$session line $line" >>"$3"
		done
		[ ! -e enough ] || return 0
		sleep 0.05 # a load of 60 records a second
	done
}

# texts: prints the texts of the events of standard input, in the order of each session.
texts() { grep -o '"text":"[^"]*' | cut -c 9- | sort -s -k1,1; }

# stored GENERATION: prints the texts of its events.
stored() { TRIBUTARY_GENERATION=$1 tributary tail --once -n 1000000 -o json | texts; }

# exact GENERATION SENT: succeeds if each sent line is one event, in the order of its session, and there are no others.
exact() { diff <(sort -s -k1,1 "$2") <(stored "$1"); }

# arrives GENERATION: waits until the generation has a line that was sent after the call.
arrives() {
	local before
	before=$(wc -l <sent)
	eventually sent_more "$before"
	eventually has "$1" "$(tail -n 1 sent)"
}
sent_more() { [ "$(wc -l <sent)" -gt "$1" ]; }
has() { [ "$(stored "$1" | grep -cFx "$2")" = 1 ]; }

# ready PORT: succeeds if the worker is ready.
ready() { is ok curl -s "http://127.0.0.1:$1/readyz"; }

step "a worker, an edge, a consumer, and records all the time"
start broker "$(block deploy/README.md#start-a-broker)"
eventually logged broker "Server is ready"
start worker "TRIBUTARY_HTTP=127.0.0.1:9464 TRIBUTARY_WORKER=old tributary run"
eventually ready 9464
start reader "tributary tail --since all -o json"
mkdir -p .claude/projects/all
start edge "tributary ship"
touch sent
write all .claude/projects/all sent &
writer=$!
arrives v1

step "other settings"
run $page#other-settings 1 's/promote b/& --wait/'
arrives b
run $page#other-settings 2 's/drop b/& --yes/'
arrives v1

step "a part"
run $page#a-part-for-a-look 1 's/codex/claude_code/; s/drop trial/& --yes/; /diff/i tributary replay status trial --wait'

step "a worker of another revision waits"
revision() { "$1" version | sed 's/.*revision \([0-9]*\).*/\1/'; }
old=$(revision tributary) new=$(revision tributary-next)
[ "$new" -gt "$old" ]
install -m 755 go/bin/tributary-next /usr/local/bin/tributary # the new version is the first in PATH
hash -r
start worker-next "TRIBUTARY_HTTP=127.0.0.1:9465 TRIBUTARY_WORKER=new tributary run"
waits=$(block $page#update-to-another-revision 1 | sed -E "s/7(.*)8/$old\1$new/; s/ \.\.\.//")
eventually prints "$waits" curl -s http://127.0.0.1:9465/readyz
prints "worker new of revision $new does nothing: the live generation is of revision $old" go/bin/tributary doctor
arrives v1
ready 9464

step "the update"
run $page#update-to-another-revision 2 's/promote v2/& --wait/'
eventually ready 9465
eventually prints "v2 has revision $new, this worker has $old" curl -s http://127.0.0.1:9464/readyz
arrives v2

step "the rollback"
tributary replay rollback
eventually ready 9464
arrives v1

step "the update, again"
tributary replay start v2
tributary replay status v2 --wait
tributary replay promote v2 --wait
eventually ready 9465
arrives v2

step "each record has its events once, in each generation"
kill -0 $writer "${processes[edge]}" "${processes[worker]}" "${processes[worker-next]}" "${processes[reader]}"
touch enough
wait $writer
eventually exact v2 sent
tributary replay rollback
eventually exact v1 sent
tributary replay diff v1 v2
read_all() { diff <(sort -s -k1,1 sent) <(texts </var/log/reader.log); }
eventually read_all
prints "none: every record is done" go/bin/tributary doctor
wc -l sent
for name in edge worker worker-next; do stop $name; done
stop reader || true
stop broker || true

step "tributary up alone"
export HOME=/home/ada
mkdir -p $HOME/.claude/projects/up
touch sent-up sent-later
write up $HOME/.claude/projects/up sent-up &
writer=$!
start up "/root/go/bin/tributary up --quiet"
eventually has v1 "up-1 line 1"
touch enough
wait $writer
eventually exact v1 sent-up
stop up

step "the new version refuses, then builds the events again"
write later $HOME/.claude/projects/up sent-later &
writer=$!
refused=$(block $page#update-to-another-revision 3 | head -n 1)
prints "the events in /home/ada/.local/state/tributary are of revision $old, this program makes those of revision $new" eval "$refused"
again=$(block $page#update-to-another-revision 3 | tail -n 1)
start up-killed "$again"
eventually logged up-killed "building the events of v1 again"
stop up-killed KILL || true
start up-next "$again"
eventually logged up-next "v2 is live"
touch enough
wait $writer
cat sent-up sent-later >sent-all
eventually exact v2 sent-all
exact v1 sent-up
stop up-next
