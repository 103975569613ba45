#!/usr/bin/env bash
# Runs the long forms of all that this module has, and prints what they have come to. Takes less than a
# quarter of an hour on two cores. Fails if a promise was broken, or if one of them could not be run.
#
#	run.sh              all
#	run.sh soak chaos   some of: model histories upgrade chaos soak schedule spin
#
# What each has printed is kept in LOGS, a folder that is made if it is not given. These make it longer or
# shorter: STEPS, HISTORIES, ROUNDS, CHAOS and SOAK (times), LEASES, TICKS.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1

GO=${GO:-go}
LOGS=${LOGS:-$(mktemp -d)}
mkdir -p "$LOGS" && LOGS=$(cd "$LOGS" && pwd) || exit 1
all='model histories upgrade chaos soak schedule spin'
sections=${*:-$all}

model() {
	WORKLEASE_PROOF_STEPS=${STEPS:-1000000} "$GO" test -v -count=1 -timeout 0 -run '^TestStoresAreAsTheModel$' .
}

histories() {
	WORKLEASE_PROOF_HISTORIES=${HISTORIES:-2000} "$GO" test -v -count=1 -timeout 0 -run '^TestHistoriesAreLinearizable$' .
}

upgrade() {
	"$GO" test -v -count=1 -timeout 0 ./upgrade -args -rounds "${ROUNDS:-20}"
}

chaos() {
	"$GO" build -o "$LOGS/chaos.bin" ./chaos && "$LOGS/chaos.bin" -time "${CHAOS:-7m}"
	local status=$?
	rm -f "$LOGS/chaos.bin"
	return "$status"
}

soak() {
	"$GO" test -v -count=1 -timeout 0 ./soak -args -leases "${LEASES:-2000}" -duration "${SOAK:-40s}" -ttl 30s
}

schedule() {
	WORKLEASE_PROOF_TICKS=${TICKS:-60} "$GO" test -v -count=1 -timeout 0 ./schedule
}

# The model of the protocol needs tools that not everybody has.
spin() {
	if ! type -P spin gcc >/dev/null; then
		echo "left out: spin or gcc is not installed"
		return 0
	fi
	model/run.sh
}

section() {
	local begun=$SECONDS status=0
	"$1" >"$LOGS/$1.log" 2>&1 || status=$?
	echo "$status $((SECONDS - begun))" >"$LOGS/$1.status"
	if ((status)); then echo "proof: $1 failed after $((SECONDS - begun)) s" >&2; else echo "proof: $1 is done after $((SECONDS - begun)) s" >&2; fi
}

# Runs the sections named, as far as they are asked for, one after another.
lane() {
	local s
	for s; do
		case " $sections " in *" $s "*) section "$s" ;; esac
	done
}

# The lines of a section's log that say what it has come to.
figures() {
	case $1 in
	chaos) sed -n '/^seed/,$p' "$LOGS/$1.log" ;;
	spin) grep -vE '^[[:space:]]*$' "$LOGS/$1.log" ;;
	*) sed -n 's/^proof: [a-z]*: //p' "$LOGS/$1.log" ;;
	esac
}

for s in $sections; do
	case " $all " in *" $s "*) ;; *)
		echo "run.sh: there is no section $s; there are: $all" >&2
		exit 2
		;;
	esac
done
rm -f "$LOGS"/*.status
# Leases are kept by the clock: the soak and the schedule have the machine to themselves, and the faults share
# it with what only computes.
lane soak schedule
lane chaos upgrade &
lane model histories spin
wait

failed=0
for s in $all; do
	case " $sections " in *" $s "*) ;; *) continue ;; esac
	read -r status seconds <"$LOGS/$s.status" || status=1
	if ((status)); then
		failed=1
		printf '\n== %s: FAILED, %s s\n' "$s" "${seconds:-?}"
		tail -n 40 "$LOGS/$s.log"
	else
		printf '\n== %s: no violation, %s s\n' "$s" "$seconds"
		figures "$s"
	fi
done
printf '\nlogs: %s\n' "$LOGS"
exit "$failed"
