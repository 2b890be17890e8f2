# The functions of the scripts in this folder; pages_linux_test.go runs the scripts.
set -Eeuo pipefail
trap 'failed "$BASH_SOURCE" "$LINENO" "$BASH_COMMAND"' ERR

declare -A processes=() # the process ids of start, by name

# failed prints the line that failed, and the last lines of each log.
failed() {
	local code=$? log
	printf '\nFAILED (%s) at line %s of %s: %s\n' $code "$2" "${1##*/}" "$3"
	for log in /var/log/*.log; do
		[ -s "$log" ] && printf '\n--- %s\n' "$log" && tail -n 25 "$log"
	done
	exit 1
}

# fail TEXT: prints a text and fails.
fail() {
	printf 'wrong: %s\n' "$*"
	return 1
}

# step TEXT: prints a heading.
step() { printf '\n== %s\n' "$*"; }

# block PAGE#SECTION [NUMBER]: prints the commands of a code block, and records that the script uses it.
block() {
	local file="/page/$1/${2:-1}"
	[ -f "$file" ] || fail "$1 has no block ${2:-1}"
	printf '%s %s\n' "$1" "${2:-1}" >>/page/done
	cat "$file"
}

# leave PAGE#SECTION NUMBER REASON: records that the script does not run a block.
leave() {
	block "$1" "$2" >/dev/null
	printf 'not run: %s block %s: %s\n' "$1" "$2" "$3"
}

# run PAGE#SECTION [NUMBER] [SED]: runs the commands of a block in this shell, after sed has edited them.
run() {
	local commands
	commands=$(block "$1" "${2:-1}" | sed -E "${3:-}")
	printf '%s\n' "$commands" | sed 's/^/+ /'
	eval "$commands"
}

# start NAME COMMANDS: runs commands in the background, with a new log /var/log/NAME.log.
start() {
	printf '%s\n' "$2" | sed "s/^/+ ($1) /"
	# The last command replaces the shell, so that it receives the signals.
	bash -euc "$(printf '%s\n' "$2" | sed -E '$s/^(([A-Z_]+=[^ ]* )*)([^ ]*)/exec env \1\3/')" >"/var/log/$1.log" 2>&1 &
	processes[$1]=$!
}

# stop NAME [SIGNAL]: ends a process of start, and returns its exit code.
stop() {
	kill "-${2:-TERM}" "${processes[$1]}"
	local code=0
	wait "${processes[$1]}" || code=$?
	unset "processes[$1]"
	return $code
}

# eventually COMMAND...: waits until a command succeeds, for at most two minutes.
eventually() {
	local end=$((SECONDS + 120)) out
	until out=$("$@" 2>&1); do
		if [ $SECONDS -ge $end ]; then
			fail "never succeeded: $*"$'\n'"$out"
		fi
		sleep 0.2
	done
}

# logged NAME TEXT: succeeds if the log NAME has a text.
logged() { grep -qF -- "$2" "/var/log/$1.log"; }

# prints TEXT COMMAND...: prints the output of a command, which may fail, and succeeds if the output has a text.
prints() {
	local out
	out=$("${@:2}" 2>&1) || true
	printf '%s\n' "$out"
	grep -qF -- "$1" <<<"$out" || fail "no \"$1\" in the output of: ${*:2}"
}

# is EXPECTED COMMAND...: succeeds if the command succeeds with exactly this output.
is() {
	local out
	out=$("${@:2}") || return
	[ "$out" = "$1" ] || fail "\"$out\", not \"$1\", is the output of: ${*:2}"
}

# finish ends a script that has succeeded; the kernel ends its processes.
finish() { printf '\ndone\n'; }
